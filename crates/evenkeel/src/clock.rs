//! The time of day as the threads host sees it: nanoseconds since a start, cheap enough to be read at every poll.
//!
//! Reads the processor's counter where it can be trusted, and `Instant` elsewhere. `docs/decisions/0002-clock.md` has
//! the figures behind this. Knows nothing of tasks, CPUs of the engine, or timers.
//!
//! # Invariants
//! - K1: one thread never sees any clock go backwards, whatever the counter does.
//! - K2: two clocks of one process differ by a constant: all of them run on one time base.
//! - K3: once the counter has been found wrong, nothing reads it again.

use std::cell::Cell;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Nanoseconds since the start of this clock.
///
/// All clocks of a process share one time base, so the first one pays for the start (a calibration of the counter
/// against the operating system's clock) and the others cost one read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MonotonicClock {
    base: &'static TimeBase,
    /// The time base's reading at the start of this clock.
    origin: u64,
}

impl MonotonicClock {
    /// Starts a clock at zero.
    pub(crate) fn start() -> Self {
        let base = TimeBase::of_process();
        Self { base, origin: base.now() }
    }

    /// Nanoseconds since the start; on one thread never less than it has seen before.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        // A thread that has never looked may read a little less than the thread that started the clock.
        self.base.now().saturating_sub(self.origin)
    }
}

thread_local! {
    /// The largest reading that this thread has been given. It has no destructor, so that it can also be used by the
    /// destructors of other thread-locals.
    static LAST_SEEN: Cell<u64> = const { Cell::new(0) };
}

static TIME_BASE: OnceLock<TimeBase> = OnceLock::new();

/// The counter's rate is compared with the operating system's clock once, this long after the start. Long enough that
/// the cost of the comparison itself (some 100 ns) makes less than one part in a million.
const RATE_CHECK_AFTER: u64 = 1_000_000_000;

/// A counter that differs by more than this from the operating system's clock isn't a clock. Guess: ten times the
/// largest error of the calibration that was seen (decision 0002), and far above the rate at which time daemons slew.
const RATE_ERROR_MAX: Ratio = Ratio::from_parts_per_million(1_500);

/// The counters of different sockets may differ by a little; a reading that is this far behind what the same thread
/// has seen means that the counter was set back (a suspended machine, a moved guest). Guess.
const STEP_BACK_MAX: u64 = 10_000_000;

/// Pairs of readings are taken this many times, and the tightest pair is used: being preempted between the two
/// readings of all the pairs is out of the question.
const PAIRS: u32 = 16;

/// What all clocks of the process read.
///
/// Field key: (c) set once · (r) any thread, relaxed: a hint whose late arrival K1 covers.
#[derive(Debug)]
struct TimeBase {
    counter: Option<Counter>, // (c)
    settled: OnceLock<Scale>, // (c) when the rate has been checked
    distrusted: AtomicBool,   // (r) only ever set
    start: Instant,           // (c)
}

#[derive(Debug)]
struct Counter {
    clock: quanta::Clock,
    /// As calibrated at the start.
    first: Scale,
    /// The reading from which on the rate is due to be checked.
    check_at: u64,
}

impl Counter {
    /// Takes the processor's counter if it claims to be invariant, else the operating system's clock, and calibrates.
    fn calibrate() -> (Self, Instant) {
        let clock = quanta::Clock::new();
        let pair = tightest_pair(|| clock.raw(), Instant::now);
        let start = pair.counted;
        let span = RATE_CHECK_AFTER;
        let factor = Ratio::of(clock.delta_as_nanos(start, start + span), span);
        let first = Scale { counted: start, nanos: 0, factor };
        let check_at = start + Ratio::of(span, factor.times(span)).times(RATE_CHECK_AFTER);
        (Self { clock, first, check_at }, pair.system)
    }
}

impl TimeBase {
    fn of_process() -> &'static Self {
        TIME_BASE.get_or_init(|| Self::new(CounterTrust::of_system(Path::new("/sys"))))
    }

    fn new(trust: CounterTrust) -> Self {
        let (counter, start) = match trust {
            CounterTrust::LeftToProcessor => {
                let (counter, start) = Counter::calibrate();
                (Some(counter), start)
            }
            CounterTrust::RefusedByKernel => (None, Instant::now()),
        };
        Self { counter, settled: OnceLock::new(), distrusted: AtomicBool::new(false), start }
    }

    fn reads_counter(&self) -> bool {
        self.counter.is_some() && !self.distrusted.load(Ordering::Relaxed)
    }

    #[inline]
    fn now(&self) -> u64 {
        let reading = match &self.counter {
            Some(counter) if !self.distrusted.load(Ordering::Relaxed) => self.read(counter),
            _ => self.system_nanos(),
        };
        let last = LAST_SEEN.get();
        if reading >= last {
            LAST_SEEN.set(reading);
            return reading;
        }
        self.behind(reading, last)
    }

    #[inline]
    fn read(&self, counter: &Counter) -> u64 {
        let counted = counter.clock.raw();
        match self.settled.get() {
            Some(scale) => scale.nanos_at(counted),
            None if counted < counter.check_at => counter.first.nanos_at(counted),
            None => self.check_rate(counter),
        }
    }

    /// Compares the counter with the operating system's clock over the time since the start. The calibration at the
    /// start is over a fraction of a millisecond: one preemption there can spoil it, and only a longer time shows it.
    #[cold]
    fn check_rate(&self, counter: &Counter) -> u64 {
        let pair = tightest_pair(|| counter.clock.raw(), || self.system_nanos());
        self.settle_rate(counter.first, pair)
    }

    fn settle_rate(&self, first: Scale, pair: Pair<u64>) -> u64 {
        match first.corrected_by(pair) {
            // Of several threads that check at once, one sets the rate for all.
            RateVerdict::Usable(scale) => self.settled.get_or_init(|| scale).nanos_at(pair.counted),
            RateVerdict::Unusable => {
                self.distrusted.store(true, Ordering::Relaxed);
                pair.system
            }
        }
    }

    /// The reading is less than this thread has seen: K1 keeps it where it was, and a large step ends the use of the
    /// counter (K3), since a clock that stands still for long would hold up every timer.
    #[cold]
    fn behind(&self, reading: u64, last: u64) -> u64 {
        if self.reads_counter() && last - reading > STEP_BACK_MAX {
            self.distrusted.store(true, Ordering::Relaxed);
            let now = self.system_nanos().max(last);
            LAST_SEEN.set(now);
            return now;
        }
        last
    }

    fn system_nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// One moment in the counter's time and in the operating system's.
#[derive(Clone, Copy, Debug)]
struct Pair<T> {
    counted: u64,
    system: T,
}

/// The pair with the least time between the readings that enclose it.
fn tightest_pair<T: Copy>(counted: impl Fn() -> u64, system: impl Fn() -> T) -> Pair<T> {
    let take = || {
        let before = counted();
        let at = system();
        let width = counted().saturating_sub(before);
        (width, Pair { counted: before + width / 2, system: at })
    };
    let mut best = take();
    for _ in 1..PAIRS {
        let next = take();
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

/// A factor in fixed point with 32 fractional bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ratio(u64);

impl Ratio {
    const ONE: u64 = 1 << 32;

    const fn from_parts_per_million(parts: u64) -> Self {
        Self(parts * Self::ONE / 1_000_000)
    }

    fn of(part: u64, whole: u64) -> Self {
        let scaled = (u128::from(part) << 32) / u128::from(whole.max(1));
        Self(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    fn times(self, value: u64) -> u64 {
        let scaled = (u128::from(value) * u128::from(self.0)) >> 32;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    fn distance_from_one(self) -> Self {
        Self(self.0.abs_diff(Self::ONE))
    }
}

/// How the counter's readings become nanoseconds: from the reading `counted` on, which stands for `nanos`, each step is
/// worth `factor`.
#[derive(Clone, Copy, Debug)]
struct Scale {
    counted: u64,
    nanos: u64,
    factor: Ratio,
}

#[derive(Clone, Copy, Debug)]
enum RateVerdict {
    Usable(Scale),
    Unusable,
}

impl Scale {
    #[inline]
    fn nanos_at(&self, counted: u64) -> u64 {
        self.nanos + self.factor.times(counted.saturating_sub(self.counted))
    }

    /// Continuous at the pair: the correction changes the rate, never the reading.
    fn corrected_by(&self, pair: Pair<u64>) -> RateVerdict {
        let nanos = self.nanos_at(pair.counted);
        if Ratio::of(pair.system, nanos).distance_from_one().0 > RATE_ERROR_MAX.0 {
            return RateVerdict::Unusable;
        }
        let factor = Ratio::of(pair.system, pair.counted.saturating_sub(self.counted));
        RateVerdict::Usable(Self { counted: pair.counted, nanos, factor })
    }
}

/// Whether the kernel has spoken against the processor's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CounterTrust {
    /// Nothing known against it: the processor's own claim that it is invariant decides.
    LeftToProcessor,
    /// The kernel tried the counter and runs on something slower: it stops, or differs between CPUs.
    RefusedByKernel,
}

impl CounterTrust {
    fn of_system(sys_root: &Path) -> Self {
        let file = sys_root.join("devices/system/clocksource/clocksource0/current_clocksource");
        match std::fs::read_to_string(file) {
            Ok(name) => Self::of_clock_source(name.trim()),
            Err(_) => Self::LeftToProcessor,
        }
    }

    /// These are the sources that a kernel falls back to when it has found the counter unstable. The paravirtual ones
    /// of hypervisors are computed from the counter, so they speak for it.
    fn of_clock_source(name: &str) -> Self {
        match name {
            "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "pit" => Self::RefusedByKernel,
            _ => Self::LeftToProcessor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn clock_never_goes_backwards_on_one_thread() {
        let clock = MonotonicClock::start();
        let mut last = clock.now();
        for _ in 0..100_000 {
            let now = clock.now();
            assert!(now >= last, "K1: {now} after {last}");
            last = now;
        }
        assert!(last > 0, "a clock that stands still is none");
    }

    #[test]
    fn clocks_of_one_process_differ_by_a_constant() {
        let older = MonotonicClock::start();
        let younger = MonotonicClock::start();
        let before = older.now();
        let between = younger.now() + younger.origin - older.origin;
        let after = older.now();
        assert!(before <= between && between <= after, "K2: {before} {between} {after}");
    }

    #[test]
    fn refused_counter_is_not_read() {
        let base = TimeBase::new(CounterTrust::RefusedByKernel);
        assert!(!base.reads_counter());
        let first = base.now();
        assert!(base.now() >= first);
    }

    #[test]
    fn small_step_back_is_hidden_and_the_counter_kept() {
        let base = TimeBase::new(CounterTrust::LeftToProcessor);
        assert_eq!(base.behind(5, 5 + STEP_BACK_MAX), 5 + STEP_BACK_MAX);
        assert!(base.reads_counter());
    }

    #[test]
    fn large_step_back_ends_the_use_of_the_counter() {
        let base = TimeBase::new(CounterTrust::LeftToProcessor);
        let last = SECOND + STEP_BACK_MAX + 1;
        assert!(base.behind(SECOND, last) >= last, "K1");
        assert!(!base.reads_counter(), "K3");
        assert!(base.now() >= last, "K1 holds across the change of source");
    }

    /// A counter of 2 GHz, started at 77.
    const HALF: Scale = Scale { counted: 77, nanos: 0, factor: Ratio(Ratio::ONE / 2) };

    fn after_a_second(system: u64) -> Pair<u64> {
        Pair { counted: 77 + 2 * SECOND, system }
    }

    #[test]
    fn rate_is_corrected_without_a_jump() {
        let pair = after_a_second(SECOND + 145_000);
        let RateVerdict::Usable(scale) = HALF.corrected_by(pair) else {
            panic!("145 ppm is within the bound");
        };
        assert_eq!(scale.nanos_at(pair.counted), SECOND);
        let next = scale.nanos_at(pair.counted + 2 * SECOND) - SECOND;
        assert!(next.abs_diff(SECOND + 145_000) <= 1, "{next}");
        let late = scale.nanos_at(pair.counted - 1);
        assert_eq!(late, SECOND, "a reading taken before the check doesn't underflow");
    }

    #[test]
    fn counter_with_a_wrong_rate_is_dropped() {
        let stopped = Pair { counted: 77, system: SECOND };
        let reset = Pair { counted: 0, system: SECOND };
        let slow = after_a_second(SECOND + 2_000_000);
        let fast = after_a_second(SECOND - 2_000_000);
        for pair in [slow, fast, stopped, reset] {
            assert!(matches!(HALF.corrected_by(pair), RateVerdict::Unusable), "{pair:?}");
        }
    }

    #[test]
    fn first_check_settles_the_rate_for_all() {
        let base = TimeBase::new(CounterTrust::LeftToProcessor);
        assert_eq!(base.settle_rate(HALF, after_a_second(SECOND + 100_000)), SECOND);
        let factor = base.settled.get().map(|scale| scale.factor);
        assert_eq!(base.settle_rate(HALF, after_a_second(SECOND - 100_000)), SECOND);
        assert_eq!(base.settled.get().map(|scale| scale.factor), factor);
        assert_eq!(factor, Some(Ratio::of(SECOND + 100_000, 2 * SECOND)));
        assert!(base.reads_counter());
    }

    #[test]
    fn unusable_rate_ends_the_use_of_the_counter() {
        let base = TimeBase::new(CounterTrust::LeftToProcessor);
        assert_eq!(base.settle_rate(HALF, after_a_second(3 * SECOND)), 3 * SECOND);
        assert!(!base.reads_counter(), "K3");
    }

    #[test]
    fn rate_check_comes_due_near_the_time_it_is_meant_for() {
        let (counter, _) = Counter::calibrate();
        let due = counter.first.nanos_at(counter.check_at);
        assert!(due.abs_diff(RATE_CHECK_AFTER) < RATE_CHECK_AFTER / 100, "{due}");
    }

    #[test]
    fn tightest_pair_wins_over_a_preempted_one() {
        // The first pair is torn apart by 1 ms; the later ones are 10 ns wide.
        let reads = Cell::new(0_u64);
        let counted = || {
            reads.set(reads.get() + 1);
            if reads.get() == 1 { 0 } else { 1_000_000 + reads.get() * 10 }
        };
        let pair = tightest_pair(counted, || 7);
        assert!(pair.counted > 1_000_000, "{pair:?}");
    }

    #[test]
    fn slow_clock_sources_speak_against_the_counter() {
        for name in ["hpet", "acpi_pm", "jiffies", "refined-jiffies"] {
            assert_eq!(CounterTrust::of_clock_source(name), CounterTrust::RefusedByKernel, "{name}");
        }
        for name in ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"] {
            assert_eq!(CounterTrust::of_clock_source(name), CounterTrust::LeftToProcessor, "{name}");
        }
    }

    #[test]
    fn missing_clock_source_file_leaves_it_to_the_processor() {
        assert_eq!(CounterTrust::of_system(Path::new("/nonexistent")), CounterTrust::LeftToProcessor);
    }
}
