//! Prints how many iterations of work per second the first run in a report did: of the groups named, or of all.
//!
//! `cargo run -p evenkeel-lab --example iterations -- REPORT.json [GROUP…]`

use serde_json::Value;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: iterations REPORT.json [GROUP…]")?;
    let named: Vec<String> = args.collect();
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    let run = report.get(0).ok_or("the report holds no run")?;
    let groups = run["groups"].as_object().ok_or("groups: expected an object")?;
    if let Some(unknown) = named.iter().find(|name| !groups.contains_key(*name)) {
        return Err(format!("no group `{unknown}` in {path}").into());
    }
    let wanted = groups.iter().filter(|(name, _)| named.is_empty() || named.contains(name));
    let work: f64 = wanted.filter_map(|(_, group)| group["work_s"].as_f64()).sum();
    let rate = run["iterations_per_us"].as_f64().ok_or("iterations_per_us: expected a number")?;
    let seconds = run["seconds"].as_f64().ok_or("seconds: expected a number")?;
    println!("{:.0}", work * rate * 1e6 / seconds);
    Ok(())
}
