//! The sharing rule in virtual time: shares that can't be used are neither saved up nor held against anybody; newcomers
//! and groups that grow get theirs.

mod common;

use common::{Bench, at_ms, ms, us};
use evenkeel_core::Span;
use evenkeel_engine::test_host::TestConfig;

/// A poll that keeps the number of polls small on a large machine.
fn poll_on(cpus: usize) -> Span {
    if cpus > 4 { us(500) } else { us(50) }
}

#[test]
fn a_share_that_cannot_be_used_is_neither_saved_up_nor_held_against_others() {
    for cpus in [2, 4, 64] {
        let poll = poll_on(cpus);
        let mut bench = Bench::flat(cpus);
        let (heavy, light, newcomer) = (bench.group(900), bench.group(100), bench.group(100));
        bench.hogs(heavy, 1, poll);
        bench.hogs(light, 100, poll);
        bench.hogs_at(at_ms(500), newcomer, 100, poll);
        bench.hogs_at(at_ms(1_000), heavy, 100, poll);
        bench.run(15);
        bench.assert_lag_bound_in(&[1..5, 6..10, 11..15], poll);
        let alone = bench.cpus_of(heavy, 1, 5);
        assert!(alone.got > 0.99, "a task alone has a CPU: {alone:?}");
    }
}

#[test]
fn newcomer_beside_a_hog_gets_its_share() {
    for (cpus, tasks, newcomers) in [(2, 1, 2), (2, 2, 1), (2, 2, 8), (4, 4, 4), (64, 64, 64)] {
        let poll = poll_on(cpus);
        let mut bench = Bench::flat(cpus);
        let (hog, newcomer) = (bench.group(100), bench.group(100));
        bench.hogs(hog, tasks, poll);
        bench.hogs_at(at_ms(500), newcomer, newcomers, poll);
        bench.run(9);
        bench.assert_lag_bound_in(&[1..5, 6..9], poll);
    }
}

#[test]
fn a_newcomer_gets_its_share_beside_one_that_is_alone_on_a_cpu() {
    let mut bench = Bench::flat(2);
    let (alone, other, newcomer) = (bench.group(100), bench.group(100), bench.group(100));
    bench.hogs(alone, 1, us(50));
    bench.hogs(other, 1, us(50));
    bench.hogs_at(at_ms(1_000), newcomer, 2, us(50));
    bench.run(16);
    bench.assert_lag_bound_in(&[1..10, 11..16], us(50));
}

#[test]
fn two_lone_groups_that_grow_together_share() {
    for (first, second) in [(100, 100), (100, 1_000), (1_000, 100)] {
        let mut bench = Bench::flat(4);
        let (one, other) = (bench.group(first), bench.group(second));
        bench.hogs(one, 1, us(50));
        bench.hogs_at(at_ms(500), other, 1, us(50));
        bench.hogs_at(at_ms(600), other, 8, us(50));
        bench.hogs_at(at_ms(600), one, 8, us(50));
        bench.run(12);
        bench.assert_lag_bound_in(&[1..5, 7..12], us(50));
    }
}

#[test]
fn a_change_of_weight_takes_effect_at_once() {
    for cpus in [4, 64] {
        let poll = if cpus > 4 { us(250) } else { us(50) };
        let mut bench = Bench::flat(cpus);
        let (changing, steady) = (bench.group(100), bench.group(1_000));
        bench.hogs(changing, 2 * cpus, poll);
        bench.hogs(steady, 2 * cpus, poll);
        for change in 0..12 {
            let weight = if change % 2 == 0 { 10_000 } else { 100 };
            bench.weight_at(at_ms(200 + 50 * change), changing, weight);
        }
        bench.run(10);
        bench.assert_lag_bound(1, poll);
    }
}

#[test]
fn a_thousand_groups_of_one_task_are_served_in_turn() {
    let mut config = TestConfig::flat(4);
    config.check_every = 1_000;
    let mut bench = Bench::new(config);
    for _ in 0..1_000 {
        let group = bench.group(100);
        bench.hogs(group, 1, us(250));
    }
    bench.run(20);
    let worst = (0..1_000).map(|group| bench.cpus_of(group, 5, 20)).map(|share| (share.got - share.due).abs());
    let worst = worst.fold(0.0, f64::max) * 1_500.0;
    assert!(worst <= 2.5, "{worst} ms off in 1,500, of {:?} due", ms(6));
}

#[test]
fn groups_that_come_while_many_wait_are_found() {
    // More groups on one CPU than are scanned: a heap keeps their order, and I4 is checked after each step.
    let mut bench = Bench::flat(1);
    for _ in 0..100 {
        let group = bench.group(100);
        bench.hogs(group, 1, us(250));
    }
    let (busy, idle): (Vec<_>, Vec<_>) = (0..20).map(|_| (bench.group(1_000), bench.group(100))).unzip();
    for group in busy {
        bench.clients(group, 1, us(100), ms(5), us(100));
    }
    for group in idle {
        bench.clients(group, 1, us(500), ms(2), us(250));
    }
    bench.run(3);
    let stats = bench.machine.handle().stats();
    let wait =
        stats.groups.iter().filter(|stats| stats.weight.get() == 1_000).map(|stats| stats.wait.quantile_upper(500));
    // A heavy group that asks for little of its share is first when it comes, or nearly so.
    assert!(wait.clone().all(|wait| wait <= ms(2)), "{:?}", wait.collect::<Vec<_>>());
}
