//! Placement: the context of a waking thread, the victim of an idle context, and the run queues to
//! balance.
//!
//! Under the lock-contention-aware scheduler, the special set and the other contexts are two sides,
//! each balanced on its own. Otherwise all contexts form one side.

use unconvoy_sched::set::target;

use super::queues::Queues;
use super::special::{Special, migration_ns};
use crate::parameters::Topology;

/// Whether balancing may move threads between the two contexts.
fn same_side(special: Option<&Special>, one: usize, other: usize) -> bool {
    special.is_none_or(|special| special.policy().same_side(one as u32, other as u32))
}

/// Chooses the context for `thread`, which wakes.
pub(super) fn to_wake_on(
    queues: &Queues,
    special: Option<&Special>,
    topology: &Topology,
    thread: u32,
) -> usize {
    let contexts = &queues.contexts;
    let task = queues.task(thread);
    let before = task.context;
    let is_allowed = |context: usize| {
        special.is_none_or(|special| special.policy().may_run(&task.policy_task, context as u32))
    };
    if is_allowed(before) && (queues.idle == 0 || contexts[before].is_free()) {
        return before;
    }
    let count = contexts.len();
    let core = contexts[before].core;
    let rank = |context: usize| {
        let other = contexts[context].core;
        (queues.busy_in_core[other], topology.distance(core, other))
    };
    (0..count)
        .map(|offset| (before + offset) % count)
        .filter(|&context| contexts[context].is_free() && is_allowed(context))
        .min_by_key(|&context| rank(context))
        .or_else(|| is_allowed(before).then_some(before))
        .or_else(|| {
            (0..count)
                .filter(|&context| is_allowed(context))
                .min_by_key(|&context| queues.waiting(context))
        })
        .unwrap_or(before)
}

/// The context of the special set to which `thread` must migrate before it acquires a lock, and the
/// cost of the migration. `None` if the thread stays.
pub(super) fn to_set(
    queues: &mut Queues,
    special: &mut Special,
    topology: &Topology,
    thread: u32,
) -> Option<(usize, u64)> {
    let there = special.before_lock(queues, thread)?;
    let core = |context: usize| queues.contexts[context].core;
    Some((there, migration_ns(topology.distance(core(queues.task(thread).context), core(there)))))
}

/// The least loaded context, to which `thread` must move when its task ends and the next begins.
/// `None` if the thread stays.
pub(super) fn to_renew_on(
    queues: &mut Queues,
    special: Option<&mut Special>,
    thread: u32,
) -> Option<usize> {
    if let Some(special) = special {
        special.renew(queues, thread);
    }
    let here = queues.task(thread).context;
    let load = |context: u32| queues.others_on(context as usize, thread);
    let there = target(queues.contexts.len() as u32, here as u32, load) as usize;
    (there != here).then_some(there)
}

/// The other context on the side of `context` that has the longest queue.
pub(super) fn to_steal_from(
    queues: &Queues,
    special: Option<&Special>,
    context: usize,
) -> Option<usize> {
    other_with_most(queues, special, context, |other| queues.waiting(other))
}

/// The other context on the side of `context` for which a thread of the highest priority waits.
pub(super) fn with_best_waiting(
    queues: &Queues,
    special: Option<&Special>,
    context: usize,
) -> Option<usize> {
    other_with_most(queues, special, context, |other| queues.best_waiting(other))
}

fn other_with_most<K: Ord>(
    queues: &Queues,
    special: Option<&Special>,
    context: usize,
    key: impl Fn(usize) -> K,
) -> Option<usize> {
    let count = queues.contexts.len();
    (1..count)
        .map(|offset| (context + offset) % count)
        .filter(|&other| same_side(special, context, other))
        .rev()
        .max_by_key(|&other| key(other))
}

/// The first context from `first` on whose threads, waiting ones included, have the lowest highest
/// priority. No context is idle.
pub(super) fn with_lowest_priority(queues: &Queues, first: usize) -> usize {
    let count = queues.contexts.len();
    let highest = |&context: &usize| {
        let running = queues.task(queues.contexts[context].current).priority();
        queues.best_waiting(context).map_or(running, |best| best.max(running))
    };
    let around = (0..count).map(|offset| (first + offset) % count);
    around.min_by_key(highest).unwrap_or(first)
}

/// Finds a waiting thread on the other side that the policy lets the idle `context` take: the first
/// movable thread of the longest queue that has one. Returns the thread's context and its index in
/// that queue.
pub(super) fn to_steal_across(
    queues: &Queues,
    special: &Special,
    context: usize,
) -> Option<(usize, usize)> {
    let may_move = |from: usize, place: usize| {
        let thread = queues.contexts[from].queue[place];
        special.policy().may_move(&queues.task(thread).policy_task, from as u32, context as u32)
    };
    (0..queues.contexts.len())
        .filter(|&from| !same_side(Some(special), from, context))
        .filter_map(|from| {
            Some((from, (0..queues.waiting(from)).find(|&place| may_move(from, place))?))
        })
        .max_by_key(|&(from, _)| queues.waiting(from))
}

/// Finds a context of the set whose only thread may leave, while other threads wait in the set, and
/// an idle context outside the set.
pub(super) fn to_push_out(queues: &Queues, special: &Special) -> Option<(usize, usize)> {
    let bound = special.policy().bound() as usize;
    let to = (bound..queues.contexts.len()).find(|&context| queues.contexts[context].is_free())?;
    let may_leave = |context: usize| {
        let task = queues.tasks.get(queues.contexts[context].current as usize)?;
        let is_alone = queues.waiting(context) == 0 && task.unpreemptible == 0;
        (is_alone && special.policy().may_move(&task.policy_task, context as u32, to as u32))
            .then_some(context)
    };
    let is_wanted = (0..bound).any(|context| queues.waiting(context) != 0);
    let from = if is_wanted { (0..bound).find_map(may_leave) } else { None };
    from.map(|from| (from, to))
}

/// For each side, the contexts with the longest and the shortest queue, if their lengths differ.
/// Among queues of equal length, the order of the scan from context `first` decides.
pub(super) fn imbalances(
    queues: &Queues,
    special: Option<&Special>,
    first: usize,
) -> impl Iterator<Item = (usize, usize)> + use<> {
    let count = queues.contexts.len();
    let of_side = |of: usize| {
        let mut side: Vec<usize> =
            (0..count).filter(|&context| same_side(special, of, context)).collect();
        let offset = first % side.len();
        side.rotate_left(offset);
        let side = || side.iter().copied();
        let longest = side().max_by_key(|&context| queues.waiting(context))?;
        let shortest = side().min_by_key(|&context| queues.waiting(context))?;
        (queues.waiting(longest) != queues.waiting(shortest)).then_some((longest, shortest))
    };
    let is_one = same_side(special, 0, count - 1);
    let sides = [of_side(0), if is_one { None } else { of_side(count - 1) }];
    sides.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;

    use unconvoy_sched::{Parameters, Search};

    use super::*;
    use crate::parameters::Order;

    fn queues_of(cores: usize, contexts_per_core: usize) -> Queues {
        Queues::new(cores, contexts_per_core, Order::RunTime, 1)
    }

    /// Contexts with the given numbers of waiting threads.
    fn queues(waiting: &[u32]) -> Queues {
        let mut queues = queues_of(waiting.len(), 1);
        for (context, &count) in waiting.iter().enumerate() {
            for _ in 0..count {
                queues.add_thread(0);
                queues.enqueue(queues.tasks.len() as u32 - 1, context);
            }
        }
        queues
    }

    /// The set is the first two contexts.
    fn special(refined: bool) -> Special {
        let parameters = if refined { Parameters::refined(4) } else { Parameters::published(4) };
        let search = Search::Fixed(NonZeroU32::new(2).expect("not 0"));
        Special::new(Parameters { search, ..parameters }, 0)
    }

    #[test]
    fn waking_thread_prefers_its_context_then_nearest_idle_core() {
        let topology = crate::presets::named("server").expect("a preset").topology;
        let mut queues = queues_of(topology.cores(), *topology.contexts_per_core as usize);
        (0..2).for_each(|_| queues.add_thread(0));
        let wakes_on = |queues: &Queues| to_wake_on(queues, None, &topology, 0);
        assert_eq!(wakes_on(&queues), 0);
        queues.contexts[0].current = 1;
        (queues.idle, queues.busy_in_core[0]) = (queues.idle - 1, 1);
        assert_eq!(wakes_on(&queues), 2, "not on the same core");
        queues.idle = 0;
        assert_eq!(wakes_on(&queues), 0, "no context is idle");
    }

    #[test]
    fn balancing_moves_from_longest_to_shortest_queue() {
        let queues = queues(&[1, 3, 0, 2]);
        assert_eq!(imbalances(&queues, None, 0).collect::<Vec<_>>(), [(1, 2)]);
        assert_eq!(to_steal_from(&queues, None, 2), Some(1));
        assert_eq!(imbalances(&self::queues(&[2, 2]), None, 0).count(), 0);
    }

    #[test]
    fn equal_queues_are_chosen_from_the_first_context() {
        let queues = queues(&[1, 0, 1, 0]);
        // The last of the longest queues, the first of the shortest.
        assert_eq!(imbalances(&queues, None, 0).collect::<Vec<_>>(), [(2, 1)]);
        assert_eq!(imbalances(&queues, None, 2).collect::<Vec<_>>(), [(0, 3)]);
        assert_eq!(to_steal_from(&queues, None, 1), Some(2), "the nearest longest queue");
    }

    #[test]
    fn set_and_rest_are_balanced_separately() {
        let (queues, special) = (queues(&[0, 5, 1, 0]), special(false));
        assert_eq!(imbalances(&queues, Some(&special), 0).collect::<Vec<_>>(), [(1, 0), (2, 3)]);
        assert_eq!(to_steal_from(&queues, Some(&special), 3), Some(2));
    }

    #[test]
    fn ordinary_thread_leaves_the_set_only_under_refined_policy() {
        let mut queues = queues(&[0, 2, 0, 0]);
        assert_eq!(to_steal_across(&queues, &special(true), 3), Some((1, 0)));
        assert_eq!(to_steal_across(&queues, &special(false), 3), None);
        queues.add_thread(0);
        queues.contexts[0].current = 2;
        assert_eq!(to_push_out(&queues, &special(true)), Some((0, 2)));
        assert_eq!(to_push_out(&queues, &special(false)), None);
        queues.tasks[2].unpreemptible = 1;
        assert_eq!(to_push_out(&queues, &special(true)), None);
    }
}
