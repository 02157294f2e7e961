//! The shape of a machine file as serde sees it, before anything is checked.
//!
//! Knows nothing of what is allowed beyond names and types.

use super::{LockKind, Numbering};
use serde::Deserialize;
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machine {
    pub(super) topology: Topology,
    pub(super) transfer_ns: Transfer,
    pub(super) cost_ns: Costs,
    pub(super) lock: Lock,
    pub(super) idle: Idle,
    pub(super) tick: Option<Tick>,
    pub(super) work: Option<Work>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Topology {
    pub(super) sockets: Spanned<i64>,
    pub(super) nodes_per_socket: Spanned<i64>,
    pub(super) caches_per_node: Spanned<i64>,
    pub(super) cores_per_cache: Spanned<i64>,
    pub(super) threads_per_core: Spanned<i64>,
    pub(super) numbering: Numbering,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Transfer {
    pub(super) sibling: Spanned<i64>,
    pub(super) cache: Spanned<i64>,
    pub(super) node: Spanned<i64>,
    pub(super) socket: Spanned<i64>,
    pub(super) machine: Spanned<i64>,
    pub(super) reads_overlap: Spanned<i64>,
    pub(super) shared_read: Spanned<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Costs {
    pub(super) hit: Spanned<i64>,
    pub(super) atomic: Spanned<i64>,
    pub(super) clock_read: Spanned<i64>,
    pub(super) queue_operation: Spanned<i64>,
    pub(super) switch: Spanned<i64>,
    pub(super) kick: Spanned<i64>,
    pub(super) kick_delivery: Spanned<i64>,
    pub(super) park: Spanned<i64>,
    pub(super) timer_set: Spanned<i64>,
    pub(super) timer_fire: Spanned<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lock {
    pub(super) kind: LockKind,
    pub(super) uncontended_ns: Spanned<i64>,
    pub(super) handover_ns: Spanned<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Idle {
    pub(super) exit_ns: Spanned<i64>,
    pub(super) deep_after_us: Option<Spanned<i64>>,
    pub(super) deep_exit_ns: Option<Spanned<i64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tick {
    pub(super) period_us: Spanned<i64>,
    pub(super) handler_ns: Spanned<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Work {
    pub(super) beside_busy_sibling_percent: Option<Spanned<i64>>,
    pub(super) got_permille: Option<Spanned<i64>>,
}
