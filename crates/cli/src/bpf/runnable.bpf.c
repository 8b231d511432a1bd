// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Count the runnable threads of one process in the scheduler, at each change.
 *
 * Johnson, Stoica, Ailamaki and Mowry, "Decoupling Contention Management from Scheduling" (ASPLOS
 * 2010), section 6.2.2: reading the accounting of every thread costs time linear in their number
 * and happens only at intervals. The authors ask for an operating system that reports changes at
 * once. Here the scheduler's tracepoints maintain a number in memory, and the process reads that
 * number without a system call.
 *
 * 1. A thread is runnable from its wake-up until it is switched out without being preempted. A
 *    preempted thread is still runnable.
 * 2. A wake-up does not prove that the thread was asleep: it may have been about to sleep and never
 *    have left its run queue. So each thread has a flag that says whether it is counted, and only a
 *    change of the flag changes the number.
 * 3. A missed event corrects itself: a thread that is switched in is runnable, whether or not its
 *    wake-up was seen. This counts the thread that was running before the programs were attached.
 *    It also covers kernels before 6.14, which report a thread with a pending signal as asleep
 *    although it stays runnable.
 * 4. The process's load controller is not counted. It stores its own thread id in `excluded`.
 * 5. `thread_ns` is the integral of the number over time. Each change exchanges `since` for the
 *    current time and adds the interval between the two, so that no interval is added twice or
 *    left out, on whichever processors the changes happen.
 *
 * This file only counts. The controller and the waiters decide (crates/locks/src/load).
 */

#include "helpers.h"

/* The fields used here. The loader relocates them for the running kernel. */
struct task_struct {
	int pid;
	int tgid;
} __attribute__((preserve_access_index));

/* Same layout as `Count` in crates/locks/src/runtime/sensor/bpf.rs. */
struct count {
	s64 runnable;
	u64 since;     /* time of the last change, CLOCK_MONOTONIC */
	u64 thread_ns; /* integral of `runnable` until then */
	u64 events;    /* switches and wake-ups of the process's threads */
	u32 process;   /* process id */
	u32 excluded;  /* thread id of the controller, or 0 */
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct count);
} count SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_TASK_STORAGE);
	NUMBER(map_flags, BPF_F_NO_PREALLOC);
	NUMBER(max_entries, 0);
	TYPE(key, int);
	TYPE(value, u32);
} counted SECTION(".maps");

static __inline __attribute__((always_inline)) void
record_state(struct task_struct *task, u32 is_runnable)
{
	u32 first = 0;
	struct count *all = bpf_map_lookup_elem(&count, &first);

	if (!all || (u32)task->tgid != all->process)
		return;
	__sync_fetch_and_add(&all->events, 1);
	if ((u32)task->pid == all->excluded)
		is_runnable = 0;
	u64 flags = is_runnable ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0;
	u32 *was_counted = bpf_task_storage_get(&counted, task, 0, flags);
	if (!was_counted || __sync_lock_test_and_set(was_counted, is_runnable) == is_runnable)
		return;
	s64 before = __sync_fetch_and_add(&all->runnable, is_runnable ? 1 : -1);
	u64 now = bpf_ktime_get_ns();
	u64 since = __sync_lock_test_and_set(&all->since, now);
	if (now > since && before > 0)
		__sync_fetch_and_add(&all->thread_ns, before * (now - since));
}

/* (preempt, prev, next, prev_state), since Linux 5.19 */
SECTION("tp_btf/sched_switch") int sched_switch(u64 *arguments)
{
	u32 stays = arguments[0] || !arguments[3];

	record_state((struct task_struct *)arguments[1], stays);
	record_state((struct task_struct *)arguments[2], 1);
	return 0;
}

/* (task) */
SECTION("tp_btf/sched_wakeup") int sched_wakeup(u64 *arguments)
{
	record_state((struct task_struct *)arguments[0], 1);
	return 0;
}

/* (task) */
SECTION("tp_btf/sched_wakeup_new") int sched_wakeup_new(u64 *arguments)
{
	record_state((struct task_struct *)arguments[0], 1);
	return 0;
}

/* The kernel lets a program call GPL-only helpers only under a compatible licence. */
char licence[] SECTION("license") = "Dual MIT/GPL";
