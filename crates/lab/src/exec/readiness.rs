//! Tells when a task that sleeps or waits becomes runnable: at its wake, not at its next poll.
//!
//! Knows nothing of why a task waits.
//!
//! # Invariants
//! - R1: a task is counted as blocked exactly while its state is `ASLEEP`.
//! - R2: the first wake after falling asleep ends that state; later ones change nothing.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Wake, Waker};

use atomic_waker::AtomicWaker;

use super::meter::Meter;
use crate::scenario::GroupIndex;

/// Being polled, or about to fall asleep.
const AWAKE: u8 = 0;
/// Blocked, and counted so.
const ASLEEP: u8 = 1;
/// Woken; the next poll is due.
const WOKEN: u8 = 2;

struct Alarm {
    meter: Arc<Meter>,
    group: GroupIndex,
    state: AtomicU8,
    task: AtomicWaker,
}

impl Alarm {
    /// Leaves whatever state for `next`; a task that was asleep becomes runnable.
    fn rouse(&self, next: u8) {
        // Relaxed is enough for the counts; the wake itself synchronizes through the runtime.
        if self.state.swap(next, Ordering::Relaxed) == ASLEEP {
            self.meter.ready(self.group, self.meter.now());
        }
    }

    fn fall_asleep(&self) {
        let fell = self.state.compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
        // Otherwise a wake came during the poll: the task stayed runnable.
        if fell.is_ok() {
            self.meter.blocked(self.group, self.meter.now());
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rouse(WOKEN);
        self.task.wake();
    }
}

/// Awaits `what` for a runnable task of `group`, which is runnable again when this returns.
pub(crate) async fn blocking<F: Future>(meter: &Arc<Meter>, group: GroupIndex, what: F) -> F::Output {
    let alarm =
        Arc::new(Alarm { meter: Arc::clone(meter), group, state: AtomicU8::new(AWAKE), task: AtomicWaker::new() });
    let waker = Waker::from(Arc::clone(&alarm));
    let _rouses = RouseOnDrop(&alarm);
    let mut what = pin!(what);
    poll_fn(|context| {
        alarm.rouse(AWAKE);
        alarm.task.register(context.waker());
        let polled = what.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_pending() {
            alarm.fall_asleep();
        }
        polled
    })
    .await
}

/// A task that is dropped in its sleep counts as runnable until it is counted as gone.
struct RouseOnDrop<'a>(&'a Alarm);

impl Drop for RouseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.rouse(WOKEN);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::exec::meter::Totals;
    use crate::moment::{Moment, RunClock};

    const GROUP: GroupIndex = GroupIndex(0);

    /// How many tasks are runnable from here on.
    fn runnable(meter: &Meter) -> f64 {
        let mut now = Vec::new();
        meter.totals(&mut now);
        let far = Moment::from_nanos(1 << 60);
        now[0].mean_runnable(far, &Totals::default(), far)
    }

    #[test]
    fn a_waiting_task_is_runnable_from_its_wake_on() {
        let meter = Arc::new(Meter::new(1, RunClock::start()));
        meter.born(GROUP, meter.now());
        let inner: Arc<AtomicWaker> = Arc::default();
        let open = Arc::new(AtomicU8::new(0));
        let wait = poll_fn(|context| {
            inner.register(context.waker());
            if open.load(Ordering::Relaxed) == 1 { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut task = Box::pin(blocking(&meter, GROUP, wait));
        let mut context = Context::from_waker(Waker::noop());
        assert!(task.as_mut().poll(&mut context).is_pending());
        assert_eq!(runnable(&meter), 0.0);
        inner.wake();
        assert_eq!(runnable(&meter), 1.0);
        assert!(task.as_mut().poll(&mut context).is_pending());
        assert_eq!(runnable(&meter), 0.0);
        open.store(1, Ordering::Relaxed);
        assert!(task.as_mut().poll(&mut context).is_ready());
        assert_eq!(runnable(&meter), 1.0);
    }

    #[test]
    fn a_wake_during_the_poll_keeps_the_task_runnable() {
        let meter = Arc::new(Meter::new(1, RunClock::start()));
        meter.born(GROUP, meter.now());
        let wait = poll_fn(|context: &mut Context<'_>| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        let mut task = Box::pin(blocking(&meter, GROUP, wait));
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(runnable(&meter), 1.0);
        drop(task);
        assert_eq!(runnable(&meter), 1.0);
    }

    #[test]
    fn a_task_dropped_in_its_sleep_leaves_the_counts_even() {
        let meter = Arc::new(Meter::new(1, RunClock::start()));
        meter.born(GROUP, meter.now());
        let mut task = Box::pin(blocking(&meter, GROUP, std::future::pending::<()>()));
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(task);
        meter.gone(GROUP, meter.now());
        assert_eq!(runnable(&meter), 0.0);
    }
}
