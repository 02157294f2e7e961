//! A Perfetto trace and a page of a small simulated run: two groups that compute, one that sleeps between.
//!
//!     cargo run -p evenkeel-trace --example make_page -- MACHINE MILLISECONDS TRACE PAGE

use evenkeel_core::{Span, Time};
use evenkeel_engine::api;
use evenkeel_sim::machine::Machine;
use evenkeel_sim::{Config, Simulation};
use evenkeel_trace::{Source, Trace, perfetto, timeline};
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Duration;

/// More would not fit into a page.
const RECORDS_MAX: usize = 10_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [machine, millis, trace_file, page_file] = words.as_slice() else {
        return Err("expected MACHINE MILLISECONDS TRACE PAGE".into());
    };
    let machine = Machine::named(machine)?;
    let mut sim = Simulation::new(Config::new(machine.clone()))?;
    sim.keep_records_up_to(RECORDS_MAX);
    let handle = sim.handle();
    let weights = [("batch", 100), ("reports", 50), ("web", 400)];
    let groups = weights.map(|(name, weight)| handle.group(name).weight(weight).build());
    let [batch, reports, web] = groups;
    let (batch, reports, web) = (batch?, reports?, web?);
    sim.with(|_| {
        for task in 0..machine.cpus() as u64 {
            for group in [&batch, &reports] {
                drop(group.spawn(async move {
                    loop {
                        api::compute(Duration::from_micros(40 + task % 7 * 30));
                        api::yield_now().await;
                    }
                }));
            }
            drop(web.spawn(async move {
                loop {
                    api::run(Duration::from_micros(15 + task % 5 * 3)).await;
                    api::sleep(Duration::from_micros(180 + task)).await;
                }
            }));
        }
    });
    sim.run_until(Time::ZERO.after(Span::from_millis(millis.parse()?)))?;
    let names = [&batch, &reports, &web].map(|group| (group.id(), group.name().to_owned()));
    let trace = Trace::new(&Source {
        title: "three groups",
        records: sim.records(),
        left_out: sim.left_out(),
        machine: &machine,
        groups: &names,
        begin: Time::ZERO,
        end: sim.now(),
    });
    let mut out = BufWriter::new(File::create(trace_file)?);
    perfetto::write(&trace, &mut out)?;
    out.flush()?;
    let mut out = BufWriter::new(File::create(page_file)?);
    timeline::write(&trace, &mut out)?;
    out.flush()?;
    println!("{} slices, {} flows", trace.slices(), trace.flows.len());
    sim.stop()?;
    Ok(())
}
