//! The switches of the scheduler: what each is called, its values, and where it comes from.
//!
//! Pure data. Which value is in force is kept by the engine.
//!
//! Knows nothing of what a switch changes, nor of when it is read.

use core::fmt;

/// How a CPU that pulls goes about the lock of its victim's run queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Claim {
    /// Waits for the lock, as Linux `load_balance()` does.
    Block,
    /// Tries the lock and goes on without it: FreeBSD ULE's `tdq_trysteal` (source document 002).
    #[default]
    TryVictim,
}

/// Whether a CPU looks, at the end of a slice, for groups that are behind on other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LookAround {
    /// It does. The lag bounds hold only so.
    #[default]
    On,
    /// It does not: only for experiments.
    Off,
}

/// A switch by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    /// `claim`: see [`Claim`].
    Claim(Claim),
    /// `look_around`: see [`LookAround`].
    LookAround(LookAround),
}

/// Every switch with its legal values, the default first.
pub const ALL: &[(&str, &[&str])] = &[("claim", &["try-victim", "block"]), ("look_around", &["on", "off"])];

impl Switch {
    /// The switch called `name` set to `value`.
    ///
    /// # Errors
    /// If there is no such switch, or it has no such value; the error lists what there is.
    pub fn parse(name: &str, value: &str) -> Result<Switch, SwitchError> {
        match (name, value) {
            ("claim", "block") => Ok(Switch::Claim(Claim::Block)),
            ("claim", "try-victim") => Ok(Switch::Claim(Claim::TryVictim)),
            ("look_around", "on") => Ok(Switch::LookAround(LookAround::On)),
            ("look_around", "off") => Ok(Switch::LookAround(LookAround::Off)),
            _ => Err(match ALL.iter().find(|(known, _)| *known == name) {
                Some((name, values)) => SwitchError::NoSuchValue { name, values },
                None => SwitchError::NoSuchSwitch,
            }),
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Switch::Claim(_) => "claim",
            Switch::LookAround(_) => "look_around",
        }
    }

    /// The name of its value.
    pub const fn value(self) -> &'static str {
        match self {
            Switch::Claim(Claim::Block) => "block",
            Switch::Claim(Claim::TryVictim) => "try-victim",
            Switch::LookAround(LookAround::On) => "on",
            Switch::LookAround(LookAround::Off) => "off",
        }
    }
}

/// Why a switch could not be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwitchError {
    /// No switch has this name.
    NoSuchSwitch,
    /// The switch has no such value.
    NoSuchValue {
        /// The switch.
        name: &'static str,
        /// The values that it has.
        values: &'static [&'static str],
    },
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwitchError::NoSuchSwitch => {
                f.write_str("no such switch: expected one of")?;
                ALL.iter().try_for_each(|(name, _)| write!(f, " `{name}`"))
            }
            SwitchError::NoSuchValue { name, values } => {
                write!(f, "switch `{name}` has no such value: expected one of")?;
                values.iter().try_for_each(|value| write!(f, " `{value}`"))
            }
        }
    }
}

impl core::error::Error for SwitchError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_listed_value_parses_to_itself() {
        for (name, values) in ALL {
            for value in *values {
                let switch = Switch::parse(name, value).unwrap();
                assert_eq!((switch.name(), switch.value()), (*name, *value));
            }
        }
    }

    #[test]
    fn errors_list_what_there_is() {
        assert!(Switch::parse("clam", "block").unwrap_err().to_string().contains("`claim`"));
        assert!(Switch::parse("claim", "maybe").unwrap_err().to_string().contains("`try-victim`"));
    }
}
