// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Record the waits for the kernel's own locks: `unconvoy profile --kernel`.
 *
 * 1. A wait lasts from the tracepoint contention_begin to contention_end. A mutex or semaphore may
 *    begin several times, because the waiter first spins and then sleeps: this is one wait.
 * 2. A waiter that spins stays on its processor, where an interrupt may wait for another lock. Such
 *    waits are in `processors`, with room for the four nested contexts (thread, softirq, interrupt,
 *    NMI). Waiters that sleep are in `sleepers`, by thread. The kernel leaves out the end of a wait
 *    in an interrupt that came during `contention_end`, and its entry stays in `processors`. The
 *    programs do not take such an entry for a wait of another thread, or for the thread's next one.
 * 3. The map `locks` counts the waits at each address, with their times. These are exact.
 * 4. A wait of length t is sampled with probability min(1, t / period), as in waits.bpf.c. The end
 *    of a sampled wait sends the kernel's stack, the task and the number of its system call. The
 *    end of the first wait at each address does so too, for the lock's name.
 * 5. These programs take locks of the kernel's themselves. `is_busy` leaves those out.
 * 6. Either the whole machine is recorded, or the processes in `targets` and their descendants.
 *
 * `profile/kernel/event.rs` has the same layouts. x86-64 only, because of the system call's number.
 */

#include "contention.h"

INLINE u32 is_recorded(struct task_struct *task)
{
	u32 id = task->tgid;

	if (!is_filtered)
		return 1;
	u32 *recorded = bpf_map_lookup_elem(&targets, &id);
	return recorded && *recorded == RECORDED;
}

/* The waiter spins, and does not sleep before it has the lock. */
INLINE u32 is_spinning(u32 flags)
{
	return (flags & LCB_F_SPIN) && !(flags & LCB_F_MUTEX);
}

INLINE void fill_wait(struct wait *wait, u32 thread, u64 lock, u32 flags)
{
	wait->lock = lock;
	wait->flags = flags;
	wait->thread = thread;
	wait->begin = bpf_ktime_get_ns();
	wait->due = wait->begin + (bpf_get_prandom_u32() * period_ns >> 32);
}

INLINE void begin_spinning(struct processor *processor, u32 id, u64 lock, u32 flags)
{
	for (u32 slot = 0; slot < NESTED; slot++) {
		struct wait *wait = &processor->waits[slot];

		/* If another wait for the lock is here, its end was missed. */
		if (!wait->lock || wait->lock == lock) {
			fill_wait(wait, id, lock, flags);
			return;
		}
	}
	/* The ends of earlier waits were missed. */
	for (u32 slot = 0; slot < NESTED; slot++)
		processor->waits[slot].lock = 0;
	fill_wait(&processor->waits[0], id, lock, flags);
}

INLINE void begin_sleeping(u32 id, u64 lock, u32 flags)
{
	struct wait *known = bpf_map_lookup_elem(&sleepers, &id);
	struct wait wait = {};

	if (known && known->lock == lock)
		return;
	if (known) {
		fill_wait(known, id, lock, flags);
		return;
	}
	fill_wait(&wait, id, lock, flags);
	if (bpf_map_update_elem(&sleepers, &id, &wait, BPF_NOEXIST))
		__sync_fetch_and_add(&totals.lost_waits, 1);
}

/* Removes the thread's wait for a lock, which has ended; returns whether there was one. */
INLINE u32 take_wait(struct processor *processor, u32 id, u64 lock, struct wait *to)
{
	for (u32 slot = 0; slot < NESTED; slot++) {
		struct wait *wait = &processor->waits[slot];

		if (wait->lock == lock) {
			*to = *wait;
			wait->lock = 0;
			return to->thread == id;
		}
	}
	struct wait *wait = bpf_map_lookup_elem(&sleepers, &id);
	if (!wait || wait->lock != lock)
		return 0;
	*to = *wait;
	bpf_map_delete_elem(&sleepers, &id);
	return 1;
}

INLINE struct lock *lock_at(u64 address, u32 *is_new)
{
	struct lock *lock = bpf_map_lookup_elem(&locks, &address);
	u32 first = 0;

	*is_new = !lock;
	if (lock)
		return lock;
	struct lock *empty = bpf_map_lookup_elem(&unused_lock, &first);
	if (!empty)
		return 0;
	bpf_map_update_elem(&locks, &address, empty, BPF_NOEXIST);
	return bpf_map_lookup_elem(&locks, &address);
}

/* Two waiters may both store: then the longest may be the second longest. */
INLINE void record_wait(struct lock *lock, u32 flags, u64 ns, u64 now)
{
	__sync_fetch_and_add(&lock->waits, 1);
	__sync_fetch_and_add(&lock->wait_ns, ns);
	__sync_fetch_and_add(&lock->wait_counts[bucket(ns) & (BUCKETS - 1)], 1);
	if (flags & LCB_F_READ) {
		__sync_fetch_and_add(&lock->read_waits, 1);
		__sync_fetch_and_add(&lock->read_wait_ns, ns);
	}
	if (ns > lock->longest_ns) {
		lock->longest_ns = ns;
		lock->longest_at = now;
	}
}

/* The locks of the waiter's own process that have a name, wherever their memory is. */
INLINE u32 member_at(struct task_struct *task, u64 address)
{
	struct mm_struct *mm = task->mm;
	struct sighand_struct *sighand = task->sighand;

	if (mm && (u64)&mm->mmap_lock == address)
		return MMAP_LOCK;
	if (sighand && (u64)&sighand->siglock == address)
		return SIGLOCK;
	return 0;
}

INLINE void send(u64 *context, struct task_struct *task, struct wait *wait, u64 now, u32 is_first)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&totals.lost_events, 1);
		return;
	}
	event->lock = wait->lock;
	event->begin = wait->begin;
	event->due = wait->due;
	event->end = now;
	event->flags = wait->flags;
	event->is_first = is_first;
	event->thread = task->pid;
	event->call = -1;
	event->is_32_bit = 0;
	struct mm_struct *mm = task->mm;
	if (mm) {
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

		event->call = regs->orig_ax;
		event->is_32_bit = !!(task->thread_info.status & TS_COMPAT);
	}
	struct task_struct *leader = task->group_leader;
	bpf_probe_read_kernel(event->task, sizeof(event->task), leader->comm);
	s64 bytes = bpf_get_stack(context, event->stack, sizeof(event->stack), 0);
	event->stack_bytes = bytes > 0 ? bytes : 0;
	/* The command polls: a wake-up from here could need a lock that the waiter holds. */
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* (lock, flags) */
SECTION("tp_btf/contention_begin") int contention_begin(u64 *arguments)
{
	u64 lock = arguments[0];
	u32 flags = arguments[1], first = 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct processor *processor = bpf_map_lookup_elem(&processors, &first);

	if (!processor || processor->is_busy || !is_recorded(task))
		return 0;
	if (is_spinning(flags))
		begin_spinning(processor, task->pid, lock, flags);
	else
		begin_sleeping(task->pid, lock, flags);
	return 0;
}

/* (lock, result) */
SECTION("tp_btf/contention_end") int contention_end(u64 *arguments)
{
	u64 address = arguments[0], now;
	u32 first = 0, is_new;
	struct task_struct *task = bpf_get_current_task_btf();
	struct processor *processor = bpf_map_lookup_elem(&processors, &first);
	struct wait wait;

	if (!processor || processor->is_busy ||
	    !take_wait(processor, task->pid, address, &wait))
		return 0;
	now = bpf_ktime_get_ns();
	processor->is_busy = 1;
	struct lock *lock = lock_at(address, &is_new);
	if (lock) {
		record_wait(lock, wait.flags, now - wait.begin, now);
		lock->flags = wait.flags;
		if (!lock->member)
			lock->member = member_at(task, address);
		if (now >= wait.due || is_new)
			send(arguments, task, &wait, now, is_new);
	} else {
		__sync_fetch_and_add(&totals.lost_waits, 1);
	}
	processor->is_busy = 0;
	return 0;
}

/* (parent, child) */
SECTION("tp_btf/sched_process_fork") int sched_process_fork(u64 *arguments)
{
	struct task_struct *parent = (struct task_struct *)arguments[0];
	struct task_struct *child = (struct task_struct *)arguments[1];
	u32 parent_id = parent->tgid, child_id = child->tgid, recorded = RECORDED;

	if (parent_id == child_id)
		return 0;
	if (bpf_map_lookup_elem(&targets, &parent_id) &&
	    bpf_map_update_elem(&targets, &child_id, &recorded, 0))
		__sync_fetch_and_add(&totals.lost_waits, 1);
	return 0;
}

/* (task) */
SECTION("tp_btf/sched_process_free") int sched_process_free(u64 *arguments)
{
	struct task_struct *task = (struct task_struct *)arguments[0];
	u32 id = task->tgid;

	if (task->pid == task->tgid)
		bpf_map_delete_elem(&targets, &id);
	return 0;
}

/* Finds the process. */
SECTION("iter/task") int find_process(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	u32 inode = 0, value = first_target;

	if (!task || totals.target)
		return 0;
	if (own_id(task->group_leader, &inode) != process || inode != namespace)
		return 0;
	u32 id = task->tgid;
	totals.target = id;
	bpf_map_update_elem(&targets, &id, &value, 0);
	return 0;
}

/* The kernel lets a program call GPL-only helpers only under a compatible licence. */
char licence[] SECTION("license") = "Dual MIT/GPL";
