//! Times as a scenario writes them: `"50us"`, and distributions of such.
//!
//! Knows nothing of clocks; drawing from a distribution takes the generator as an argument.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

/// No single time of a scenario may exceed this; longer ones are surely a slip.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// Exponential times are cut at this multiple of their mean, so that every poll has a longest
/// length. One draw in 22,000 is cut.
const EXPONENTIAL_CUT: u32 = 10;

/// What a written time looks like, for error messages.
const FORM: &str = "a time such as \"50us\" (whole number and ns, us, ms or s)";

/// A fixed or distributed time, above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    Fixed(Duration),
    /// Uniform between the two, both included.
    Uniform {
        low: Duration,
        high: Duration,
    },
    /// Exponential, cut at ten times the mean.
    Exponential {
        mean: Duration,
    },
}

impl Time {
    /// One time drawn from the distribution; a fixed one draws nothing.
    pub(crate) fn draw(&self, rng: &mut fastrand::Rng) -> Duration {
        match *self {
            Time::Fixed(time) => time,
            Time::Uniform { low, high } => Duration::from_nanos(rng.u64(nanos(low)..=nanos(high))),
            Time::Exponential { mean } => {
                let factor = -(1.0 - rng.f64()).ln();
                mean.mul_f64(factor.min(f64::from(EXPONENTIAL_CUT))).max(Duration::from_nanos(1))
            }
        }
    }

    /// No draw is shorter than this.
    pub(crate) fn shortest(&self) -> Duration {
        match *self {
            Time::Fixed(time) => time,
            Time::Uniform { low, .. } => low,
            Time::Exponential { .. } => Duration::from_nanos(1),
        }
    }

    /// What draws are on average, but for the cut of exponential ones.
    pub(crate) fn mean(&self) -> Duration {
        match *self {
            Time::Fixed(time) => time,
            Time::Uniform { low, high } => low + (high - low) / 2,
            Time::Exponential { mean } => mean,
        }
    }

    /// No draw is longer than this.
    pub(crate) fn longest(&self) -> Duration {
        match *self {
            Time::Fixed(time) => time,
            Time::Uniform { high, .. } => high,
            Time::Exponential { mean } => mean * EXPONENTIAL_CUT,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A point in time or length above or equal to zero, written like `"2s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset(pub(crate) Duration);

/// Reads `"50us"`.
fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("`{text}` is not a time, expected {FORM}")),
    };
    if number.is_empty() {
        return Err(format!("`{text}` is not a time, expected {FORM}"));
    }
    let time = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)).map(Duration::from_nanos);
    time.filter(|&time| time <= TIME_MAX).ok_or_else(|| format!("`{text}` is too long, expected at most 3600s"))
}

fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err(format!("`{text}` is no time at all, expected at least 1ns")),
        time => Ok(time),
    }
}

impl<'de> Deserialize<'de> for Offset {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Offset, D::Error> {
        struct Seen;
        impl Visitor<'_> for Seen {
            type Value = Offset;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(FORM)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Offset, E> {
                parse(text).map(Offset).map_err(E::custom)
            }
        }
        from.deserialize_str(Seen)
    }
}

/// A bare positive time inside a distribution.
struct Positive(Duration);

impl<'de> Deserialize<'de> for Positive {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Positive, D::Error> {
        let Offset(time) = Offset::deserialize(from)?;
        if time.is_zero() {
            return Err(de::Error::custom("no time at all, expected at least 1ns"));
        }
        Ok(Positive(time))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        from.deserialize_any(TimeVisitor)
    }
}

struct TimeVisitor;

impl<'de> Visitor<'de> for TimeVisitor {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORM}, or {{ uniform = [low, high] }}, or {{ exponential = mean }}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
        parse_positive(text).map(Time::Fixed).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Time, A::Error> {
        const KINDS: &[&str] = &["uniform", "exponential"];
        let kind: Option<String> = map.next_key()?;
        let time = match kind.as_deref() {
            Some("uniform") => {
                let (Positive(low), Positive(high)) = map.next_value()?;
                if low > high {
                    return Err(de::Error::custom("uniform from a longer to a shorter time, expected [low, high]"));
                }
                Time::Uniform { low, high }
            }
            Some("exponential") => {
                let Positive(mean) = map.next_value()?;
                if mean > TIME_MAX / EXPONENTIAL_CUT {
                    return Err(de::Error::custom("mean too long, expected at most 360s"));
                }
                Time::Exponential { mean }
            }
            Some(other) => return Err(de::Error::unknown_field(other, KINDS)),
            None => return Err(de::Error::custom("an empty table, expected `uniform` or `exponential`")),
        };
        match map.next_key::<String>()? {
            None => Ok(time),
            Some(_) => Err(de::Error::custom("more than one distribution, expected `uniform` or `exponential`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_times_have_their_units() {
        assert_eq!(parse("7ns"), Ok(Duration::from_nanos(7)));
        assert_eq!(parse("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse("3ms"), Ok(Duration::from_millis(3)));
        assert_eq!(parse("3600s"), Ok(Duration::from_secs(3600)));
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for text in ["", "us", "50", "50 us", "-1us", "1.5ms", "1m", "3601s", "99999999999999999999s", "NaN", "١us"] {
            assert!(parse(text).is_err(), "{text:?} was taken for a time");
        }
        assert!(parse_positive("0us").is_err());
    }

    #[test]
    fn draws_stay_within_the_longest_and_repeat_with_the_seed() {
        let micros = Duration::from_micros;
        let kinds = [
            Time::Fixed(micros(50)),
            Time::Uniform { low: micros(10), high: micros(20) },
            Time::Exponential { mean: micros(50) },
        ];
        for time in kinds {
            let draw = |seed| {
                let mut rng = fastrand::Rng::with_seed(seed);
                (0..10_000).map(|_| time.draw(&mut rng)).collect::<Vec<_>>()
            };
            assert_eq!(draw(3), draw(3));
            assert!(draw(3).iter().all(|&drawn| drawn <= time.longest() && !drawn.is_zero()));
        }
    }

    #[test]
    fn exponential_times_have_their_mean() {
        let time = Time::Exponential { mean: Duration::from_micros(100) };
        let mut rng = fastrand::Rng::with_seed(1);
        let sum: Duration = (0..100_000).map(|_| time.draw(&mut rng)).sum();
        let mean = sum.as_secs_f64() * 1e6 / 1e5;
        assert!((mean - 100.0).abs() < 2.0, "mean of the draws is {mean} us");
    }
}
