//! What the runtime promises, claim by claim, on threads.
//!
//! Tests order their steps by handshakes, never by the length of a wait: a time limit is only there so that a hang
//! becomes a failure.

mod long_polls;
mod support;
