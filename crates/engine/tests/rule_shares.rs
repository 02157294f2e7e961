//! The sharing rule in virtual time: groups that always have work get their shares.

mod common;

use common::workloads::{backlog, zipf_weights};
use common::{Bench, us};
use evenkeel_engine::Charging;
use evenkeel_engine::test_host::TestConfig;

fn herd(charging: Charging) -> Bench {
    let mut config = TestConfig::flat(64);
    config.machine.charging = charging;
    let mut bench = Bench::new(config);
    backlog(&mut bench, &zipf_weights(), 64, us(250));
    bench.run(6);
    bench
}

#[test]
fn a_herd_of_cpus_does_not_pick_one_group_at_once() {
    let errors = herd(Charging::ReserveAndSettle).errors(1, 1);
    assert!(errors.p99 <= 2.0 * 5.4, "{errors:?}");
}

#[test]
fn charging_at_the_end_of_the_slice_makes_a_herd() {
    let errors = herd(Charging::AtEnd).errors(1, 1);
    assert!(errors.p99 > 50.0, "{errors:?}");
}

#[test]
fn one_to_ten_is_one_to_ten() {
    for cpus in [1, 2, 4, 64] {
        let mut bench = Bench::flat(cpus);
        backlog(&mut bench, &[100, 1_000], 2 * cpus, us(250));
        bench.run(6);
        bench.assert_lag_bound(1, us(250));
    }
}

#[test]
fn five_weights_get_their_shares() {
    for (cpus, bound) in [(4, 2.0 * 6.6), (64, 2.0 * 0.3)] {
        let mut bench = Bench::flat(cpus);
        backlog(&mut bench, &[100, 200, 400, 800, 1_600], cpus, us(250));
        bench.run(11);
        bench.assert_lag_bound(1, us(250));
        let errors = bench.errors(1, 1);
        assert!(errors.p99 <= bound, "{cpus} CPUs: {errors:?}");
        let errors = bench.errors(1, 10);
        assert!(errors.max <= 1.0, "{cpus} CPUs: {errors:?}");
    }
}
