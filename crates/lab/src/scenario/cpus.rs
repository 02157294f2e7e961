//! Sets of CPUs as a scenario writes them: `"0-3,8"`, or a list of numbers.
//!
//! Knows nothing of how many CPUs a target has.

use std::fmt;

use evenkeel::{CpuId, CpuMask};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

/// What a written set looks like, for error messages.
const FORM: &str = "CPUs such as \"0-3,8\" or [0, 1]";

/// CPUs beyond this are surely a slip.
const CPU_MAX: u32 = 8_191;

/// A set of at least one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) CpuMask);

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CpusVisitor)
    }
}

struct CpusVisitor;

impl<'de> Visitor<'de> for CpusVisitor {
    type Value = Cpus;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORM)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Cpus, E> {
        let mask: CpuMask = text.parse().map_err(|error| E::custom(format!("`{text}`: {error}")))?;
        checked(mask)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cpus, A::Error> {
        let mut cpus = Vec::new();
        while let Some(cpu) = list.next_element::<u32>()? {
            cpus.push(CpuId::new(cpu));
        }
        checked(cpus.into_iter().collect())
    }
}

fn checked<E: de::Error>(mask: CpuMask) -> Result<Cpus, E> {
    match mask.last() {
        None => Err(E::custom(format!("no CPU, expected {FORM}"))),
        Some(last) if last.get() > CPU_MAX => Err(E::custom(format!("CPU {last}, expected numbers up to {CPU_MAX}"))),
        Some(_) => Ok(Cpus(mask)),
    }
}
