//! Prints what reading the time costs on this machine: the figures of `docs/decisions/0002-clock.md`.
//!
//! `cargo run --release -p evenkeel --example clock_cost`

// The clock is the crate's own: the file is compiled here a second time, so that it needn't be public to be measured.
#[path = "../src/clock.rs"]
mod clock;

use std::hint::black_box;
use std::time::{Duration, Instant};

const READS: u32 = 1_000_000;
const ROUNDS: u32 = 7;

fn main() {
    let began = Instant::now();
    let clock = clock::MonotonicClock::start();
    println!("start of the first clock   {:>10.1} us", micros(began.elapsed()));
    let began = Instant::now();
    black_box(clock::MonotonicClock::start());
    println!("start of the next clock    {:>10.3} us", micros(began.elapsed()));

    let counter = quanta::Clock::new();
    // First, since it is only uncorrected within the first second.
    print_cost("MonotonicClock, uncorrected", || clock.now());
    print_cost("Instant::now", Instant::now);
    print_cost("quanta raw", || counter.raw());
    print_cost("quanta now", || counter.now());
    print_drift("quanta", || counter.now(), |from, to| (to - from).as_nanos());
    print_drift("MonotonicClock, corrected", || clock.now(), |from, to| u128::from(to - from));
    print_cost("MonotonicClock, corrected", || clock.now());
    print_cost("getrusage(RUSAGE_THREAD)", thread_usage);
}

/// The best of some rounds: a round in which the thread was preempted says nothing about the cost.
fn print_cost<T>(what: &str, read: impl Fn() -> T) {
    let round = || {
        let began = Instant::now();
        for _ in 0..READS {
            black_box(read());
        }
        began.elapsed()
    };
    let best = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    let nanos = best.as_secs_f64() * 1e9 / f64::from(READS);
    println!("{what:<27}{nanos:>10.1} ns per read");
}

/// How far a clock leaves `Instant` behind in two seconds.
fn print_drift<T>(what: &str, read: impl Fn() -> T, nanos: impl Fn(T, T) -> u128) {
    let (began, from) = moment(&read);
    std::thread::sleep(Duration::from_secs(2));
    let (ended, to) = moment(&read);
    let span = Duration::from_nanos(u64::try_from(nanos(from, to)).unwrap_or(u64::MAX));
    let parts = (span.as_secs_f64() / (ended - began).as_secs_f64() - 1.0) * 1e6;
    println!("{what:<27}{parts:>10.2} ppm against Instant");
}

/// The two clocks read as close together as can be had: the code is cold after a sleep.
fn moment<T>(read: impl Fn() -> T) -> (Instant, T) {
    let take = |_| {
        let before = Instant::now();
        let reading = read();
        let width = before.elapsed();
        (width, (before + width / 2, reading))
    };
    let tightest = (0..32).map(take).min_by_key(|(width, _)| *width);
    tightest.map_or_else(|| (Instant::now(), read()), |(_, moment)| moment)
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

/// What the threads host asks once a millisecond: how much of the processor the thread really got.
fn thread_usage() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has room for an rusage, which is all that getrusage asks for.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: all zeros are an rusage, should the call have failed.
    unsafe { usage.assume_init() }.ru_nvcsw
}
