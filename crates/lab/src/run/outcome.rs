//! What one run came to, in the shape of the JSON report.
//!
//! Knows nothing of how it was measured or how it is shown.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::os::Urgency;
use crate::target::Times;

/// One run of a scenario on one target.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) scenario: String,
    pub(crate) on: &'static str,
    pub(crate) machine: String,
    pub(crate) workers: usize,
    /// Measured time.
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    /// Which repetition, from 1 on.
    pub(crate) repeat: u32,
    /// The calibration that work is counted with: multiply to compare the work of different processes.
    pub(crate) iterations_per_us: Option<u64>,
    #[serde(serialize_with = "as_map")]
    pub(crate) switches: Vec<(String, String)>,
    #[serde(serialize_with = "as_map")]
    pub(crate) groups: Vec<(String, GroupOutcome)>,
    pub(crate) all: AllOutcome,
    pub(crate) cpu: CpuOutcome,
    /// What only a simulated machine has.
    pub(crate) sim: Option<SimOutcome>,
    /// 99th percentile of how late open arrivals were spawned.
    pub(crate) generator_late_us: Option<f64>,
    pub(crate) generator_late_max_us: Option<f64>,
    /// How the arrivals' thread was scheduled.
    pub(crate) generator: Urgency,
    /// Arrivals that were not spawned because too many tasks were there.
    pub(crate) refused: u64,
    pub(crate) notes: Vec<String>,
    pub(crate) windows: Vec<WindowOutcome>,
}

/// How one group fared.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct GroupOutcome {
    pub(crate) weight: u32,
    pub(crate) done: u64,
    /// Requests still unanswered at the end; they count in `response_us` with their age.
    pub(crate) unfinished: u64,
    pub(crate) work_s: f64,
    /// CPU time that the runtime charged it with.
    pub(crate) charged_s: Option<f64>,
    /// Work per CPU time that the process got.
    pub(crate) work_of_got: Option<f64>,
    pub(crate) share: Option<f64>,
    pub(crate) ideal_share: Option<f64>,
    pub(crate) lag_ms: f64,
    pub(crate) lag_of_bound: Option<f64>,
    pub(crate) share_error: Option<f64>,
    pub(crate) response_us: Times,
    pub(crate) wait_us: Option<Times>,
}

/// Figures about all groups.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AllOutcome {
    pub(crate) work_s: f64,
    pub(crate) jain: Option<f64>,
    /// The largest of the groups'.
    pub(crate) lag_of_bound: Option<f64>,
}

/// Figures about the CPUs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CpuOutcome {
    pub(crate) got_s: f64,
    /// Of what all workers could have got.
    pub(crate) used_pct: f64,
    pub(crate) wakes: Option<u64>,
    pub(crate) empty_wakes: Option<u64>,
    pub(crate) steals: Option<u64>,
    pub(crate) contended: Option<u64>,
    pub(crate) failed_tries: Option<u64>,
    pub(crate) idle_while_waiting_ms: Option<f64>,
}

/// What a run on a simulated machine came to: equal for two runs of the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SimOutcome {
    /// How many events there were until the end of the measurement.
    pub(crate) events: u64,
    /// Of all of them, in hexadecimal digits.
    pub(crate) hash: String,
    /// Accesses, locks, looks at the clock, switches, kicks and parks.
    pub(crate) cost_points: u64,
}

/// About a tenth of a second.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct WindowOutcome {
    /// Since the start of the measurement.
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    #[serde(serialize_with = "as_map")]
    pub(crate) groups: Vec<(String, WindowGroup)>,
}

/// One group in one window.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct WindowGroup {
    pub(crate) work_s: f64,
    pub(crate) ideal_s: f64,
}

/// Keeps the order of a scenario, which a map would lose.
fn as_map<S: Serializer, V: Serialize>(entries: &[(String, V)], to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(entries.len()))?;
    for (key, value) in entries {
        map.serialize_entry(key, value)?;
    }
    map.end()
}
