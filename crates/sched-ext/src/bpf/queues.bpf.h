/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queues: which one a task belongs to, and which one it is the turn of (6, 8).
 */
#ifndef UNCONVOY_QUEUES_H
#define UNCONVOY_QUEUES_H

#include "cores.bpf.h"
#include "known.bpf.h"

#define SET 0
#define REST 1
#define SOME 2
#define PINNED 16

/* Whose turn it is among a processor's queues. */
__u8 turn[MAX_CPUS];

/*
 * Tasks that were put into SET and SOME, or PINNED, and have not run since. Looking into a queue costs more than looking here, and
 * mostly only REST has anybody. Who is counted may not be there yet, or not any more; who is there is counted.
 */
__u64 waiting[4];
__u32 pinned[MAX_CPUS];

/* Which of the queues a task belongs to. One that ends stays where it is: the kernel does not ask where to any more. */
static __always_inline __u32 queue_of(struct task_struct *p, struct known *known)
{
	/* A program that runs raises the count of its own task by one. */
	__u16 fixed = p->migration_disabled;

	if (p->nr_cpus_allowed == 1 || fixed > 1 || (fixed == 1 && p != bpf_get_current_task_btf()) || p->flags & PF_EXITING)
		return PINNED;
	if (known->is_special && bpf_cpumask_test_cpu(cpu_at(0), p->cpus_ptr))
		return SET;
	return p->nr_cpus_allowed < (int)processors ? SOME : REST;
}

/* Queues are first in, first out: who is to have more gets longer slices, from a fifth to four times the usual. */
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
	else
		__sync_fetch_and_add(&waiting[queue & 3], by);
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
	if (queue == REST)
		return;
	count(queue, 1);
	known->queued = queue + 1;
}

static __always_inline bool take(__u64 queue)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
		return scx_bpf_dsq_move_to_local(queue);
	return scx_bpf_consume(queue);
}

/* Whether there was a task for the processor, which it has got. */
static __always_inline bool take_turns(__s32 cpu)
{
	__u32 bound = bound_of(set);
	bool inside = rank(cpu) < bound;
	__u8 first = turn[slot(cpu)]++;
	__u32 i;

#pragma unroll
	for (i = 0; i < 4; i++) {
		__u32 which = (first + i) & 3;

		if (which == 0 && (inside ? waiting[SET] && take(SET) : take(REST)))
			return true;
		if (which == 1 && pinned[slot(cpu)] && take((__u64)PINNED + cpu))
			return true;
		if (which == 2 && waiting[SOME] && take(SOME))
			return true;
		if (which == 3 && inside && bound >= processors && take(REST))
			return true;
	}
	if (inside && take(REST)) {
		struct totals *sum = sums();

		if (sum)
			sum->guests++;
		return true;
	}
	return false;
}

#endif
