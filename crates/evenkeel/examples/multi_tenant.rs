//! A worker for many tenants: requests come in over a channel, and each tenant has a group of its own.
//!
//! A tenant that sends a flood waits for itself, and is told so when too many of its requests are under way; the others
//! keep their share.
//!
//! ```text
//! cargo run --release -p evenkeel --example multi_tenant
//! ```

use evenkeel::{Group, GroupError, Handle, Runtime, SpawnError};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Requests of one tenant that may be under way; more are refused rather than kept in memory.
const UNDER_WAY_MAX: usize = 1_000;

struct Request {
    tenant: String,
    work: Duration,
    reply: oneshot::Sender<Reply>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reply {
    Done,
    Busy,
}

/// The groups of the tenants seen so far. What a tenant has paid for would come from a database.
struct Tenants {
    runtime: Handle,
    groups: BTreeMap<String, Group>,
}

impl Tenants {
    fn group(&mut self, tenant: &str) -> Result<Group, GroupError> {
        if let Some(group) = self.groups.get(tenant) {
            return Ok(group.clone());
        }
        let weight = if tenant.starts_with("gold") { 300 } else { 100 };
        let group = self.runtime.group(tenant).weight(weight).max_tasks(UNDER_WAY_MAX).build()?;
        self.groups.insert(tenant.to_owned(), group.clone());
        Ok(group)
    }

    /// Takes requests until the last sender is gone.
    async fn serve(mut self, mut requests: mpsc::Receiver<Request>) -> Result<(), GroupError> {
        while let Some(Request { tenant, work, reply }) = requests.recv().await {
            let group = self.group(&tenant)?;
            // A spawn that is refused drops its future: the reply is handed over afterwards.
            let (start, started) = oneshot::channel();
            match group.try_spawn(answer(work, started)) {
                Ok(_detached) => drop(start.send(reply)),
                Err(SpawnError::Full) => drop(reply.send(Reply::Busy)),
                // The runtime stops.
                Err(_) => return Ok(()),
            }
            // A channel of tokio's does not give way by itself on these threads.
            evenkeel::checkpoint().await;
        }
        Ok(())
    }
}

/// Computes, then replies to who asked, if that one still waits.
async fn answer(work: Duration, reply: oneshot::Receiver<oneshot::Sender<Reply>>) {
    let Ok(reply) = reply.await else { return };
    const STEP: Duration = Duration::from_micros(50);
    let steps = work.as_micros().div_ceil(STEP.as_micros());
    for _ in 0..steps {
        evenkeel::compute(STEP);
        evenkeel::checkpoint().await;
    }
    // The tenant may have gone.
    let _ = reply.send(Reply::Done);
}

/// Sends a tenant's requests all at once, and counts the replies: done, and refused.
async fn tenant(requests: mpsc::Sender<Request>, name: &str, count: usize, work: Duration) -> (usize, usize) {
    let mut replies = Vec::with_capacity(count);
    for _ in 0..count {
        let (reply, replied) = oneshot::channel();
        if requests.send(Request { tenant: name.to_owned(), work, reply }).await.is_ok() {
            replies.push(replied);
        }
    }
    let (mut done, mut busy) = (0, 0);
    for reply in replies {
        match reply.await {
            Ok(Reply::Done) => done += 1,
            Ok(Reply::Busy) => busy += 1,
            Err(_) => {}
        }
    }
    (done, busy)
}

/// One tenant floods, another asks for little; both talk to the worker over one channel.
fn run(workers: usize, flood: usize) -> Result<[(usize, usize); 2], Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().workers(workers).name("tenants").build()?;
    let tenants = Tenants { runtime: runtime.handle(), groups: BTreeMap::new() };
    let (requests, queue) = mpsc::channel(64);
    let server = runtime.spawn(tenants.serve(queue));
    let other = requests.clone();
    let noisy = runtime.spawn(async move { tenant(requests, "noisy", flood, Duration::from_micros(200)).await });
    let gold = runtime.spawn(async move { tenant(other, "gold one", 20, Duration::from_micros(100)).await });
    let counts = runtime.block_on(async { Ok::<_, evenkeel::JoinError>([noisy.await?, gold.await?]) })?;
    runtime.block_on(server)??;
    Ok(counts)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [noisy, gold] = run(2, 5_000)?;
    println!("noisy: {} done, {} refused", noisy.0, noisy.1);
    println!("gold:  {} done, {} refused", gold.0, gold.1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_answered_and_only_the_flood_is_refused() {
        for workers in [1, 2] {
            let [noisy, gold] = run(workers, 3 * UNDER_WAY_MAX).unwrap();
            assert_eq!(noisy.0 + noisy.1, 3 * UNDER_WAY_MAX);
            assert!(noisy.0 > 0);
            assert_eq!(gold, (20, 0));
        }
    }
}
