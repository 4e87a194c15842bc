//! A policy and its data: regorus with limits and errors of one line.

use regorus::utils::limits::{ExecutionTimerConfig, PolicyLengthConfig};
use regorus::{Engine, LimitError, Value};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

const MAX_BYTES: usize = 16 << 20;
const MAX_LINES: usize = 200_000;
const EVALUATION_LIMIT: Duration = Duration::from_millis(100);
/// Attempts at an evaluation that times out with less than half of the CPU.
const MAX_TRIES: u32 = 5;
/// Statements between two checks of the time limit.
const CHECK_INTERVAL: u32 = 32;

const MAX_PRINTS: usize = 100;
const MAX_PRINT_CHARACTERS: usize = 1024;
const MAX_ERROR_CHARACTERS: usize = 1024;

/// The policy's file name in errors and print() of regorus, as in Kata's agent.
const FILE: &str = "agent_policy";
const NO_SUCH_RULE: &str = "not a valid rule path";

/// The value of a rule as JSON, None if it is undefined or absent; and what print() wrote.
pub struct Outcome {
    pub value: Option<String>,
    pub prints: Vec<String>,
}

pub struct Policy {
    engine: Engine,
}

impl Policy {
    pub fn parse(text: String) -> Result<Self, String> {
        check_length(&text)?;
        let mut engine = Engine::new();
        engine.set_gather_prints(true);
        // A built-in function that fails is undefined, as in Kata's agent.
        engine.set_strict_builtin_errors(false);
        engine.set_policy_length_config(PolicyLengthConfig {
            max_col: NonZeroU32::MAX,
            max_file_bytes: NonZeroUsize::MAX,
            max_lines: NonZeroUsize::MAX,
        });
        engine.set_execution_timer_config(ExecutionTimerConfig {
            limit: EVALUATION_LIMIT,
            check_interval: NonZeroU32::new(CHECK_INTERVAL).unwrap_or(NonZeroU32::MIN),
        });
        engine.add_policy(FILE.to_string(), text).map_err(sentence)?;
        prepare(&mut engine)?;
        Ok(Self { engine })
    }

    pub fn with_data(&self, json: &str) -> Result<Self, String> {
        let data = Value::from_json_str(json).map_err(|error| format!("data: {error}"))?;
        if data.as_object().is_err() {
            return Err("data: no object".to_string());
        }
        let mut engine = self.engine.clone();
        engine.clear_data();
        engine.add_data(data).map_err(sentence)?;
        prepare(&mut engine)?;
        Ok(Self { engine })
    }

    /// Evaluates `data.agent_policy.<rule>` on a copy, which shares the policy and its data: a failure or panic changes
    /// nothing.
    pub fn evaluate(&self, rule: &str, input: &str) -> Result<Outcome, String> {
        if rule.is_empty()
            || !rule
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return Err(format!("rule {rule:?}: no name of a rule"));
        }
        let input = Value::from_json_str(input).map_err(|error| format!("input: {error}"))?;
        let mut tries = 0;
        loop {
            tries += 1;
            let mut engine = self.engine.clone();
            engine.set_input(input.clone());
            let start = processor_time();
            let value = match value_of(&mut engine, rule) {
                Ok(Value::Undefined) => None,
                Ok(value) => Some(serde_json::to_string(&value).map_err(|error| format!("value: {error}"))?),
                Err(error) if is_late(&error) => {
                    // regorus counts wall time, even while other threads have the CPU.
                    if tries < MAX_TRIES && processor_time() - start < EVALUATION_LIMIT / 2 {
                        continue;
                    }
                    return Err(format!("the evaluation takes longer than {EVALUATION_LIMIT:?}"));
                }
                Err(error) => return Err(sentence(error)),
            };
            let prints = bounded(engine.take_prints().map_err(sentence)?);
            return Ok(Outcome { value, prints });
        }
    }
}

/// Returns undefined if there is no such rule. A rule's head may have further parts: `Rule.allowed := true`.
fn value_of(engine: &mut Engine, rule: &str) -> anyhow::Result<Value> {
    let path = format!("data.agent_policy.{rule}");
    match engine.eval_rule(path.clone()) {
        Err(error) if error.to_string() == NO_SUCH_RULE => {}
        outcome => return outcome,
    }
    if !engine.has_declared_rule_rooted_at(FILE, rule)? {
        return Ok(Value::Undefined);
    }
    // A query is slow for a policy of many rules.
    let results = engine.eval_query(path, false)?.result;
    let value = results.first().and_then(|result| result.expressions.first());
    Ok(value.map_or(Value::Undefined, |expression| expression.value.clone()))
}

fn is_late(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<LimitError>(),
        Some(LimitError::TimeLimitExceeded { .. })
    )
}

fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Analyses the rules, which would otherwise use up the time of the first evaluation.
fn prepare(engine: &mut Engine) -> Result<(), String> {
    // The rule need not exist.
    match engine.eval_rule("data.agent_policy.__prepare".to_string()) {
        Err(error) if error.to_string() != NO_SUCH_RULE => Err(sentence(error)),
        _ => Ok(()),
    }
}

fn check_length(text: &str) -> Result<(), String> {
    if text.len() > MAX_BYTES {
        return Err(format!("{} bytes, want at most {MAX_BYTES}", text.len()));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        return Err(format!("{lines} lines, want at most {MAX_LINES}"));
    }
    Ok(())
}

/// Puts a message of regorus on one line. A message has the place as `--> policy:LINE:COLUMN`, the source line, which
/// may be as long as the policy, and `error: TEXT`.
fn sentence(error: impl std::fmt::Display) -> String {
    let message = error.to_string();
    let text = match placed(&message) {
        Some((place, text)) => format!("{place}: {text}"),
        None => message,
    };
    truncated(
        text.split_whitespace().collect::<Vec<_>>().join(" "),
        MAX_ERROR_CHARACTERS,
    )
}

fn placed(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("--> ")?;
    let (place, rest) = rest.split_once('\n')?;
    let (_, text) = rest.split_once("\nerror: ")?;
    Some((place, text))
}

fn bounded(prints: Vec<String>) -> Vec<String> {
    let more = prints.len().saturating_sub(MAX_PRINTS);
    let mut kept: Vec<String> = prints
        .into_iter()
        .take(MAX_PRINTS)
        .map(|print| truncated(print, MAX_PRINT_CHARACTERS))
        .collect();
    if more > 0 {
        kept.push(format!("… {more} more"));
    }
    kept
}

fn truncated(text: String, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
