//! What the lab asks of the operating system: priorities and CPU time.
//!
//! Knows nothing of runs.

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
