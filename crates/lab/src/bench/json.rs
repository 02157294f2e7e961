//! The file that a program reads: an array with one object per row and target, and one per ratio.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process;

use serde::Serialize;

use super::Measured;
use super::error::BenchError;
use super::statistics::{Pair, Summary, Verdict, ratios};
use super::target::{OURS, Rt, Setup, Tokio};
use crate::os;

/// A file that is replaced as a whole or not at all.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
}

impl File {
    /// Finds out before the runs whether the file can be written after them.
    pub(super) fn check(path: PathBuf) -> Result<Self, BenchError> {
        let tried = os::replaceable(&path).and_then(|real| {
            let draft = draft(&real)?;
            fs::File::create(&draft)?;
            fs::remove_file(&draft)?;
            Ok(real)
        });
        match tried {
            Ok(path) => Ok(Self { path }),
            Err(why) => Err(BenchError::Path { path, why }),
        }
    }

    /// Writes everything measured.
    pub(super) fn write(self, measured: &[Measured], setup: &Setup, repeat: NonZeroU32) -> Result<(), BenchError> {
        let objects = objects(measured, setup, repeat);
        replace(&self.path, &objects).map_err(|why| BenchError::Write { path: self.path, why })
    }
}

#[derive(Debug, Serialize)]
struct Object<'a> {
    bench: &'a str,
    on: String,
    workers: NonZeroUsize,
    repeat: NonZeroU32,
    switches: BTreeMap<&'a str, &'a str>,
    unit: &'a str,
    median: f64,
    min: f64,
    max: f64,
    values: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
}

fn objects<'a>(measured: &'a [Measured], setup: &'a Setup, repeat: NonZeroU32) -> Vec<Object<'a>> {
    measured.iter().flat_map(|row| row_objects(row, setup, repeat)).collect()
}

fn row_objects<'a>(row: &'a Measured, setup: &'a Setup, repeat: NonZeroU32) -> Vec<Object<'a>> {
    let switches = || setup.switches.iter().map(|switch| (switch.name.as_str(), switch.value.as_str())).collect();
    let object = |on: &str, unit: &'a str, values: Vec<f64>, verdict| {
        let of = Summary::of(&values)?;
        let switches = if on == Tokio::NAME { BTreeMap::new() } else { switches() };
        let Summary { median, min, max } = of;
        let (bench, on, workers) = (row.row.name, on.to_owned(), setup.workers);
        Some(Object { bench, on, workers, repeat, switches, unit, median, min, max, values, verdict })
    };
    let mut objects: Vec<_> = row
        .series
        .iter()
        .filter_map(|series| object(series.target, row.row.unit, series.values.clone(), None))
        .collect();
    if let (Some(ours), Some(theirs)) = (row.on(OURS), row.on(Tokio::NAME)) {
        let pairs = Pair::zip(&ours.values, &theirs.values);
        let verdict = Some(Verdict::of(&pairs).words());
        let on = format!("{OURS}/{}", Tokio::NAME);
        objects.extend(ratios(&pairs).and_then(|ratios| object(&on, "ratio", ratios, verdict)));
    }
    objects
}

fn replace(path: &Path, objects: &[Object<'_>]) -> io::Result<()> {
    let draft = draft(path)?;
    let written = write_draft(&draft, objects).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&draft);
    }
    written
}

fn write_draft(draft: &Path, objects: &[Object<'_>]) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(objects)?;
    text.push('\n');
    let mut file = fs::File::create(draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Beside the file, since a rename is atomic only within a file system.
fn draft(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", process::id()));
    Ok(path.with_file_name(hidden))
}
