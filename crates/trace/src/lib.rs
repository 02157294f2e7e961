//! Files that show what a simulated machine did: a trace for Perfetto, and a page for a browser.
//!
//! From the record of a run ([`Source`]) a [`Trace`] is made, and from that either file. Both are functions of the record:
//! the same run gives the same bytes.
//!
//! Knows nothing of scenarios, of command lines, or of how a run comes about.
//!
//! # Where to start
//! - [`model`]: what a trace holds, and how it is read off the record.
//! - [`perfetto`]: the trace in Perfetto's format.
//! - [`timeline`]: the trace as a page of HTML.

#![forbid(unsafe_code)]

pub mod model;
pub mod perfetto;
pub mod timeline;

pub use model::{Source, Trace};
