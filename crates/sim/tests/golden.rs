//! Debug and release builds, and whatever machine they run on, agree on a small case to the last event.
//!
//! The constants change with the engine, with costs and with presets. They are then to be taken over from what the test says, after
//! it has said the same in both builds: `cargo test -p evenkeel-sim --test golden` with and without `--release`.

#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::{machine, spin_in, us};
use evenkeel_core::Time;
use evenkeel_engine::api;
use evenkeel_sim::{Config, Digest, Faults, Simulation};
use std::time::Duration;

fn digest(name: &str, faults: &str) -> Digest {
    let faults = if faults.is_empty() { Faults::NONE } else { faults.parse().unwrap() };
    let mut sim = Simulation::new(Config { faults, ..Config::new(machine(name)) }).unwrap();
    let handle = sim.handle();
    let heavy = handle.group("heavy").weight(300).build().unwrap();
    let light = handle.group("light").weight(100).build().unwrap();
    sim.with(|_| {
        spin_in(&heavy, 6, us(40));
        spin_in(&light, 6, us(90));
        for turn in 0..6 {
            drop(light.spawn(async move {
                loop {
                    api::run(Duration::from_nanos(2_500 + turn)).await;
                    api::sleep(Duration::from_micros(53)).await;
                }
            }));
        }
    });
    for turn in 1..10 {
        let heavy = heavy.clone();
        sim.at(Time::ZERO.after(us(90 * turn)), move |_| {
            drop(heavy.spawn(async { api::run(Duration::from_micros(3)).await }));
        });
    }
    sim.run_until(Time::ZERO.after(us(5_000))).unwrap();
    sim.stop().unwrap();
    sim.digest()
}

#[test]
fn debug_and_release_agree() {
    let all = "stall=exp:100us@1000/s,holder=exp:5us@5%,kick=exp:50us@50%,tick=exp:300us@50%";
    let known = [
        ("flat-4", "", Digest { hash: 1_617_871_636_867_212_309, count: 2_735 }),
        ("xeon-e5-2650v4-2s", "", Digest { hash: 1_287_983_887_145_382_825, count: 11_797 }),
        ("xeon-e5-2650v4-2s", all, Digest { hash: 6_724_937_987_004_794_150, count: 11_121 }),
    ];
    let found = known.map(|(name, faults, _)| (name, faults, digest(name, faults)));
    assert_eq!(found, known);
}
