use super::*;
use crate::{Span, Vspan, Weight};
use alloc::collections::{BTreeMap, VecDeque};
use proptest::prelude::*;

const SLICE: u64 = 1_000_000;

fn at(nanos: u64) -> Vtime {
    Vtime::ZERO.plus(Vspan::of(Span::from_nanos(nanos), Weight::MIN))
}

fn id(index: usize) -> GroupId {
    GroupId::new(u32::try_from(index).unwrap())
}

fn push(queue: &mut FairQueue<(), u32>, group: usize, task: u32) {
    let slot = queue.ensure(id(group), Slot::ROOT, || ());
    queue.push(slot, task);
}

#[test]
fn the_smallest_clock_is_picked_and_ties_go_to_the_lower_id() {
    let mut queue = FairQueue::default();
    for group in [2, 0, 1] {
        push(&mut queue, group, 0);
    }
    let slot = queue.pick(|group| at([5, 3, 3][group.index()])).unwrap();
    assert_eq!(queue.group(slot), id(1));
}

#[test]
fn tasks_of_one_group_leave_in_the_order_they_came() {
    let mut queue = FairQueue::default();
    (0..3).for_each(|task| push(&mut queue, 0, task));
    let slot = queue.pick(|_| Vtime::ZERO).unwrap();
    assert_eq!([queue.pop(slot), queue.pop(slot), queue.pop(slot), queue.pop(slot)], [Some(0), Some(1), Some(2), None]);
}

#[test]
fn a_requeue_followed_by_a_pick_changes_no_count() {
    let mut queue = FairQueue::default();
    push(&mut queue, 0, 7);
    let mut edges = alloc::vec![];
    queue.settle_counts(|_, edge| edges.push(edge), |_, ()| {});
    let slot = queue.find(id(0)).unwrap();
    queue.pin(slot);
    let task = queue.pop(slot).unwrap();
    queue.push(slot, task);
    queue.settle_counts(|_, edge| edges.push(edge), |_, ()| {});
    assert_eq!(edges, [Edge::Up]);
}

#[test]
fn a_group_leaves_with_its_last_task_unless_it_is_pinned() {
    let mut queue = FairQueue::default();
    push(&mut queue, 0, 7);
    let slot = queue.find(id(0)).unwrap();
    queue.pin(slot);
    queue.pop(slot);
    let mut gone = 0;
    queue.settle_counts(|_, _| {}, |_, ()| gone += 1);
    assert_eq!((gone, queue.find(id(0))), (0, Some(slot)));
    queue.unpin(slot);
    queue.settle_counts(|_, _| {}, |_, ()| gone += 1);
    assert_eq!((gone, queue.find(id(0))), (1, None));
}

#[test]
fn a_count_moves_with_the_tasks() {
    let (mut from, mut to) = (FairQueue::default(), FairQueue::default());
    push(&mut from, 0, 7);
    from.settle_counts(|_, _| {}, |_, ()| {});
    let slot = from.find(id(0)).unwrap();
    let task = from.pop(slot).unwrap();
    let count = from.take_count(slot).unwrap();
    let mut edges = 0;
    from.settle_counts(|_, _| edges += 1, |_, ()| {});
    let slot = to.ensure(id(0), Slot::ROOT, || ());
    to.push(slot, task);
    assert_eq!(to.give_count(slot, count), None);
    to.settle_counts(|_, _| edges += 1, |_, ()| {});
    assert_eq!(edges, 0);
    assert_eq!(to.counted().collect::<Vec<_>>(), [id(0)]);
}

#[test]
fn a_tree_is_descended_by_clock_at_each_level() {
    let mut queue = FairQueue::default();
    let clocks = [10u64, 20, 9, 1];
    for (parent, leaf) in [(0, 2), (1, 3)] {
        let parent = queue.ensure(id(parent), Slot::ROOT, || ());
        let leaf = queue.ensure(id(leaf), parent, || ());
        queue.push(leaf, 0u32);
    }
    let slot = queue.pick(|group| at(clocks[group.index()])).unwrap();
    assert_eq!(queue.group(slot), id(2), "the parent's clock decides before the child's");
    assert_eq!(queue.path(slot).map(|slot| queue.group(slot)).collect::<Vec<_>>(), [id(2), id(0)]);
    queue.pop(slot);
    let mut gone = alloc::vec![];
    queue.settle_counts(|_, _| {}, |group, ()| gone.push(group));
    assert_eq!(gone, [id(2), id(0)], "a parent goes with its last child");
}

#[test]
fn the_smallest_that_can_be_used_is_found_among_few_and_among_many() {
    for groups in [8, 200] {
        let mut queue = FairQueue::default();
        (0..groups).for_each(|group| push(&mut queue, group, 0));
        let clock = |group: GroupId| at(group.index() as u64);
        let slot = queue.smallest_usable(Slot::ROOT, clock, |queue, slot| queue.group(slot).index() >= groups - 3);
        assert_eq!(slot.map(|slot| queue.group(slot)), Some(id(groups - 3)), "{groups} groups");
        assert_eq!(queue.smallest_usable(Slot::ROOT, clock, |_, _| false), None);
    }
}

#[test]
fn tasks_with_masks_count_as_waiting() {
    let mut queue = FairQueue::default();
    let slot = queue.ensure(id(0), Slot::ROOT, || ());
    queue.push_masked(slot, MaskId::new(1), 7u32);
    assert_eq!((queue.len(), queue.waiting(slot)), (1, 1));
    let none = Admits { common: true, masked: |_| false };
    assert_eq!((queue.has_admitted(slot, &none), queue.pop_admitted(slot, &none)), (false, None));
    assert_eq!(queue.pick(|_| Vtime::ZERO), Some(slot));
    assert_eq!((queue.pop(slot), queue.len()), (Some(7), 0));
}

#[derive(Clone, Debug)]
enum Op {
    Push(usize),
    Pop,
    Charge(usize, u64),
    Refund(usize, u64),
    Settle,
}

fn op(groups: usize) -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..groups).prop_map(Op::Push),
        3 => Just(Op::Pop),
        3 => (0..groups, 0..SLICE).prop_map(|(group, nanos)| Op::Charge(group, nanos)),
        1 => (0..groups, 0..SLICE / 2).prop_map(|(group, nanos)| Op::Refund(group, nanos)),
        2 => Just(Op::Settle),
    ]
}

/// Runs the operations beside a plain model. `exact`: the pick must have the smallest clock; otherwise it may be late
/// by what clocks fell since their keys were stored.
fn check(groups: usize, ops: Vec<Op>, exact: bool) {
    let mut queue = FairQueue::default();
    let mut model: BTreeMap<usize, VecDeque<u32>> = BTreeMap::new();
    let mut counted: BTreeMap<GroupId, i32> = BTreeMap::new();
    let mut clocks = alloc::vec![1u64 << 40; groups];
    let (mut next, mut fell) = (0, 0);
    for op in ops {
        match op {
            Op::Push(group) => {
                push(&mut queue, group, next);
                model.entry(group).or_default().push_back(next);
                next += 1;
            }
            Op::Charge(group, nanos) => clocks[group] += nanos,
            Op::Refund(group, nanos) => {
                clocks[group] -= nanos;
                fell += nanos;
            }
            Op::Settle => {
                let edge = |group, edge| *counted.entry(group).or_default() += if edge == Edge::Up { 1 } else { -1 };
                queue.settle_counts(edge, |_, ()| {});
                for group in 0..groups {
                    assert_eq!(
                        counted.get(&id(group)).copied().unwrap_or(0),
                        i32::from(model.contains_key(&group)),
                        "I1"
                    );
                }
            }
            Op::Pop => {
                let slot = queue.pick(|group| at(clocks[group.index()]));
                let least = model.keys().map(|group| (clocks[*group], *group)).min();
                assert_eq!(slot.is_some(), least.is_some());
                if let (Some(slot), Some((least, first))) = (slot, least) {
                    let group = queue.group(slot).index();
                    assert!(!exact || group == first, "Q2");
                    assert!(clocks[group] <= least + fell, "Q3");
                    let task = queue.pop(slot).unwrap();
                    let tasks = model.get_mut(&group).unwrap();
                    assert_eq!(tasks.pop_front(), Some(task));
                    if tasks.is_empty() {
                        model.remove(&group);
                    }
                }
            }
        }
        assert_eq!(queue.len(), model.values().map(VecDeque::len).sum::<usize>(), "Q4");
    }
}

proptest! {
    #[test]
    fn few_groups_behave_as_the_model(ops in proptest::collection::vec(op(8), 0..300)) {
        check(8, ops, true);
    }

    #[test]
    fn many_groups_behave_as_the_model_up_to_what_clocks_fell(ops in proptest::collection::vec(op(200), 0..1500)) {
        check(200, ops, false);
    }
}
