//! The shape of a scenario file as serde sees it, before anything is checked.
//!
//! Knows nothing of what is allowed beyond names and types.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::expect::On;
use super::time::{Offset, Time};
use super::{Preempt, Role, Spacing};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) seconds: Option<Spanned<f64>>,
    pub(crate) warmup: Option<Spanned<f64>>,
    #[serde(default)]
    pub(crate) preempt: Preempt,
    #[serde(default)]
    pub(crate) groups: Vec<Group>,
    #[serde(default)]
    pub(crate) tasks: Vec<Spanned<Tasks>>,
    #[serde(default)]
    pub(crate) expect: BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, Spanned<Bound>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) name: Spanned<String>,
    pub(crate) weight: Option<Spanned<i64>>,
    pub(crate) role: Option<Role>,
    // Known to the format, not to this version: refused with the place.
    pub(crate) parent: Option<Spanned<toml::Value>>,
    pub(crate) cpus: Option<Spanned<toml::Value>>,
    pub(crate) quota: Option<Spanned<toml::Value>>,
    pub(crate) class: Option<Spanned<toml::Value>>,
    pub(crate) slice: Option<Spanned<toml::Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tasks {
    pub(crate) group: Spanned<String>,
    pub(crate) count: Option<Spanned<i64>>,
    pub(crate) arrival: Option<Arrival>,
    pub(crate) start: Option<Spanned<Offset>>,
    pub(crate) stop: Option<Spanned<Offset>>,
    pub(crate) program: Spanned<Vec<Spanned<Step>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Arrival {
    Once,
    Closed(Closed),
    Open(Open),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Closed {
    pub(crate) clients: Spanned<i64>,
    pub(crate) think: Option<Time>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Open {
    pub(crate) rate: Spanned<f64>,
    #[serde(default)]
    pub(crate) spacing: Spacing,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    Run(Time),
    Sleep(Time),
    Yield,
    Wait(Spanned<String>),
    Notify(Spanned<String>),
    Lock(Spanned<String>),
    Unlock(Spanned<String>),
    Spawn(Spawn),
    Repeat(Repeat),
    Exit,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spawn {
    pub(crate) group: Option<Spanned<String>>,
    pub(crate) count: Option<Spanned<i64>>,
    pub(crate) program: Spanned<Vec<Spanned<Step>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Repeat {
    pub(crate) times: Option<Spanned<i64>>,
    pub(crate) program: Spanned<Vec<Spanned<Step>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bound {
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) times: Option<On>,
}
