//! What the runtime promises, claim by claim, on threads.
//!
//! Tests order their steps by handshakes, never by the length of a wait: a time limit is only there so that a hang
//! becomes a failure.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]
#![expect(clippy::async_yields_async, reason = "tasks hand over handles and sleeps as they are")]

mod blocking;
mod building;
mod cooperation;
mod elsewhere;
mod ends;
mod figures;
mod groups;
mod limits;
mod long_polls;
mod masks;
mod oddities;
mod panics;
mod shutdown;
mod stress;
mod support;
mod thread_locals;
mod timers;
