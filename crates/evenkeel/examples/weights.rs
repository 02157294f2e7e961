//! Three groups that always have work, weighted 1 : 2 : 4, and what each got.
//!
//! ```text
//! cargo run --release -p evenkeel --example weights
//! ```

use evenkeel::{Group, GroupError, Handle, JoinHandle, Runtime, compute, now, sleep, yield_now};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Tasks per group: more than most machines have CPUs, so that every group could use them all.
const TASKS: usize = 64;

/// What a task computes before it gives way.
const PIECE: Duration = Duration::from_micros(50);

/// What one group got done.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) weight: u32,
    pub(crate) work: Duration,
}

/// Keeps three groups busy for a while. Runs on whatever runtime it is called in.
pub(crate) async fn compete(lasts: Duration) -> Result<Vec<Outcome>, GroupError> {
    let began = now();
    let mut teams = Vec::new();
    for (name, weight) in [("bronze", 100), ("silver", 200), ("gold", 400)] {
        let group = Handle::current().group(name).weight(weight).build()?;
        let pieces = Arc::new(AtomicU32::new(0));
        let tasks: Vec<_> = (0..TASKS).map(|_| keep_busy(&group, &pieces)).collect();
        teams.push((name, weight, pieces, tasks));
    }
    sleep(lasts).await;
    let mut outcomes = Vec::new();
    for (name, weight, pieces, _) in &teams {
        outcomes.push(Outcome { name, weight: *weight, work: PIECE * pieces.load(Ordering::Relaxed) });
    }
    let tasks = teams.into_iter().flat_map(|(.., tasks)| tasks).inspect(JoinHandle::abort);
    for task in tasks.collect::<Vec<_>>() {
        // Aborted: there is no output to look at.
        drop(task.await);
    }
    assert!(now().since(began) >= lasts.into(), "sleep waits for as long as it was told");
    Ok(outcomes)
}

fn keep_busy(group: &Group, pieces: &Arc<AtomicU32>) -> JoinHandle<()> {
    let pieces = Arc::clone(pieces);
    group.spawn(async move {
        loop {
            compute(PIECE);
            pieces.fetch_add(1, Ordering::Relaxed);
            yield_now().await;
        }
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new()?;
    let outcomes = runtime.block_on(compete(Duration::from_secs(2)))?;
    let total: Duration = outcomes.iter().map(|outcome| outcome.work).sum();
    println!("{:<8} {:>7} {:>9} {:>7}", "group", "weight", "work", "share");
    for Outcome { name, weight, work } in outcomes {
        let share = 100.0 * work.as_secs_f64() / total.as_secs_f64();
        println!("{name:<8} {weight:>7} {:>7.3} s {share:>5.1} %", work.as_secs_f64());
    }
    Ok(())
}
