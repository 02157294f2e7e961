//! What whoever measures a run may ask from inside it: looks cost nothing and change nothing.
//!
//! Knows nothing of what is measured.

use crate::world;
use evenkeel_core::Time;

/// How far the simulation that runs on a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Here {
    /// The time that whoever acts has reached: ahead of the others by what it has spent since its turn began.
    pub at: Time,
    /// Nobody will act before this time any more.
    pub settled: Time,
}

/// Where the simulation that runs on this thread is. `None` if none does.
pub fn here() -> Option<Here> {
    world::with(|world| Here { at: world.acting_time(), settled: world.now() })
}
