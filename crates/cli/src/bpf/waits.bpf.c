// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Record the futex waits of one process from outside: `unconvoy profile --pid`.
 *
 * 1. A wait lasts from the entry to the exit of a futex system call. The map `threads` has the wait
 *    of each thread. A call that returns EAGAIN did not wait.
 * 2. The map `locks` counts the waits at each address, with their times. These are exact.
 * 3. A wait of length t is sampled with probability min(1, t / period): the thread draws a time
 *    within the first period of its wait (`due`), and a wait that lasts until then is sampled. The
 *    exit copies the thread's registers and stack, which have not changed since the entry. The
 *    command unwinds them. Besides, the first wait at each address is copied, for its name.
 * 4. The holder is the first thread that wakes waiters at the address after `due`. Its stack is
 *    copied as it enters the system call. So that a wake-up finds out whether a sampled wait wants
 *    it, each address has slots for the waiters' due times. Two waiters that share a slot lose one
 *    holder, not a wait.
 * 5. A thread that has waited holds the lock from the exit of its wait to its next wake-up at the
 *    same address, unless it waits there again. These are the measured holds.
 * 6. The kernel copies no stack page that is not in memory. A copy ends at such a page, at the
 *    thread control block above a thread's stack, or after 32 KiB.
 *
 * `profile/outside/event.rs` has the same layouts. x86-64 only.
 */

#include "waits.h"

/* Two threads may both store: then the longest may be the second longest. */
INLINE void record_wait(struct lock *lock, u64 ns, u64 now)
{
	__sync_fetch_and_add(&lock->waits, 1);
	__sync_fetch_and_add(&lock->wait_ns, ns);
	__sync_fetch_and_add(&lock->wait_counts[bucket(ns) & (BUCKETS - 1)], 1);
	if (ns > lock->longest_ns) {
		lock->longest_ns = ns;
		lock->longest_at = now;
	}
}

INLINE void record_hold(struct lock *lock, u64 ns)
{
	__sync_fetch_and_add(&lock->holds, 1);
	__sync_fetch_and_add(&lock->hold_ns, ns);
	__sync_fetch_and_add(&lock->hold_counts[bucket(ns) & (BUCKETS - 1)], 1);
	if (ns > lock->longest_hold_ns)
		lock->longest_hold_ns = ns;
}

/* Copies the stack from `from` to `limit` in pieces within a page; returns the number of bytes. */
INLINE u32 copy_stack(u8 *to, u32 capacity, u64 from, u64 limit)
{
	u32 done = 0;

	for (u32 piece = 0; piece < capacity / PIECE; piece++) {
		u64 size = PIECE - (from & (PIECE - 1));

		if (from >= limit || done > capacity - PIECE)
			break;
		if (size > limit - from)
			size = limit - from;
		asm volatile("" : "+r"(size));
		if (size == 0 || size > PIECE)
			break;
		if (bpf_probe_read_user(to + done, size, (void *)from))
			break;
		done += size;
		from += size;
	}
	return done;
}

INLINE u64 end_of_stack(struct task_struct *task, u64 sp)
{
	u64 limit = sp + MOST;
	u64 control_block = task->thread.fsbase;
	struct mm_struct *mm = task->mm;
	u64 start = mm ? mm->start_stack : 0;

	if (control_block > sp && control_block < limit)
		limit = control_block;
	if (start > sp && start < limit)
		limit = start;
	return limit;
}

INLINE void fill(struct event *event, u32 capacity, u32 type, struct wait *wait, u64 address,
		 u64 now, struct pt_regs *regs, u64 limit)
{
	event->type = type;
	event->thread = wait ? wait->thread : own_id(bpf_get_current_task_btf(), 0);
	event->address = address;
	event->begin = wait ? wait->begin : now;
	event->due = wait ? wait->due : 0;
	event->end = now;
	event->ip = regs->ip;
	event->sp = regs->sp;
	event->bp = regs->bp;
	event->command = wait ? wait->command : 0;
	event->is_first = wait ? wait->is_first : 0;
	event->stack_bytes = copy_stack(event->stack, capacity, event->sp, limit);
	/* The command polls: a wake-up from here would cost the process an interrupt. */
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

INLINE void send(u32 type, struct wait *wait, u64 address, u64 now, struct pt_regs *regs)
{
	u64 sp = regs->sp;
	u64 limit = end_of_stack(bpf_get_current_task_btf(), sp);
	struct event *event;

	if (limit - sp <= PIECE) {
		event = bpf_ringbuf_reserve(&events, sizeof(*event) + SMALL, 0);
		if (event) {
			fill(event, SMALL, type, wait, address, now, regs, limit);
			return;
		}
	} else {
		event = bpf_ringbuf_reserve(&events, sizeof(*event) + LARGE, 0);
		if (event) {
			fill(event, LARGE, type, wait, address, now, regs, limit);
			return;
		}
	}
	__sync_fetch_and_add(&totals.lost_events, 1);
}

/* Returns the entry for an address. `is_new` tells whether this call made it. */
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

INLINE struct wait *wait_of(u32 thread)
{
	struct wait *wait = bpf_map_lookup_elem(&threads, &thread);

	if (wait)
		return wait;
	struct wait none = {};
	bpf_map_update_elem(&threads, &thread, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&threads, &thread);
}

INLINE void begin_wait(struct task_struct *task, struct pt_regs *regs, u64 address, u32 command)
{
	u32 id = task->pid, is_new;
	struct wait *wait = wait_of(id);
	struct lock *lock = lock_at(address, &is_new);

	if (!wait || !lock) {
		__sync_fetch_and_add(&totals.lost_waits, 1);
		return;
	}
	if (!wait->thread)
		wait->thread = own_id(task, 0);
	wait->command = command;
	wait->is_first = is_new;
	wait->ip = regs->ip;
	wait->sp = regs->sp;
	wait->bp = regs->bp;
	wait->held = 0;
	wait->begin = bpf_ktime_get_ns();
	wait->due = wait->begin + (bpf_get_prandom_u32() * period_ns >> 32);
	lock->due[id % SLOTS] = wait->due;
	wait->address = address;
}

INLINE void wake(struct pt_regs *regs, u64 address)
{
	struct lock *lock = bpf_map_lookup_elem(&locks, &address);
	u32 id = bpf_get_current_pid_tgid(), is_wanted = 0;

	if (!lock)
		return;
	u64 now = bpf_ktime_get_ns();
	struct wait *own = bpf_map_lookup_elem(&threads, &id);
	if (own && own->held == address) {
		record_hold(lock, now - own->held_since);
		own->held = 0;
	}
	for (u32 slot = 0; slot < SLOTS; slot++) {
		u64 due = lock->due[slot];

		if (due && due <= now) {
			lock->due[slot] = 0;
			is_wanted = 1;
		}
	}
	if (is_wanted)
		send(EVENT_WAKE, 0, address, now, regs);
}

INLINE u32 is_wait(u32 command)
{
	return command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET || command == FUTEX_LOCK_PI ||
	       command == FUTEX_LOCK_PI2 || command == FUTEX_WAIT_REQUEUE_PI;
}

INLINE u32 is_wake(u32 command)
{
	return command == FUTEX_WAKE || command == FUTEX_WAKE_BITSET || command == FUTEX_WAKE_OP ||
	       command == FUTEX_REQUEUE || command == FUTEX_CMP_REQUEUE ||
	       command == FUTEX_CMP_REQUEUE_PI || command == FUTEX_UNLOCK_PI;
}

/* (regs, number) */
SECTION("tp_btf/sys_enter") int sys_enter(u64 *arguments)
{
	u64 number = arguments[1], ids;

	if (number != SYS_futex && (number < SYS_futex_waitv || number > SYS_futex_wait) &&
	    number != SYS_exit)
		return 0;
	ids = bpf_get_current_pid_tgid();
	if (ids >> 32 != totals.target)
		return 0;
	struct pt_regs *regs = (struct pt_regs *)arguments[0];
	u64 address = regs->di;
	if (number == SYS_exit) {
		u32 id = ids;

		bpf_map_delete_elem(&threads, &id);
	} else if (number == SYS_futex) {
		u32 command = regs->si & FUTEX_COMMAND;

		if (is_wait(command))
			begin_wait(bpf_get_current_task_btf(), regs, address, command);
		else if (is_wake(command))
			wake(regs, address);
	} else if (number == SYS_futex_wake) {
		wake(regs, address);
	} else if (number == SYS_futex_wait) {
		begin_wait(bpf_get_current_task_btf(), regs, address, FUTEX_WAIT_BITSET);
	} else if (number == SYS_futex_waitv) {
		/* The first of the words stands for all of them. */
		struct {
			u64 value, address;
		} first = {};

		if (!bpf_probe_read_user(&first, sizeof(first), (void *)address))
			begin_wait(bpf_get_current_task_btf(), regs, first.address,
				   FUTEX_WAIT_BITSET);
	}
	return 0;
}

/* (regs, result) */
SECTION("tp_btf/sys_exit") int sys_exit(u64 *arguments)
{
	u64 ids = bpf_get_current_pid_tgid();

	if (ids >> 32 != totals.target)
		return 0;
	struct pt_regs *regs = (struct pt_regs *)arguments[0];
	u64 number = regs->orig_ax;
	if (number != SYS_futex && (number < SYS_futex_waitv || number > SYS_futex_wait))
		return 0;
	u32 id = ids;
	struct wait *wait = bpf_map_lookup_elem(&threads, &id);
	if (!wait || !wait->address)
		return 0;
	u64 address = wait->address;
	s64 result = arguments[1];
	wait->address = 0;
	struct lock *lock = bpf_map_lookup_elem(&locks, &address);
	if (!lock)
		return 0;
	u64 now = bpf_ktime_get_ns(), ns = now - wait->begin;
	if (lock->due[id % SLOTS] == wait->due)
		lock->due[id % SLOTS] = 0;
	if (result == -EAGAIN && !wait->is_first)
		return 0;
	if (result != -EAGAIN) {
		record_wait(lock, ns, now);
		if (result == -ETIMEDOUT)
			__sync_fetch_and_add(&lock->timed_out, 1);
		if (result == 0) {
			wait->held = address;
			wait->held_since = now;
		}
	}
	if (now >= wait->due || wait->is_first)
		send(EVENT_WAIT, wait, address, now, regs);
	return 0;
}

/* Finds the process, and its threads that already wait: for them the wait begins now. */
SECTION("iter/task") int find_waits(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	u32 inode = 0;

	if (!task)
		return 0;
	if (!totals.target) {
		if (own_id(task->group_leader, &inode) != process || inode != namespace)
			return 0;
		totals.target = task->tgid;
	}
	if ((u32)task->tgid != totals.target || !task->__state)
		return 0;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	u32 command = regs->si & FUTEX_COMMAND, id = task->pid;
	if (regs->orig_ax != SYS_futex || !is_wait(command))
		return 0;
	struct wait *wait = bpf_map_lookup_elem(&threads, &id);
	if (!wait || !wait->address)
		begin_wait(task, regs, regs->di, command);
	return 0;
}

/* The kernel lets a program call GPL-only helpers only under a compatible licence. */
char licence[] SECTION("license") = "Dual MIT/GPL";
