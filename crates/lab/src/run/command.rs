//! The command line that repeats a run.
//!
//! Knows nothing of what went wrong.

use std::borrow::Cow;
use std::fmt::Write;

use super::options::{Plan, RunArgs};
use crate::scenario::On;

/// What of the command line was asked for, beside seed, targets and repetitions.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    file: String,
    machine: Option<String>,
    set: Vec<String>,
    checks_determinism: bool,
}

impl Asked {
    pub(super) fn of(args: &RunArgs) -> Asked {
        Asked {
            file: args.file.display().to_string(),
            machine: args.machine.clone(),
            set: args.set.clone(),
            checks_determinism: args.check_determinism,
        }
    }
}

/// The command that runs `plan` again on these targets, from this seed on.
pub(super) fn line(plan: &Plan, on: &[On], seed: u64, repeat: u32) -> String {
    let asked = &plan.asked;
    let targets: Vec<&str> = on.iter().map(|on| on.name()).collect();
    let mut line = format!("evenkeel run {} --on {}", quoted(&asked.file), targets.join(","));
    let mut add = |option: &str, value: &str| {
        // Writing to a string can't fail.
        let _infallible = write!(line, " --{option} {}", quoted(value));
    };
    if on.contains(&On::Sim) {
        add("machine", asked.machine.as_deref().unwrap_or("host"));
    }
    add("seed", &seed.to_string());
    add("seconds", &plan.scenario.seconds.as_secs_f64().to_string());
    add("warmup", &plan.scenario.warmup.as_secs_f64().to_string());
    add("repeat", &repeat.to_string());
    if on.iter().any(|&on| on != On::Sim) {
        add("workers", &plan.workers.to_string());
    }
    asked.set.iter().for_each(|set| add("set", set));
    if asked.checks_determinism {
        line.push_str(" --check-determinism");
    }
    line
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        for (word, expected) in [("a/b-1.toml", "a/b-1.toml"), ("a b", "'a b'"), ("", "''"), ("it's", r"'it'\''s'")] {
            assert_eq!(quoted(word), expected);
        }
    }
}
