//! The machine files that come with the program.
//!
//! Knows nothing of what is in them.

pub(super) const FLAT_4: &str = include_str!("../../../../machines/flat-4.toml");

/// Name and text of every preset.
pub const PRESETS: [(&str, &str); 9] = [
    ("flat-4", FLAT_4),
    ("flat-16", include_str!("../../../../machines/flat-16.toml")),
    ("flat-64", include_str!("../../../../machines/flat-64.toml")),
    ("flat-256", include_str!("../../../../machines/flat-256.toml")),
    ("xeon-e5-2650v4-2s", include_str!("../../../../machines/xeon-e5-2650v4-2s.toml")),
    ("xeon-80t-2s", include_str!("../../../../machines/xeon-80t-2s.toml")),
    ("spr-224", include_str!("../../../../machines/spr-224.toml")),
    ("epyc-rome-256", include_str!("../../../../machines/epyc-rome-256.toml")),
    ("big-1024", include_str!("../../../../machines/big-1024.toml")),
];
