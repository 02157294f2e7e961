//! A CPU pool beside a tokio program: tokio serves, Evenkeel computes, with shares by weight.
//!
//! Two kinds of requests need computing. `interactive` ones have a large weight; `reports` are many, and may not crowd
//! them out. Handles are awaited from tokio as any future is.
//!
//! ```text
//! cargo run --release -p evenkeel --example cpu_pool
//! ```

use evenkeel::{Group, JoinError, Runtime};

/// Where a server's computing is done.
struct CpuPool {
    interactive: Group,
    reports: Group,
    // Last: what is left is dropped with it.
    runtime: Runtime,
}

impl CpuPool {
    fn start(workers: usize) -> Result<CpuPool, Box<dyn std::error::Error>> {
        let runtime = Runtime::builder().workers(workers).name("compute").build()?;
        Ok(CpuPool {
            interactive: runtime.group("interactive").weight(1_000).build()?,
            reports: runtime.group("reports").weight(10).max_tasks(10_000).build()?,
            runtime,
        })
    }

    /// A line for each group that was made here.
    fn shares(&self) -> Vec<String> {
        let mut stats = self.runtime.stats().groups;
        stats.retain(|group| group.id != self.runtime.default_group().id());
        let line = |group: evenkeel::GroupStats| format!("{}: {} polls in {:?}", group.name, group.polls, group.run);
        stats.into_iter().map(line).collect()
    }
}

/// Counts primes below `bound`, and gives way now and then: a long computation must not hold its CPU for long.
async fn count_primes(bound: u32) -> usize {
    let mut count = 0;
    for candidate in 2..bound {
        let is_prime =
            (2..).take_while(|divisor| divisor * divisor <= candidate).all(|divisor| candidate % divisor != 0);
        count += usize::from(is_prime);
        if candidate % 64 == 0 {
            evenkeel::checkpoint().await;
        }
    }
    count
}

/// What a server would answer: the sums of all reports and of all requests.
async fn serve(pool: &CpuPool, reports: usize, requests: usize) -> Result<(usize, usize), JoinError> {
    let reports: Vec<_> = (0..reports).map(|_| pool.reports.spawn(count_primes(1_000))).collect();
    let mut answers = 0;
    for _ in 0..requests {
        // Computed by Evenkeel, awaited by tokio.
        answers += pool.interactive.spawn(count_primes(100)).await?;
        tokio::task::yield_now().await;
    }
    let mut total = 0;
    for report in reports {
        total += report.await?;
    }
    Ok((total, answers))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = CpuPool::start(2)?;
    let server = tokio::runtime::Builder::new_current_thread().build()?;
    let (reports, answers) = server.block_on(serve(&pool, 200, 50))?;
    println!("200 reports found {reports} primes; 50 requests found {answers}");
    for group in pool.shares() {
        println!("{group}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tokio_program_computes_on_the_pool() {
        let pool = CpuPool::start(2).unwrap();
        let server = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        // 168 primes below a thousand, 25 below a hundred.
        assert_eq!(server.block_on(serve(&pool, 20, 10)).unwrap(), (20 * 168, 10 * 25));
    }
}
