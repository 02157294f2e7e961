//! The text of a scenario file, and how an error names a place in it.
//!
//! Knows nothing of what the text means.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use crate::failure::Failure;

/// Files beyond this are refused before they are parsed: the largest shipped scenario is a
/// thousandth of it.
const BYTES_MAX: u64 = 4 << 20;

/// Something wrong at a place of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
}

impl Wrong {
    pub(crate) fn new(span: Range<usize>, message: impl Into<String>) -> Wrong {
        Wrong { span, message: message.into() }
    }
}

/// A file's text and the name it was given by.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    file: String,
    stem: String,
    text: String,
}

impl Source {
    /// Reads `path`, which must be UTF-8 and of bearable size.
    pub(crate) fn read(path: &Path) -> Result<Source, Failure> {
        let file = path.display().to_string();
        let fail = |what: String| Failure::Input(format!("{file}:1: {what}"));
        let cannot = |error: std::io::Error| fail(format!("can't read the scenario: {error}; expected a TOML file"));
        let mut bytes = Vec::new();
        let opened = std::fs::File::open(path).map_err(cannot)?;
        opened.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(fail(format!("more than {BYTES_MAX} bytes, expected a scenario file of at most that")));
        }
        let stem = path.file_stem().map_or_else(|| file.clone(), |stem| stem.to_string_lossy().into_owned());
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Source { file, stem, text }),
            Err(error) => {
                let good = error.utf8_error().valid_up_to();
                let line = line_of(error.as_bytes(), good);
                Err(Failure::Input(format!("{file}:{line}: not UTF-8, expected TOML text")))
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn of_text(file: &str, text: &str) -> Source {
        Source { file: file.to_owned(), stem: file.trim_end_matches(".toml").to_owned(), text: text.to_owned() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The file's name without folder and extension.
    pub(crate) fn stem(&self) -> &str {
        &self.stem
    }

    /// The failure that says `message` about the place `span`.
    pub(crate) fn at(&self, span: &Range<usize>, message: &str) -> Failure {
        Failure::Input(format!("{}:{}: {message}", self.file, line_of(self.text.as_bytes(), span.start)))
    }

    /// The failure for text that is not the TOML that was expected.
    pub(crate) fn toml_error(&self, error: &toml::de::Error) -> Failure {
        let message = error.message().replace('\n', ", ");
        self.at(&error.span().unwrap_or(0..0), &message)
    }
}

fn line_of(text: &[u8], offset: usize) -> usize {
    1 + text.iter().take(offset).filter(|&&byte| byte == b'\n').count()
}
