//! Benchmarks of passing control between tasks: yields, and signals to and fro.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{Notify, oneshot};

use super::error::BenchError;
use super::round::{self, Figures};
use super::target::{Rt, Setup};

/// Many tasks do nothing but yield.
pub(super) fn yield_many<R: Rt>(setup: &Setup) -> Result<Figures, BenchError> {
    let (yielders, yields_each) = (setup.size.yielders, setup.size.yields_each);
    let rt = R::build(setup)?;
    let expected = u64::from(yielders) * u64::from(yields_each);
    let figure = round::inside(&rt, setup, expected, move || async move {
        let tasks: Vec<_> = (0..yielders).map(|_| R::spawn(yielder::<R>(yields_each))).collect();
        let mut done = 0;
        for task in tasks {
            done += task.await?;
        }
        Ok(done)
    })?;
    Ok(Figures(vec![figure]))
}

/// Yields `yields` times, and says how often it was resumed.
pub(super) async fn yielder<R: Rt>(yields: u32) -> u64 {
    let mut resumed = 0;
    for _ in 0..yields {
        R::yield_now().await;
        resumed += 1;
    }
    resumed
}

/// Many pairs at once, each a task that spawns a partner and has one round trip with it.
pub(super) fn ping_pong<R: Rt>(setup: &Setup) -> Result<Figures, BenchError> {
    let pairs = setup.size.pairs;
    let rt = R::build(setup)?;
    let figure = round::inside(&rt, setup, pairs.into(), move || async move {
        let rally = Arc::new(Rally::new(pairs));
        for _ in 0..pairs {
            drop(R::spawn(ping::<R>(Arc::clone(&rally))));
        }
        rally.over.notified().await;
        Ok(rally.answered.load(Ordering::Relaxed).into())
    })?;
    Ok(Figures(vec![figure]))
}

/// Two tasks that live for the whole round signal each other in turn.
pub(super) fn one_pair<R: Rt>(setup: &Setup) -> Result<Figures, BenchError> {
    let round_trips = setup.size.round_trips;
    let rt = R::build(setup)?;
    let figure = round::inside(&rt, setup, round_trips.into(), move || async move {
        let table = Arc::new(Table::default());
        let partner = R::spawn(returner(Arc::clone(&table), round_trips));
        let player = R::spawn(server(table, round_trips));
        let served = player.await?;
        Ok(served.min(partner.await?))
    })?;
    Ok(Figures(vec![figure]))
}

/// What the pairs of one round share.
struct Rally {
    left: AtomicU32,
    answered: AtomicU32,
    over: Notify,
}

impl Rally {
    fn new(pairs: u32) -> Self {
        Self { left: AtomicU32::new(pairs), answered: AtomicU32::new(0), over: Notify::new() }
    }

    fn finished(&self, answer: Answer) {
        if answer == Answer::Came {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        // ORDER: each decrement is released and acquired by the next, so the last one has every count before it;
        // the signal hands them on to the task that reads them.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.over.notify_one();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Came,
    Lost,
}

async fn ping<R: Rt>(rally: Arc<Rally>) {
    let (ping, pinged) = oneshot::channel();
    let (pong, ponged) = oneshot::channel();
    drop(R::spawn(async move {
        if pinged.await.is_ok() {
            // The other side only goes away if the run has ended in an error.
            let _ = pong.send(());
        }
    }));
    let _ = ping.send(());
    rally.finished(if ponged.await.is_ok() { Answer::Came } else { Answer::Lost });
}

#[derive(Default)]
struct Table {
    there: Notify,
    back: Notify,
}

async fn server(table: Arc<Table>, round_trips: u32) -> u64 {
    let mut done = 0;
    for _ in 0..round_trips {
        table.there.notify_one();
        table.back.notified().await;
        done += 1;
    }
    done
}

async fn returner(table: Arc<Table>, round_trips: u32) -> u64 {
    let mut done = 0;
    for _ in 0..round_trips {
        table.there.notified().await;
        table.back.notify_one();
        done += 1;
    }
    done
}
