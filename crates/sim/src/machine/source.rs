//! The text of a machine file, and how an error names a place in it.
//!
//! Knows nothing of what the text means.

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// Files beyond this are refused before they are parsed: the shipped ones are a thousandth of it.
const BYTES_MAX: u64 = 1 << 20;

/// A machine file that can't be used: `FILE:LINE: what is wrong, and what was expected`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineError(pub(super) String);

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MachineError {}

/// Something wrong at a place of the text.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

/// A file's text and the name it was given by.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) file: String,
    pub(super) text: String,
}

impl Source {
    /// Reads `path`, which must be UTF-8 and of bearable size.
    pub(super) fn read(path: &Path) -> Result<Source, MachineError> {
        let file = path.display().to_string();
        let fail = |what: String| MachineError(format!("{file}:1: {what}"));
        let cannot = |error: std::io::Error| fail(format!("can't read the machine: {error}; expected a TOML file"));
        let mut bytes = Vec::new();
        let opened = std::fs::File::open(path).map_err(cannot)?;
        opened.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(fail(format!("more than {BYTES_MAX} bytes, expected a machine file of at most that")));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Source { file, text }),
            Err(error) => {
                let good = error.utf8_error().valid_up_to();
                let line = line_of(error.as_bytes(), good);
                Err(MachineError(format!("{file}:{line}: not UTF-8, expected TOML text")))
            }
        }
    }

    /// The error that says what is wrong where.
    pub(super) fn error(&self, wrong: &Wrong) -> MachineError {
        let line = line_of(self.text.as_bytes(), wrong.span.start);
        MachineError(format!("{}:{line}: {}", self.file, wrong.message.replace('\n', ", ")))
    }
}

fn line_of(text: &[u8], offset: usize) -> usize {
    1 + text.iter().take(offset).filter(|&&byte| byte == b'\n').count()
}
