//! The simulated machines that a command can name.
//!
//! Knows nothing of what a machine is made of.

use std::path::Path;

use crate::failure::Failure;
use evenkeel_sim::machine::{Machine, PRESETS};

/// Beside the presets, files in this folder of the current one can be named without path and extension.
const FOLDER: &str = "machines";

/// `host`, a preset, a file in [`FOLDER`], or the path of a file.
pub(crate) fn named(name: &str) -> Result<Machine, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::Input(format!("--machine {name}: {error}"));
    let is_path = name.contains(['/', '.']);
    if is_path || name == "host" || PRESETS.iter().any(|(preset, _)| *preset == name) {
        return Machine::named(name).map_err(|error| wrong(&error));
    }
    let file = Path::new(FOLDER).join(format!("{name}.toml"));
    if file.is_file() {
        return Machine::read(&file).map_err(|error| wrong(&error));
    }
    Err(wrong(&format!("no such machine, expected {}, or the path of a file", known().join(", "))))
}

/// All names that there are.
fn known() -> Vec<String> {
    let mut names = vec!["host".to_owned()];
    names.extend(PRESETS.iter().map(|(preset, _)| (*preset).to_owned()));
    let files = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut more: Vec<String> = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .filter(|name| !names.contains(name))
        .collect();
    more.sort_unstable();
    names.extend(more);
    names
}
