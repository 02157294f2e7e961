//! Reads faults from a text, and says what is wrong with one.
//!
//! Knows nothing of what the faults do.

use super::{Chance, Delays, FaultKind, Faults, Length, Spread, Stalls};
use evenkeel_core::Span;
use std::fmt;
use std::str::FromStr;

/// A text that names no faults: says which part is wrong, and what was expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultError(String);

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FaultError {}

/// Longer ones would be a machine that is off.
const LENGTH_MAX: Span = Span::from_millis(1_000);
/// Each stall is an event of its own, also where nothing else happens.
const RATE_MAX: u32 = 100_000;
/// What a CPU may stall of each second on average: with more, hardly anything would ever happen.
const STALLED_MAX: Span = Span::from_millis(500);

impl FromStr for Faults {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Faults, FaultError> {
        text.split(',').map(|part| fault(part.trim())).try_fold(Faults::NONE, |all, one| all.and(one?))
    }
}

pub(super) fn either<T>(kind: FaultKind, one: Option<T>, other: Option<T>) -> Result<Option<T>, FaultError> {
    match (one, other) {
        (Some(_), Some(_)) => Err(FaultError(format!("`{}` is there twice, expected one of each kind", kind.name()))),
        (one, other) => Ok(one.or(other)),
    }
}

/// One fault: `NAME=LENGTH@HOW_OFTEN`.
fn fault(text: &str) -> Result<Faults, FaultError> {
    let forms = "expected one of stall=LENGTH@RATE/s, holder=LENGTH@CHANCE%, kick=LENGTH@CHANCE%, tick=LENGTH@CHANCE%";
    let wrong = |what: &str| FaultError(format!("`{}`: {what}", shown(text)));
    let (name, rest) = text.split_once('=').ok_or_else(|| wrong(forms))?;
    let kind = FaultKind::ALL.into_iter().find(|kind| kind.name() == name.trim()).ok_or_else(|| wrong(forms))?;
    let (length, often) = rest.split_once('@').ok_or_else(|| wrong(forms))?;
    let length = self::length(length.trim()).map_err(|what| wrong(&what))?;
    let delays = || {
        let chance = chance(often.trim()).map_err(|what| wrong(&what))?;
        Ok(Some(Delays { length, chance }))
    };
    Ok(match kind {
        FaultKind::Stall => {
            let stalls = Stalls { length, rate: rate(often.trim()).map_err(|what| wrong(&what))? };
            Faults { stall: Some(checked(stalls).map_err(|what| wrong(&what))?), ..Faults::NONE }
        }
        FaultKind::HolderOff => Faults { holder: delays()?, ..Faults::NONE },
        FaultKind::LateKick => Faults { kick: delays()?, ..Faults::NONE },
        FaultKind::LateTick => Faults { tick: delays()?, ..Faults::NONE },
    })
}

/// What the user wrote, but not all of it if that is much.
fn shown(text: &str) -> String {
    text.chars().take(60).map(|char| if char.is_control() { ' ' } else { char }).collect()
}

fn length(text: &str) -> Result<Length, String> {
    let (spread, text) = match text.strip_prefix("exp:") {
        Some(mean) => (Spread::Exponential, mean),
        None => (Spread::Fixed, text),
    };
    let what = "the length is a whole number of ns, us, ms or s, such as 100us, or exp:100us for a mean";
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| what.to_owned())?;
    let mean = match unit.trim() {
        "ns" => Span::from_nanos(number),
        "us" => Span::from_micros(number),
        "ms" => Span::from_millis(number),
        "s" => Span::from_millis(number.saturating_mul(1_000)),
        _ => return Err(what.to_owned()),
    };
    if mean == Span::ZERO || mean > LENGTH_MAX {
        return Err(format!("the length is 1ns to {LENGTH_MAX:?}"));
    }
    Ok(Length { mean, spread })
}

fn rate(text: &str) -> Result<u32, String> {
    let rate = text.strip_suffix("/s").and_then(|number| number.trim().parse().ok());
    let rate = rate.filter(|rate| (1..=RATE_MAX).contains(rate));
    rate.ok_or_else(|| format!("how often is a whole number per second and CPU from 1/s to {RATE_MAX}/s"))
}

fn checked(stalls: Stalls) -> Result<Stalls, String> {
    let stalled = stalls.length.mean.times(u64::from(stalls.rate));
    if stalled > STALLED_MAX {
        return Err(format!("that is {stalled:?} of each second of a CPU, expected at most {STALLED_MAX:?}"));
    }
    Ok(stalls)
}

/// A percentage with up to four decimals.
fn chance(text: &str) -> Result<Chance, String> {
    let what = || "how often is a percentage above 0% and up to 100%, with at most four decimals".to_owned();
    let number = text.strip_suffix('%').ok_or_else(what)?.trim();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(decimals) || decimals.len() > 4 {
        return Err(what());
    }
    let millionths = format!("{whole}{decimals:0<4}").parse().ok();
    let chance = millionths.filter(|millionths| (1..=Chance::CERTAIN.0).contains(millionths));
    chance.map(Chance).ok_or_else(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error_of(text: &str) -> String {
        text.parse::<Faults>().unwrap_err().to_string()
    }

    #[test]
    fn faults_are_read_as_they_are_written() {
        let faults: Faults = "stall=100us@50/s, kick=exp:20us@5%,tick=2ms@0.25%,holder=1500ns@100%".parse().unwrap();
        let delays = |nanos, spread, chance| {
            Some(Delays { length: Length { mean: Span::from_nanos(nanos), spread }, chance: Chance(chance) })
        };
        assert_eq!(faults.kick, delays(20_000, Spread::Exponential, 50_000));
        assert_eq!(faults.tick, delays(2_000_000, Spread::Fixed, 2_500));
        assert_eq!(faults.holder, delays(1_500, Spread::Fixed, 1_000_000));
        let stall = faults.stall.unwrap();
        assert_eq!((stall.length.mean.as_nanos(), stall.rate), (100_000, 50));
        assert_eq!(faults.to_string(), "stall=100us@50/s,holder=1500ns@100%,kick=exp:20us@5%,tick=2ms@0.25%");
        assert_eq!(Faults::NONE.to_string(), "");
    }

    #[test]
    fn errors_name_the_part_and_what_was_expected() {
        let cases = [
            ("", "``: expected one of stall="),
            ("stall", "`stall`: expected one of stall="),
            ("stal=1us@1/s", "`stal=1us@1/s`: expected one of"),
            ("stall=1us", "`stall=1us`: expected one of"),
            ("kick=5us@1%,", "``: expected one of"),
            ("kick=5us@1%,tick=us@1%", "`tick=us@1%`: the length is a whole number of ns"),
            ("kick=5@1%", "the length is a whole number of ns, us, ms or s"),
            ("kick=1.5us@1%", "the length is a whole number"),
            ("kick=-5us@1%", "the length is a whole number"),
            ("kick=0us@1%", "the length is 1ns to 1s"),
            ("kick=99999999999999999999s@1%", "the length is a whole number"),
            ("kick=18446744073709551615s@1%", "the length is 1ns to 1s"),
            ("kick=5us@0%", "a percentage above 0% and up to 100%"),
            ("kick=5us@100.0001%", "a percentage above 0% and up to 100%"),
            ("kick=5us@NaN%", "a percentage above 0%"),
            ("kick=5us@.5%", "a percentage above 0%"),
            ("kick=5us@0.00001%", "at most four decimals"),
            ("kick=5us@50/s", "a percentage above 0%"),
            ("stall=5us@5%", "a whole number per second and CPU from 1/s to 100000/s"),
            ("stall=5us@0/s", "from 1/s"),
            ("stall=1ms@501/s", "that is 501ms of each second of a CPU, expected at most 500ms"),
            ("kick=5us@1%,kick=5us@1%", "`kick` is there twice"),
        ];
        for (text, expected) in cases {
            let error = error_of(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_faults_or_an_error(text in "(stall|kick|[a-z=@,:%/.0-9]|\\PC){0,40}") {
            match text.parse::<Faults>() {
                Ok(faults) => prop_assert_eq!(faults.to_string().parse::<Faults>().unwrap(), faults),
                Err(error) => prop_assert!(error.to_string().contains("expected") || error.to_string().contains(" is ")),
            }
        }

        #[test]
        fn what_is_printed_reads_back(nanos in 1_u64..=1_000_000_000, chance in 1_u32..=1_000_000, rate in 1_u32..=500, is_exponential: bool) {
            let spread = if is_exponential { Spread::Exponential } else { Spread::Fixed };
            let length = Length { mean: Span::from_nanos(nanos), spread };
            let stall = Stalls { length: Length { mean: Span::from_nanos(nanos / 1_000 + 1), spread }, rate: rate / 2 + 1 };
            let delays = Some(Delays { length, chance: Chance(chance) });
            let faults = Faults { stall: Some(stall), holder: delays, kick: delays, tick: delays };
            prop_assert_eq!(faults.to_string().parse::<Faults>().unwrap(), faults);
        }
    }
}
