//! The thread of an engine runs jobs one by one. A panic becomes the error of its job.

use crate::limits::Limits;
use crate::policy::{Outcome, Policy};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;

/// Recursive functions of a policy use this stack. Unused pages take no memory.
pub const STACK_BYTES: usize = 256 << 20;
/// Parsing needs about 30 times the size of the policy.
const PARSE_BYTES: isize = 1 << 30;
const EVALUATION_BYTES: isize = 256 << 20;

pub enum Job {
    Compile { text: String },
    SetData { json: String },
    Evaluate { rule: String, input: String },
}

pub type Answer = Result<Option<Outcome>, String>;

pub fn run(jobs: Receiver<Job>, limits: &Limits, answer: impl Fn(Answer)) {
    let mut policy = None;
    for job in jobs {
        limits.begin(if matches!(job, Job::Compile { .. }) {
            PARSE_BYTES
        } else {
            EVALUATION_BYTES
        });
        answer(perform(&mut policy, job));
        limits.begin(isize::MAX);
    }
    drop(policy);
    // The C library would keep the freed memory: hundreds of MiB after a large policy.
    unsafe { libc::malloc_trim(0) };
}

fn perform(policy: &mut Option<Policy>, job: Job) -> Answer {
    // A panic changes nothing, because a job makes its result before it replaces the policy.
    catch_unwind(AssertUnwindSafe(|| {
        let loaded = policy.as_ref().ok_or_else(|| "no policy".to_string());
        match job {
            Job::Compile { text } => *policy = Some(Policy::parse(text)?),
            Job::SetData { json } => *policy = Some(loaded?.with_data(&json)?),
            Job::Evaluate { rule, input } => return loaded?.evaluate(&rule, &input).map(Some),
        }
        Ok(None)
    }))
    .unwrap_or_else(|panic| Err(format!("the evaluator failed: {}", message_of(panic.as_ref()))))
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic");
    // regorus pads a line to the column of the error, and Rust limits a width to 65535.
    if message == "Formatting argument out of range" {
        return "an error beyond column 65535 of a line";
    }
    message
}
