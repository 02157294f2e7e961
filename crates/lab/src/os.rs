//! What the lab asks of the operating system: priorities, CPU time, which files may be replaced, and the standard error.
//!
//! Knows nothing of runs.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Just above ordinary threads: the arrivals need to be on time, not to beat the kernel's own.
const REAL_TIME_PRIORITY: u8 = 1;

/// How a thread of the lab itself is scheduled by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Urgency {
    /// SCHED_FIFO: runs as soon as its timer fires.
    RealTime,
    /// Not allowed to be more than an ordinary thread; its timers have no slack at least.
    Ordinary,
    /// No thread: a device outside a simulated machine.
    Virtual,
}

/// Gives the calling thread real-time priority where that is allowed.
pub(crate) fn become_urgent() -> Urgency {
    // A thread that isn't real-time may be woken up to 50 us late on purpose, to save power.
    let _unsupported = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let priority = ThreadPriorityValue::try_from(REAL_TIME_PRIORITY).map(ThreadPriority::Crossplatform);
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    match priority {
        Ok(priority) if set_thread_priority_and_policy(thread_native_id(), priority, policy).is_ok() => {
            Urgency::RealTime
        }
        _ => Urgency::Ordinary,
    }
}

/// Lowers the calling thread to nice 19, the lowest.
pub(crate) fn become_nice() -> Result<(), std::io::Error> {
    // On Linux the call with no process id is about the calling thread alone.
    rustix::process::setpriority_process(None, 19).map_err(std::io::Error::from)
}

/// CPU time that this process has had, user and system together.
pub(crate) fn cpu_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    duration(usage.user_time()) + duration(usage.system_time())
}

fn duration(time: TimeVal) -> Duration {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec()).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Shows it on the standard error, if somebody looks: nothing is worth failing for.
pub(crate) fn show(what: fmt::Arguments<'_>) {
    let mut out = io::stderr();
    let _nobody_looks = out.write_fmt(what).and_then(|()| out.flush());
}

/// Says it on the standard error, a line, if that can be written: who has closed it has still an exit code.
pub(crate) fn complain(what: fmt::Arguments<'_>) {
    show(format_args!("{what}\n"));
}

/// Where a file has to be put for `path` to be replaced by it: behind the links, if there are any. An error if something
/// is there that is no ordinary file: a new name in place of a device or a pipe would destroy it.
pub(crate) fn replaceable(path: &Path) -> io::Result<PathBuf> {
    let found = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.to_owned()),
        found => found?,
    };
    // A link to nothing is an error too.
    let real = if found.is_symlink() { path.canonicalize()? } else { path.to_owned() };
    let kind = real.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is a device or a pipe, expected a file"));
    }
    Ok(real)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_are_replaced_and_links_are_followed() {
        let folder = std::env::temp_dir().join(format!("evenkeel-os-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let folder = folder.canonicalize().unwrap();
        let (file, link, dangling) = (folder.join("file"), folder.join("link"), folder.join("dangling"));
        assert_eq!(replaceable(&file).unwrap(), file);
        std::fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        symlink(folder.join("nothing"), &dangling).unwrap();
        assert_eq!(replaceable(&file).unwrap(), file);
        assert_eq!(replaceable(&link).unwrap(), file);
        let (device, socket) = (folder.join("null"), folder.join("socket"));
        symlink("/dev/null", &device).unwrap();
        let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [&dangling, &device, &socket, &folder] {
            assert!(replaceable(path).is_err(), "{}", path.display());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
