//! The thread of an engine: it takes jobs one by one, and a panic of one becomes its error.

use crate::limits::Limits;
use crate::policy::{Outcome, Policy};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;

/// Recursive functions of a policy recurse here too; only what is used takes memory.
pub const STACK_BYTES: usize = 256 << 20;
/// What parsing may need: about 30 times the largest policy.
const PARSE_BYTES: isize = 1 << 30;
const EVALUATION_BYTES: isize = 256 << 20;

pub enum Job {
    Compile { text: String },
    SetData { json: String },
    Evaluate { rule: String, input: String },
}

/// The outcome of a job; none for a job that has no value.
pub type Answer = Result<Option<Outcome>, String>;

/// Answers jobs until there can be no more, and frees what it holds.
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
    // The C library keeps what was freed otherwise, and a large policy leaves hundreds of MiB.
    unsafe { libc::malloc_trim(0) };
}

fn perform(policy: &mut Option<Policy>, job: Job) -> Answer {
    // A job that panics has changed nothing: each makes its result before it replaces the policy.
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
    // regorus pads a line with as many blanks as the column of an error, and Rust formats no wider field.
    if message == "Formatting argument out of range" {
        return "an error beyond column 65535 of a line";
    }
    message
}
