//! Placeholder.

pub mod affinity;
pub mod available;
#[cfg_attr(not(test), expect(dead_code, reason = "used by the threads host"))]
mod clock;
#[cfg(test)]
mod fixture;
pub mod work;
