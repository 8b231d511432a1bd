/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues: the queue of a task, and the order in which a core serves its queues (6, 8).
 */
#ifndef UNCONVOY_QUEUES_H
#define UNCONVOY_QUEUES_H

#include "cores.bpf.h"
#include "known.bpf.h"

#define SET 0
#define REST 64 /* + node */
#define SOME 128 /* + node */
#define PINNED 192 /* + processor */

/* A core balances nodes at every BALANCE_INTERVAL-th access to a kind of queue; a power of two. */
#define BALANCE_INTERVAL 8

/* Index of the queue that a processor serves first next time. */
__u8 turn[MAX_CPUS];

/* Number of a processor's accesses to REST and SOME. */
__u32 accesses[MAX_CPUS][2];

/*
 * Tasks that entered SET, REST, SOME or PINNED and have not run since. Reading a counter is cheaper
 * than accessing a queue, and on a machine with idle cores the queues are empty. A counter may
 * exceed the length of its queue, since it includes tasks that are not in the queue yet or have
 * left it; it never falls short.
 */
__u64 waiting;
__u64 rest[MAX_NODES][8]; /* a cache line per node */
__u64 some[MAX_NODES][8];
__u32 pinned[MAX_CPUS];

/* At least the number of processors that may ever be online; set by unconvoy_init(). */
__u32 possible = 0;

/* Whether a task may run on every online processor. A mask may include offline ones, too. */
static __always_inline bool may_run_anywhere(struct task_struct *p)
{
	const struct cpumask *online;
	bool result;

	if (p->nr_cpus_allowed < (int)processors)
		return false;
	if (p->nr_cpus_allowed >= (int)possible)
		return true;
	online = scx_bpf_get_online_cpumask();
	result = bpf_cpumask_subset(online, p->cpus_ptr);
	scx_bpf_put_cpumask(online);
	return result;
}

/*
 * Kind of queue that a task belongs to. An ending task stays on its processor: the kernel no longer
 * asks where to run it.
 */
static __always_inline __u32 queue_of(struct task_struct *p, struct known *known)
{
	/* Each BPF program raises migration_disabled of the current task by one while it runs. */
	__u16 fixed = p->migration_disabled;

	if (p->nr_cpus_allowed == 1 || fixed > 1 ||
	    (fixed == 1 && p != bpf_get_current_task_btf()) || p->flags & PF_EXITING)
		return PINNED;
	if (known->is_special && bpf_cpumask_test_cpu(cpu_at(0), p->cpus_ptr))
		return SET;
	return may_run_anywhere(p) ? REST : SOME;
}

/* The REST or SOME queue for a task that ran on processor `cpu`. */
static __always_inline __u32 near_queue(__u32 kind, __s32 cpu)
{
	__u32 n = node_on(cpu);

	if (kind == REST && nodes > 1 && !outside(n))
		n = node_on(cpu_at(bound_of(set)));
	return kind + n;
}

/*
 * Queues are first in, first out. A task's weight sets the length of its slices instead, from a
 * fifth to four times the default.
 */
static __always_inline __u64 slice_of(struct task_struct *p)
{
	__u64 weight = p->scx.weight;

	if (weight == 100)
		return slice_ns;
	weight = weight < 20 ? 20 : weight > 400 ? 400 : weight;
	return slice_ns * weight / 100;
}

static __always_inline void insert(struct task_struct *p, __u64 queue, __u64 flags)
{
	__u64 slice = slice_of(p);

	if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, queue, slice, flags);
	else
		scx_bpf_dispatch(p, queue, slice, flags);
}

static __always_inline void count(__u32 queue, int by)
{
	if (queue >= PINNED)
		__sync_fetch_and_add(&pinned[slot(queue - PINNED)], by);
	else if (queue >= SOME)
		__sync_fetch_and_add(&some[node_slot(queue - SOME)][0], by);
	else if (queue >= REST)
		__sync_fetch_and_add(&rest[node_slot(queue - REST)][0], by);
	else
		__sync_fetch_and_add(&waiting, by);
}

static __always_inline void leave_queue(struct known *known)
{
	__u32 queued = known->queued;

	if (!queued)
		return;
	known->queued = 0;
	count(queued - 1, -1);
}

static __always_inline void join_queue(struct known *known, __u32 queue)
{
	leave_queue(known);
	count(queue, 1);
	known->queued = queue + 1;
}

static __always_inline bool take(__u64 queue)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
		return scx_bpf_dsq_move_to_local(queue);
	return scx_bpf_consume(queue);
}

static __always_inline bool take_of(__u32 kind, __u32 n)
{
	return (kind == REST ? rest[node_slot(n)][0] : some[node_slot(n)][0]) &&
	       take((__u64)kind + n);
}

static __always_inline __u64 cores_for(__u32 kind, __u32 n)
{
	return kind == REST ? outside(n) : node[node_slot(n)].last - node[node_slot(n)].first;
}

/*
 * Whether more tasks per core wait on node `there` than on node `here`, even after one task has
 * moved from there to here.
 */
static __always_inline bool waits_longer(__u32 kind, __u32 there, __u32 here)
{
	__u64 tasks_there = scx_bpf_dsq_nr_queued(kind + there);
	__u64 tasks_here = scx_bpf_dsq_nr_queued(kind + here);

	return tasks_there * cores_for(kind, here) > (tasks_here + 1) * cores_for(kind, there);
}

/*
 * Takes a task from the nodes' queues of one kind. The function is not static, so that the verifier
 * checks it once and not at each call.
 */
__noinline int take_near(__u32 kind, __s32 cpu)
{
	__u32 here = node_on(cpu);
	struct totals *sum;
	bool taken = false;
	__u32 access, i;

	if (nodes == 1)
		return take_of(kind, 0);
	access = accesses[slot(cpu)][kind == SOME]++;
	if (access % BALANCE_INTERVAL == 0) {
		__u32 there = nearest(here, 1 + access / BALANCE_INTERVAL % (nodes - 1));

		taken = waits_longer(kind, there, here) && take_of(kind, there);
	}
	if (!taken && take_of(kind, here))
		return true;
	bpf_for(i, 1, nodes) {
		if (taken)
			break;
		taken = take_of(kind, nearest(here, i));
	}
	sum = sums();
	if (taken && sum)
		sum->crossings++;
	return taken;
}

/*
 * Moves the next task to the processor. Returns whether there was one. With `may_lend`, a processor
 * of the set may run an ordinary task.
 */
static __always_inline bool take_turns(__s32 cpu, bool may_lend)
{
	__u32 bound = bound_of(set);
	bool inside = rank(cpu) < bound;
	__u8 first = turn[slot(cpu)]++;
	__u32 i;

#pragma unroll
	for (i = 0; i < 4; i++) {
		__u32 which = (first + i) & 3;

		if (which == 0 && (inside ? waiting && take(SET) : take_near(REST, cpu)))
			return true;
		if (which == 1 && pinned[slot(cpu)] && take((__u64)PINNED + cpu))
			return true;
		if (which == 2 && take_near(SOME, cpu))
			return true;
		if (which == 3 && inside && bound >= processors && take_near(REST, cpu))
			return true;
	}
	if (inside && may_lend && take_near(REST, cpu)) {
		struct totals *sum = sums();

		if (sum)
			sum->borrowed++;
		return true;
	}
	return false;
}

#endif
