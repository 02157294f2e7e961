//! The example `weights` is a test, and the same code runs on two hosts: threads in real time, and one thread in virtual
//! time.

#[path = "../examples/weights.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod weights;

use evenkeel::{Runtime, now};
use evenkeel_engine::test_host::{TestConfig, TestMachine};
use std::time::Duration;
use weights::{Outcome, compete};

fn share(outcomes: &[Outcome], index: usize) -> f64 {
    let total: Duration = outcomes.iter().map(|outcome| outcome.work).sum();
    outcomes[index].work.as_secs_f64() / total.as_secs_f64()
}

#[test]
fn the_example_gives_its_shares_on_the_test_host() {
    for (cpus, millis) in [(1, 700), (4, 700), (16, 280)] {
        let lasts = Duration::from_millis(millis);
        let mut machine = TestMachine::new(TestConfig::flat(cpus));
        let outcomes = machine.block_on(compete(lasts)).unwrap().unwrap();
        for (index, part) in [1.0, 2.0, 4.0].into_iter().enumerate() {
            let error = share(&outcomes, index) / (part / 7.0) - 1.0;
            assert!(error.abs() < 0.02, "{cpus} CPUs: {} is off by {error}", outcomes[index].name);
        }
        let work: Duration = outcomes.iter().map(|outcome| outcome.work).sum();
        let all = lasts * u32::try_from(cpus).unwrap();
        assert!(work.as_secs_f64() > 0.99 * all.as_secs_f64(), "{cpus} CPUs did {work:?} of {all:?}");
    }
}

#[test]
fn the_example_runs_on_threads() {
    // Shares are asserted in virtual time: on threads, within so short a time, they also depend on what else runs.
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let outcomes = runtime.block_on(compete(Duration::from_millis(400))).unwrap();
    assert!(outcomes.iter().all(|outcome| outcome.work > Duration::ZERO));
}

#[test]
fn two_machines_in_one_process_do_not_disturb_each_other() {
    let alone = |cpus| {
        let mut machine = TestMachine::new(TestConfig::flat(cpus));
        machine.block_on(compete(Duration::from_millis(20))).unwrap().unwrap();
        machine.digest()
    };
    let (one, other) = (alone(2), alone(3));
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let busy = runtime.spawn(async { compete(Duration::from_millis(50)).await.unwrap().len() });
    let mut outer = TestMachine::new(TestConfig::flat(2));
    let inner = std::cell::RefCell::new(TestMachine::new(TestConfig::flat(3)));
    // One machine's future drives the other machine, in the middle of its run.
    outer
        .block_on(async {
            compete(Duration::from_millis(20)).await.unwrap();
            let before = now();
            inner.borrow_mut().block_on(compete(Duration::from_millis(20))).unwrap().unwrap();
            assert_eq!(now(), before, "the outer machine's time stands still meanwhile");
        })
        .unwrap();
    assert_eq!((outer.digest(), inner.into_inner().digest()), (one, other));
    assert_eq!(runtime.block_on(busy).unwrap(), 3);
}
