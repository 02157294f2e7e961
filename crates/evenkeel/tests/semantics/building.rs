//! What a builder refuses, and what it leaves behind then: nothing.

use crate::support::{guarded, runtime, wait_until};
use evenkeel::{BuildError, Pin, Runtime};
use std::process::{Command, Output};
use std::time::Duration;

#[test]
fn settings_out_of_range_are_errors_that_name_the_range() {
    for workers in [0, 8_193, 1_000_000_000, usize::MAX] {
        let error = Runtime::builder().workers(workers).build().unwrap_err();
        assert!(matches!(error, BuildError::Workers(asked) if asked == workers));
        let message = error.to_string();
        assert!(message.contains(&workers.to_string()) && message.contains("1 to 8192"), "{message}");
    }
    for slice in [Duration::ZERO, Duration::from_nanos(9_999), Duration::from_millis(1_001), Duration::MAX] {
        let error = Runtime::builder().workers(1).slice(slice).build().unwrap_err();
        assert!(matches!(error, BuildError::Slice(asked) if asked == slice));
        assert!(error.to_string().contains("10µs to 1s"), "{error}");
    }
    let error = Runtime::builder().workers(1).name("a\0b").build().unwrap_err();
    assert!(matches!(error, BuildError::Name));
}

#[test]
fn settings_at_the_ends_of_their_ranges_work() {
    guarded(|| {
        for slice in [Duration::from_micros(10), Duration::from_secs(1)] {
            let runtime = Runtime::builder().workers(2).slice(slice).name("").seed(u64::MAX).build().unwrap();
            let tasks: Vec<_> = (0..200).map(|_| runtime.spawn(evenkeel::yield_now())).collect();
            runtime.block_on(futures::future::join_all(tasks));
        }
        let long = "a name that is much longer than the kernel keeps".repeat(10);
        drop(Runtime::builder().workers(1).name(long).build().unwrap());
    });
}

#[test]
fn pinning_works_or_says_why_not() {
    guarded(|| {
        for pin in [Pin::Off, Pin::Llc, Pin::Cpu] {
            for workers in [1, 2, 5] {
                match Runtime::builder().workers(workers).pin(pin).build() {
                    Ok(runtime) => assert_eq!(runtime.block_on(runtime.spawn(async { 2 })).unwrap(), 2),
                    Err(BuildError::Pin(error)) => assert!(!error.to_string().is_empty()),
                    Err(error) => panic!("{pin:?}, {workers} workers: {error}"),
                }
            }
        }
    });
}

#[test]
fn as_many_workers_as_asked_run() {
    guarded(|| {
        for workers in [1, 2, 3, 7, 16, 65] {
            let runtime = runtime(workers);
            assert_eq!(runtime.workers(), workers);
            assert_eq!(runtime.stats().cpus.len(), workers);
            // All of them at once, each in a poll of its own.
            let meet = std::sync::Arc::new(std::sync::Barrier::new(workers));
            let tasks = (0..workers).map(|_| {
                let meet = std::sync::Arc::clone(&meet);
                runtime.spawn(async move {
                    meet.wait();
                })
            });
            let tasks: Vec<_> = tasks.collect();
            runtime.block_on(futures::future::join_all(tasks));
        }
    });
}

#[cfg(target_os = "linux")]
fn threads_called(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|comm| comm.starts_with(name)).count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_build_that_fails_leaves_no_thread_behind() {
    guarded(|| {
        for bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
            let error = Runtime::builder().workers(3).name("unborn").stack_size(bytes).build().unwrap_err();
            assert!(matches!(error, BuildError::Thread(_)), "{error:?}");
        }
        assert_eq!(threads_called("unborn"), 0);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn workers_are_named_and_gone_after_the_drop() {
    guarded(|| {
        let runtime = Runtime::builder().workers(3).name("namely").build().unwrap();
        wait_until("all are up", || threads_called("namely-") == 3);
        drop(runtime);
        wait_until("the system has forgotten them", || threads_called("namely") == 0);
    });
}

/// Builds a runtime as `EVENKEEL_WORKERS` says, in a process of its own.
#[test]
fn in_a_process_of_its_own() {
    if std::env::var_os("EVENKEEL_TEST_CHILD").is_none() {
        return;
    }
    match Runtime::new() {
        Ok(runtime) => println!("workers={}", runtime.workers()),
        Err(error) => println!("error={error}"),
    }
}

fn child(workers: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "building::in_a_process_of_its_own", "--nocapture"]);
    let Output { stdout, .. } =
        command.env("EVENKEEL_TEST_CHILD", "1").env("EVENKEEL_WORKERS", workers).output().unwrap();
    String::from_utf8(stdout).unwrap()
}

#[test]
fn the_number_of_workers_comes_from_the_environment() {
    for (value, expected) in [("3", "workers=3"), (" 2 ", "workers=2")] {
        let output = child(value);
        assert!(output.contains(expected), "{value:?}: {output}");
    }
    for value in ["0", "-1", "many", "8193", "99999999999999999999", "1.5"] {
        let output = child(value);
        let names = output.contains("error=EVENKEEL_WORKERS") && output.contains(value) && output.contains("1 to 8192");
        assert!(names, "{value:?}: {output}");
    }
}

#[test]
fn hooks_that_panic_in_a_process_of_their_own() {
    let hook = std::env::var("EVENKEEL_TEST_HOOK");
    let runtime = match hook.as_deref() {
        Ok("start") => Runtime::builder().workers(1).on_thread_start(|| panic!("a hook panics")),
        Ok("stop") => Runtime::builder().workers(1).on_thread_stop(|| panic!("a hook panics")),
        _ => return,
    };
    drop(runtime.build());
    println!("the process goes on");
}

#[test]
fn a_hook_that_panics_ends_the_process() {
    for hook in ["start", "stop"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "building::hooks_that_panic_in_a_process_of_their_own", "--nocapture"]);
        let Output { status, stdout, stderr } = command.env("EVENKEEL_TEST_HOOK", hook).output().unwrap();
        let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert!(!status.success() && !stdout.contains("goes on"), "{hook}: {status}, {stdout}");
        assert!(stderr.contains("the process ends"), "{hook}: {stderr}");
    }
}
