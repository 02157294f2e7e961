//! The files of `--trace` and `--timeline`: those of the first run on the simulated machine.
//!
//! Knows nothing of what is in a record.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use super::options::{Determinism, RunArgs};
use crate::failure::Failure;
use crate::os;
use crate::report::OutputFile;
use crate::scenario::On;
use crate::target::SimSeen;
use evenkeel_trace::{Source, Trace, perfetto, timeline};

/// So many events are kept for a trace: with 32 bytes each, a quarter of a gigabyte.
pub(super) const RECORDS_MAX: usize = 1 << 23;

/// The files that were asked for.
#[derive(Debug)]
pub(super) struct Traces {
    trace: Option<OutputFile>,
    timeline: Option<OutputFile>,
}

impl Traces {
    /// Makes sure that the files can be written. `None` if none was asked for.
    pub(super) fn open(args: &RunArgs, determinism: Determinism) -> Result<Option<Traces>, Failure> {
        let asked = [("--trace", &args.trace), ("--timeline", &args.timeline)];
        let Some((option, path)) = asked.iter().find_map(|(option, path)| Some((option, path.as_deref()?))) else {
            return Ok(None);
        };
        let bad = |what: &str| Failure::Input(format!("{option} {}: {what}", path.display()));
        if !args.on.contains(&On::Sim) {
            return Err(bad("only simulated runs have traces, expected `sim` among the targets of --on"));
        }
        if determinism == Determinism::Checked {
            return Err(bad("not with --check-determinism, which keeps no events, expected one of the two"));
        }
        let file =
            |option, path: &Option<_>| path.as_deref().map(|path: &Path| OutputFile::open(option, path)).transpose();
        let traces = Traces { trace: file("--trace", &args.trace)?, timeline: file("--timeline", &args.timeline)? };
        traces.check_apart(args.json.as_deref())?;
        Ok(Some(traces))
    }

    /// One file can't be two.
    fn check_apart(&self, json: Option<&Path>) -> Result<(), Failure> {
        let json = json.map(os::replaceable).transpose().ok().flatten();
        let paths =
            [self.trace.as_ref().map(OutputFile::path), self.timeline.as_ref().map(OutputFile::path), json.as_deref()];
        // One that can't be made absolute is compared as it is.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let paths: Vec<_> = paths.into_iter().flatten().map(absolute).collect();
        for (index, path) in paths.iter().enumerate() {
            if paths[..index].contains(path) {
                let message = format!("{}: two results can't be in one file, expected different names", path.display());
                return Err(Failure::Input(message));
            }
        }
        Ok(())
    }

    /// Writes the files of a run.
    pub(super) fn write(&self, title: &str, seen: &SimSeen) -> Result<(), Failure> {
        let groups: Vec<_> =
            seen.group_names.iter().map(|(id, name)| (evenkeel_core::GroupId::new(*id), name.clone())).collect();
        let trace = Trace::new(&Source {
            title,
            records: &seen.records,
            left_out: seen.left_out,
            machine: &seen.machine,
            groups: &groups,
            begin: seen.before.at(),
            end: seen.after.at(),
        });
        if seen.left_out > 0 {
            os::complain(format_args!(
                "evenkeel: a trace holds {RECORDS_MAX} events: the {} later ones of the measurement are not in it; \
                 expected a shorter one with --seconds",
                seen.left_out,
            ));
        }
        put(self.trace.as_ref(), |out| perfetto::write(&trace, out))?;
        put(self.timeline.as_ref(), |out| timeline::write(&trace, out))
    }
}

fn put(file: Option<&OutputFile>, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    let failed = |error| Failure::Internal(format!("can't write {}: {error}", file.path().display()));
    file.write(write).map_err(failed)
}
