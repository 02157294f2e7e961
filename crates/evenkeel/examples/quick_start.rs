//! The quick start of the README: two tenants, one with twice the weight of the other.
//!
//! ```text
//! cargo run --release -p evenkeel --example quick_start
//! ```

use evenkeel::Runtime;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().workers(2).build()?;

    // Twice the weight, twice the CPU time while both have work.
    let gold = runtime.group("tenant gold").weight(200).max_tasks(10_000).build()?;
    let free = runtime.group("tenant free").weight(100).build()?;

    let report = free.spawn(async {
        let mut sum = 0u64;
        for n in 0..1_000_000u64 {
            sum = sum.wrapping_add(n * n);
            if n % 10_000 == 0 {
                evenkeel::checkpoint().await; // gives way if its slice is over
            }
        }
        sum
    });
    let request = gold.spawn(async {
        evenkeel::sleep(Duration::from_millis(1)).await;
        // Joins the group of its parent.
        evenkeel::spawn(async { "answer" }).await
    });

    runtime.block_on(async {
        println!("{} {}", request.await??, report.await?);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_quick_start_runs() {
        super::main().unwrap();
    }

    #[test]
    fn the_readme_has_it_word_for_word() {
        let readme = include_str!("../../../README.md");
        let block = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
        assert!(include_str!("quick_start.rs").contains(block.unwrap()));
    }
}
