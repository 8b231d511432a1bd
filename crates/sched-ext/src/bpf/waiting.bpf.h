/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waiting times, from the contention trace points (3).
 */
#ifndef UNCONVOY_WAITING_H
#define UNCONVOY_WAITING_H

#include "known.bpf.h"

static __always_inline __u32 kind_of(__u32 flags)
{
	if (flags & LCB_F_MUTEX)
		return LOCK_MUTEX;
	if (!flags || (flags & (LCB_F_RT | LCB_F_PERCPU)))
		return LOCK_OTHER;
	if (flags & (LCB_F_READ | LCB_F_WRITE))
		return flags & LCB_F_SPIN ? LOCK_RWLOCK : LOCK_RWSEM;
	return LOCK_SPIN;
}

static __always_inline bool may_sleep(__u32 kind)
{
	return kind != LOCK_SPIN && kind != LOCK_RWLOCK;
}

/*
 * Adds a wait on the processor up to `now`. running() moves `since` forward, so the wait excludes
 * time off the processor.
 */
static __always_inline void add_wait(struct known *known, __u64 now)
{
	struct totals *sum = sums();

	if (now <= known->since)
		return;
	known->waited_ns += now - known->since;
	if (sum)
		sum->spun_ns[known->kind & (LOCK_ROOM - 1)] += now - known->since;
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, unsigned int flags)
{
	struct known *known = known_of(bpf_get_current_task_btf());
	__u32 kind = kind_of(flags);
	struct totals *sum;

	if (!known)
		return 0;
	if (known->since) {
		/*
		 * One of three things: the same wait continues, for example by sleeping after
		 * spinning; a nested wait begins; or the end of the last wait was missed.
		 */
		if (known->lock == (__u64)lock || !may_sleep(kind))
			return 0;
	}
	known->lock = (__u64)lock;
	known->kind = kind;
	known->since = bpf_ktime_get_ns();
	sum = sums();
	if (sum)
		sum->waits[kind & (LOCK_ROOM - 1)]++;
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock, int result)
{
	struct known *known = known_of(bpf_get_current_task_btf());

	if (!known || !known->since || known->lock != (__u64)lock)
		return 0;
	add_wait(known, bpf_ktime_get_ns());
	known->since = 0;
	return 0;
}

#endif
