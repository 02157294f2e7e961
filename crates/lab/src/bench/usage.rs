//! What the kernel says this process has used.
//!
//! Knows nothing of runtimes: it counts every thread of the process, the measuring one too.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use super::error::BenchError;

/// CPU time and context switches, of the whole process since it began or between two readings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) cpu: Duration,
    pub(super) switches: u64,
}

impl Usage {
    /// Reads what the process has used so far.
    pub(super) fn now() -> Result<Self, BenchError> {
        let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(|errno| BenchError::Usage(errno.into()))?;
        let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        Ok(Self {
            cpu: duration(usage.user_time()) + duration(usage.system_time()),
            switches: u64::try_from(switches).unwrap_or(0),
        })
    }

    /// Used between `earlier` and now.
    pub(super) fn since(earlier: Self) -> Result<Self, BenchError> {
        let now = Self::now()?;
        Ok(Self { cpu: now.cpu.saturating_sub(earlier.cpu), switches: now.switches.saturating_sub(earlier.switches) })
    }
}

/// The kernel never reports a negative time; if it did, it would count as none.
fn duration(time: TimeVal) -> Duration {
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec()).unwrap_or(0));
    seconds + Duration::from_micros(u64::try_from(time.tv_usec()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_shows_up_as_cpu_time() {
        let before = Usage::now().unwrap();
        let mut sum = 0_u64;
        // Ends as soon as the kernel has charged a millisecond, however long the machine takes to give it.
        while Usage::since(before).unwrap().cpu < Duration::from_millis(1) {
            sum = (0..10_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(Usage::since(before).unwrap().cpu >= Duration::from_millis(1));
    }

    #[test]
    fn sleeping_shows_up_as_a_context_switch() {
        let before = Usage::now().unwrap();
        std::thread::sleep(Duration::from_millis(1));
        assert!(Usage::since(before).unwrap().switches >= 1);
    }
}
