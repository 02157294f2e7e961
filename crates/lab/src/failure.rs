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
}

impl Failure {
    /// The process exit code that stands for this kind of failure.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Internal(_) => 1,
            Failure::Input(_) => 2,
            Failure::Expect(_) => 10,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(message) => write!(f, "{message}"),
            Failure::Internal(message) => write!(f, "internal error: {message}"),
            Failure::Expect(bounds) => {
                write!(f, "not as expected:")?;
                bounds.iter().try_for_each(|bound| write!(f, "\n  {bound}"))
            }
        }
    }
}
