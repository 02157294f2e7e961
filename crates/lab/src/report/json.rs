//! The JSON file.
//!
//! Knows nothing of what it writes.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::OutputFile;
use crate::failure::Failure;

/// A file for results that took minutes.
#[derive(Debug)]
pub(crate) struct JsonFile(OutputFile);

impl JsonFile {
    /// Makes sure that `path` can be written, without touching what is there.
    pub(crate) fn open(path: &Path) -> Result<JsonFile, Failure> {
        OutputFile::open("--json", path).map(JsonFile)
    }

    /// Writes `value` and gives the file its name.
    pub(crate) fn write<T: Serialize>(self, value: &T) -> Result<(), Failure> {
        let written = self.0.write(|writer| {
            serde_json::to_writer_pretty(&mut *writer, value)?;
            writer.write_all(b"\n")
        });
        written.map_err(|error| self.rescue(value, &error))
    }

    /// The results took minutes: keep them somewhere.
    fn rescue<T: Serialize>(&self, value: &T, error: &std::io::Error) -> Failure {
        let elsewhere = std::env::temp_dir().join(format!("evenkeel-results-{}.json", std::process::id()));
        let saved = serde_json::to_vec_pretty(value)
            .map_err(std::io::Error::from)
            .and_then(|bytes| fs::write(&elsewhere, bytes));
        let path = self.0.path().display();
        Failure::Internal(match saved {
            Ok(()) => format!("can't write {path}: {error}; the results are in {}", elsewhere.display()),
            Err(_) => format!("can't write {path}: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("evenkeel-json-{}-{name}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_file_is_complete_or_not_there() {
        let folder = folder("complete");
        let path = folder.join("out.json");
        let json = JsonFile::open(&path).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "what is interrupted here leaves nothing");
        drop(json);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        JsonFile::open(&path).unwrap().write(&[1, 2]).unwrap();
        assert_eq!(serde_json::from_slice::<Vec<u32>>(&fs::read(&path).unwrap()).unwrap(), [1, 2]);
        // Nothing but the file is left, and a second attempt that is given up doesn't harm it.
        drop(JsonFile::open(&path).unwrap());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_bad_path_is_bad_input_before_anything_runs() {
        let folder = folder("bad");
        for path in [folder.clone(), folder.join("missing/out.json"), PathBuf::from("/"), PathBuf::from("..")] {
            assert!(matches!(JsonFile::open(&path), Err(Failure::Input(_))), "{}", path.display());
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn results_survive_a_path_that_went_bad() {
        let folder = folder("survive");
        let json = JsonFile::open(&folder.join("out.json")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let Err(Failure::Internal(message)) = json.write(&[7]) else { panic!("written to a folder that is gone") };
        let saved = message.rsplit(' ').next().unwrap();
        assert_eq!(serde_json::from_slice::<Vec<u32>>(&fs::read(saved).unwrap()).unwrap(), [7]);
        fs::remove_file(saved).unwrap();
    }
}
