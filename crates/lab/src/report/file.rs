//! A file of results: tried before the runs, so that a bad path costs nothing; complete or not there.
//!
//! Knows nothing of what it holds.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::os;

/// A file that gets its name only when it is complete.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    temporary: PathBuf,
}

impl OutputFile {
    /// Makes sure that `path`, which an option names, can be written, without touching what is there.
    pub(crate) fn open(option: &str, path: &Path) -> Result<OutputFile, Failure> {
        let bad = |what: String| Failure::Input(format!("{option} {}: {what}", path.display()));
        let path = &os::replaceable(path).map_err(|error| match error.kind() {
            io::ErrorKind::IsADirectory => bad("this is a folder, expected a file".into()),
            _ => bad(format!("can't be written: {error}")),
        })?;
        let name = path.file_name().ok_or_else(|| bad("expected the name of a file".into()))?;
        let temporary = path.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        // Nothing stays until the results are there: a run that is interrupted leaves nothing behind.
        let tried = File::create(&temporary).and_then(|_| fs::remove_file(&temporary));
        tried.map_err(|error| bad(format!("can't be written: {error}")))?;
        Ok(OutputFile { path: path.to_owned(), temporary })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets `write` fill the file, and gives it its name.
    pub(crate) fn write(&self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
        let mut writer = BufWriter::new(File::create(&self.temporary)?);
        write(&mut writer)?;
        writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&self.temporary, &self.path)
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // Renamed, it is no longer there.
        let _gone = fs::remove_file(&self.temporary);
    }
}
