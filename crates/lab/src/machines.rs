//! The simulated machines that a command can name.
//!
//! Knows nothing of what a machine is made of.

use std::path::Path;

use crate::failure::Failure;
use evenkeel_sim::machine::{CPUS_MAX, Machine, Numbering, PRESETS, Shape, Topology};

/// Beside the presets, files in this folder of the current one can be named without path and extension.
const FOLDER: &str = "machines";

/// Machines of so many CPUs that share one cache have a name without having a file.
const FLAT: &str = "flat-";

/// What they cost.
const LIKE: &str = "flat-64";

/// `host`, a preset, `flat-` and a number of CPUs, a file in [`FOLDER`], or the path of a file.
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
    if let Some(cpus) = name.strip_prefix(FLAT) {
        return flat(name, cpus).map_err(|error| wrong(&error));
    }
    let known = known().join(", ");
    Err(wrong(&format!("no such machine, expected {known}, {FLAT}N for any N, or the path of a file")))
}

fn flat(name: &str, cpus: &str) -> Result<Machine, String> {
    let topology = cpus.parse().ok().and_then(|cores_per_cache| {
        let shape = Shape { sockets: 1, nodes_per_socket: 1, caches_per_node: 1, cores_per_cache, threads_per_core: 1 };
        Topology::regular(shape, Numbering::ThreadsLast)
    });
    let topology = topology.ok_or_else(|| format!("expected {FLAT}N with N from 1 to {CPUS_MAX}"))?;
    let like = Machine::named(LIKE).map_err(|error| error.to_string())?;
    Ok(Machine { name: name.to_owned(), topology, ..like })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_its_name_and_flat_machines_any_size() {
        for (name, _) in PRESETS {
            assert_eq!(named(name).unwrap().name, name);
        }
        assert_eq!(named("host").unwrap().name, "host");
        for cpus in [1, 8, CPUS_MAX] {
            let machine = named(&format!("flat-{cpus}")).unwrap();
            assert_eq!((machine.cpus(), machine.name), (cpus, format!("flat-{cpus}")));
        }
    }

    #[test]
    fn one_that_does_not_exist_is_told_with_all_that_do() {
        let error = named("xeon").unwrap_err().to_string();
        assert!(PRESETS.iter().all(|(name, _)| error.contains(name)) && error.contains("host"), "{error}");
        for name in ["flat-0", "flat-1025", "flat-x", "flat-"] {
            assert!(named(name).unwrap_err().to_string().contains("from 1 to 1024"), "{name}");
        }
        assert!(matches!(named("./missing.toml"), Err(Failure::Input(_))));
    }
}
