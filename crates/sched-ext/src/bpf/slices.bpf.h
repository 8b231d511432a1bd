/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Time slices, and the choice of those that go to the policy (2, 4).
 */
#ifndef UNCONVOY_SLICES_H
#define UNCONVOY_SLICES_H

#include "queues.bpf.h"
#include "waiting.bpf.h"

#define THOUSAND 1000ULL
#define SHORTEST_NS 4000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} records SEC(".maps");

static __always_inline struct record *new_record(struct known *known, __u32 tid, __u32 kind)
{
	struct record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record)
		return 0;
	record->task = known->task;
	record->parent = known->parent;
	record->ran_ns = 0;
	record->waited_ns = 0;
	record->bound = 0;
	record->tid = tid;
	record->core = 0;
	record->kind = kind;
	record->is_special = known->is_special;
	record->parent_tid = known->parent_tid;
	record->pad = 0;
	known->is_recorded = 1;
	return record;
}

static __always_inline void record_slice(struct task_struct *p, struct known *known, __u64 ran_ns,
					 struct totals *sum)
{
	/*
	 * Votes may fill only half of the ring; the other half is for records that the policy
	 * needs.
	 */
	bool is_vote = known->is_special;
	struct record *record = 0;

	if (!is_vote || bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) < (1 << 17))
		record = new_record(known, p->pid, RECORD_SLICE);
	if (!record) {
		if (sum)
			sum->lost++;
		return;
	}
	record->ran_ns = ran_ns;
	record->waited_ns = known->waited_ns;
	record->bound = known->bound;
	record->core = rank(scx_bpf_task_cpu(p));
	bpf_ringbuf_submit(record, is_vote ? BPF_RB_NO_WAKEUP : 0);
	if (sum)
		sum->recorded++;
}

/*
 * Ends the present slice if it is long enough; otherwise, the task's next run continues the slice.
 * Call this when `p` stops running, and when dispatch() lets it keep its processor.
 */
static __always_inline void end_slice(struct task_struct *p, struct known *known)
{
	__u64 ran_ns = p->se.sum_exec_runtime - known->began;
	__u32 waited = known->waits;
	struct totals *sum;

	if (known->since && may_sleep(known->kind)) {
		__u64 now = bpf_ktime_get_ns();

		add_wait(known, now);
		known->since = now;
	} else {
		/* A waiter that never sleeps cannot switch: the end of its wait was missed (3). */
		known->since = 0;
	}
	if (ran_ns < SHORTEST_NS)
		return;
	sum = sums();
	if (sum)
		sum->slices++;
	known->waits = known->waited_ns * THOUSAND > ran_ns * threshold;
	if ((known->is_special || known->waits || waited) && !(p->flags & PF_KTHREAD) &&
	    (__u32)p->tgid != loader)
		record_slice(p, known, ran_ns, sum);
	known->began += ran_ns;
	known->waited_ns = 0;
}

/* Records that `p` runs on processor `cpu`, and restarts its slice if the set has changed. */
static __always_inline void record_running(struct task_struct *p, struct known *known, __s32 cpu)
{
	__u64 now_set = set;
	__u32 queue;

	if (known->bound != now_set) {
		known->bound = now_set;
		known->began = p->se.sum_exec_runtime;
		known->waited_ns = 0;
	}
	if (!specials) {
		on[slot(cpu)] = ON_ANY;
		return;
	}
	queue = queue_of(p, known);
	on[slot(cpu)] = queue == SET ? ON_SPECIAL : queue == REST ? ON_BORROWER : ON_ANY;
	if (queue == SET && !in_set(cpu)) {
		/* The set shrank after this core was chosen. */
		struct totals *sum = sums();

		if (sum)
			sum->displaced++;
		scx_bpf_kick_cpu(cpu, KERNELS(scx_kick_flags, SCX_KICK_PREEMPT));
	}
}

SEC("struct_ops/running")
void BPF_PROG(unconvoy_running, struct task_struct *p)
{
	struct known *known = known_of(p);

	if (!known)
		return;
	leave_queue(known);
	if (known->since) {
		if (may_sleep(known->kind)) {
			struct totals *sum = sums();
			__u64 now = bpf_ktime_get_ns();

			if (sum && now > known->since)
				sum->slept_ns[known->kind & (LOCK_ROOM - 1)] += now - known->since;
			known->since = now;
		} else {
			known->since = 0;
		}
	}
	record_running(p, known, scx_bpf_task_cpu(p));
}

SEC("struct_ops/stopping")
void BPF_PROG(unconvoy_stopping, struct task_struct *p, bool runnable)
{
	struct known *known = known_of(p);

	if (known)
		end_slice(p, known);
}

#endif
