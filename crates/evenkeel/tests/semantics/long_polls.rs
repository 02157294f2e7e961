//! Nothing waits behind one CPU's poll, as long as another CPU gives way.

use crate::support::{HANG, guarded, runtime, wait_until};
use evenkeel::{Group, JoinHandle, Runtime};
use futures::channel::oneshot;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

/// Where the task that must not wait is made runnable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    /// In the poll that then goes on for long.
    ThePoll,
    /// On threads of their own, several, so that each CPU is some thread's home.
    Outside,
}

/// What the other CPU does meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Others {
    Idle,
    /// It has a task that only yields.
    Yield,
}

/// A long poll, the task that it may hold up, and a yielding task: which groups they are in.
struct Groups {
    long: Group,
    woken: Group,
    yielder: Group,
}

impl Groups {
    fn all_the_same(runtime: &Runtime) -> Groups {
        let group = runtime.default_group();
        Groups { long: group.clone(), woken: group.clone(), yielder: group }
    }

    fn all_different(runtime: &Runtime) -> Groups {
        let group = |name, weight| runtime.group(name).weight(weight).build().unwrap();
        // Not too far apart: a group that has had its share waits for the others, by right.
        Groups { long: group("long", 100), woken: group("woken", 50), yielder: group("yielder", 200) }
    }
}

/// Keeps one CPU busy with a task that yields; stops it when dropped.
struct Yielder(Arc<AtomicBool>);

impl Yielder {
    fn start(group: &Group, others: Others) -> Yielder {
        let is_over = Arc::new(AtomicBool::new(others == Others::Idle));
        let flag = Arc::clone(&is_over);
        drop(group.spawn(async move {
            while !flag.load(Ordering::Relaxed) {
                evenkeel::yield_now().await;
            }
        }));
        Yielder(is_over)
    }
}

impl Drop for Yielder {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Tasks that have suspended, and run when they are sent to; each tells when it has run.
fn suspended(group: &Group, count: usize) -> (Vec<oneshot::Sender<()>>, mpsc::Receiver<()>) {
    let (ran, has_run) = mpsc::channel();
    let polled = Arc::new(AtomicUsize::new(0));
    let wakers = (0..count).map(|_| {
        let (waker, mut woken) = oneshot::channel();
        let (ran, polled) = (ran.clone(), Arc::clone(&polled));
        drop(group.spawn(async move {
            let first = poll_fn(|cx| {
                let poll = Pin::new(&mut woken).poll(cx);
                polled.fetch_add(1, Ordering::SeqCst);
                poll
            });
            first.await.unwrap();
            ran.send(()).unwrap();
        }));
        waker
    });
    let wakers: Vec<_> = wakers.collect();
    wait_until("all have suspended", || polled.load(Ordering::SeqCst) >= count);
    (wakers, has_run)
}

/// A poll that wakes tasks (or has them woken), and goes on until they have run.
fn a_poll_that_waits_for_tasks(runtime: &Runtime, groups: &Groups, from: From, others: Others) {
    let threads = if from == From::Outside { 4 } else { 1 };
    let (wakers, has_run) = suspended(&groups.woken, threads);
    let _yielder = Yielder::start(&groups.yielder, others);
    let long = groups.long.spawn(async move {
        match from {
            From::ThePoll => wakers.into_iter().for_each(|waker| waker.send(()).unwrap()),
            From::Outside => wakers.into_iter().for_each(|waker| {
                std::thread::spawn(move || waker.send(()).unwrap()).join().unwrap();
            }),
        }
        (0..threads).for_each(|_| has_run.recv_timeout(HANG / 4).expect("the task waits behind the long poll"));
    });
    runtime.block_on(long).unwrap();
}

fn for_all_groups(others: Others) {
    for from in [From::ThePoll, From::Outside] {
        for groups in [Groups::all_the_same, Groups::all_different] {
            let runtime = runtime(2);
            let groups = groups(&runtime);
            for _ in 0..20 {
                a_poll_that_waits_for_tasks(&runtime, &groups, from, others);
            }
        }
    }
}

#[test]
fn wake_behind_a_long_poll_runs_elsewhere() {
    guarded(|| for_all_groups(Others::Idle));
}

#[test]
fn wake_behind_a_long_poll_runs_when_others_are_busy() {
    guarded(|| for_all_groups(Others::Yield));
}

#[test]
fn spawn_behind_a_long_poll_runs_elsewhere() {
    guarded(|| {
        for others in [Others::Idle, Others::Yield] {
            let runtime = runtime(2);
            let _yielder = Yielder::start(&runtime.default_group(), others);
            for _ in 0..50 {
                let long = runtime.spawn(async {
                    let (ran, has_run) = mpsc::channel();
                    drop(evenkeel::spawn(async move { ran.send(()).unwrap() }));
                    has_run.recv_timeout(HANG / 4).expect("the task waits behind the long poll that spawned it");
                });
                runtime.block_on(long).unwrap();
            }
        }
    });
}

/// A sleeper that has armed its timer, and the worker that it did so on.
fn sleeper(group: &Group, nap: Duration) -> (JoinHandle<()>, ThreadId) {
    let (tell, told) = mpsc::channel();
    let mut sleep = Box::pin(evenkeel::sleep(nap));
    let handle = group.spawn(poll_fn(move |cx| {
        let poll = sleep.as_mut().poll(cx);
        // Nobody listens any more when it polls again.
        let _ = tell.send(std::thread::current().id());
        poll
    }));
    (handle, told.recv().unwrap())
}

/// Whether the round shows anything: the poll began on the timer's CPU, and before the timer was due.
fn a_poll_that_waits_for_a_timer(runtime: &Runtime, groups: &Groups, others: Others) -> bool {
    let _yielder = Yielder::start(&groups.yielder, others);
    let (sleeper, armed_on) = sleeper(&groups.woken, Duration::from_millis(20));
    if others == Others::Idle {
        wait_until("all are parked", || runtime.load().parked == 2 || sleeper.is_finished());
    }
    let group = groups.long.clone();
    let long = async move {
        let shows = !sleeper.is_finished() && std::thread::current().id() == armed_on;
        wait_until("the timer behind the long poll has fired", || sleeper.is_finished());
        shows
    };
    // From a thread of its own: each has another home.
    let long = std::thread::spawn(move || group.spawn(long)).join().unwrap();
    runtime.block_on(long).unwrap()
}

#[test]
fn timer_behind_a_long_poll_fires() {
    guarded(|| {
        for others in [Others::Idle, Others::Yield] {
            for groups in [Groups::all_the_same, Groups::all_different] {
                let runtime = runtime(2);
                let groups = groups(&runtime);
                let shown = (0..20).filter(|_| a_poll_that_waits_for_a_timer(&runtime, &groups, others)).count();
                assert!(shown > 0, "no long poll began on the CPU of the timer, in time");
            }
        }
    });
}
