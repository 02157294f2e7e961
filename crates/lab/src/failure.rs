//! How a command fails, and the exit code that says so.
//!
//! Knows nothing of scenarios, targets or reports.

use std::fmt;
use std::process::ExitCode;

/// Why a command did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line or a file is wrong; the message says where, and what was expected.
    Input(String),
    /// The machine or this program failed; nothing the user wrote is to blame.
    Internal(String),
    /// The run went well, but bounds of its `[expect]` table were not met: one line each.
    Expect(Vec<String>),
    /// A simulated machine can't go on: an invariant of the engine or a check is broken.
    Simulation(String),
    /// Two runs of the same on a simulated machine differ.
    Differs(String),
    /// One that this command repeats.
    Repeatable {
        /// What went wrong.
        failure: Box<Failure>,
        /// The whole command line.
        command: String,
    },
}

impl Failure {
    /// The process exit code that stands for this kind of failure.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// This failure, and how to have it again. Bad input is bad input again without being told.
    pub(crate) fn repeated_by(self, command: impl FnOnce() -> String) -> Failure {
        match self {
            Failure::Input(_) | Failure::Repeatable { .. } => self,
            failure => Failure::Repeatable { failure: Box::new(failure), command: command() },
        }
    }

    fn code(&self) -> u8 {
        match self {
            Failure::Internal(_) => 1,
            Failure::Input(_) => 2,
            Failure::Expect(_) => 10,
            Failure::Differs(_) => 11,
            Failure::Simulation(_) => 12,
            Failure::Repeatable { failure, .. } => failure.code(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(message) => write!(f, "{message}"),
            Failure::Internal(message) => write!(f, "internal error: {message}"),
            Failure::Simulation(message) => write!(f, "the simulation has failed: {message}"),
            Failure::Differs(message) => write!(f, "two runs of the same differ: {message}"),
            Failure::Repeatable { failure, command } => write!(f, "{failure}\nThis repeats it: {command}"),
            Failure::Expect(bounds) => {
                write!(f, "not as expected:")?;
                bounds.iter().try_for_each(|bound| write!(f, "\n  {bound}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_can_be_repeated_keeps_its_code_and_says_how() {
        let failure = Failure::Differs("here".into());
        let code = failure.code();
        let failure = failure.repeated_by(|| "evenkeel run it".into()).repeated_by(|| "otherwise".into());
        assert_eq!(failure.code(), code);
        assert!(failure.to_string().ends_with("\nThis repeats it: evenkeel run it"), "{failure}");
        assert_eq!(Failure::Input("x".into()).repeated_by(|| "y".into()).to_string(), "x");
    }
}
