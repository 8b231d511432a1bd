/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Numbers, structures and maps of waits.bpf.c. `profile/outside/event.rs` has the same layouts.
 */

#include "histogram.h"
#include "process.h"

#define SYS_exit 60
#define SYS_futex 202
#define SYS_futex_waitv 449
#define SYS_futex_wake 454
#define SYS_futex_wait 455

#define FUTEX_COMMAND 0x7f
#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FUTEX_REQUEUE 3
#define FUTEX_CMP_REQUEUE 4
#define FUTEX_WAKE_OP 5
#define FUTEX_LOCK_PI 6
#define FUTEX_UNLOCK_PI 7
#define FUTEX_WAIT_BITSET 9
#define FUTEX_WAKE_BITSET 10
#define FUTEX_WAIT_REQUEUE_PI 11
#define FUTEX_CMP_REQUEUE_PI 12
#define FUTEX_LOCK_PI2 13

#define EAGAIN 11
#define ETIMEDOUT 110

#define LOCKS 16384
#define THREADS 65536
#define RING (16 << 20)
#define SLOTS 16

#define PIECE 4096
#define SMALL (2 * PIECE)
#define LARGE (9 * PIECE)
#define MOST (8 * PIECE)

volatile const u64 period_ns = 0;

struct totals {
	u32 target;      /* the process's id in the initial PID namespace; 0 until it is found */
	u32 unused;
	u64 lost_events; /* events for which the ring had no room */
	u64 lost_waits;  /* waits for which the maps had no room */
};
struct totals totals = {};

struct wait {
	u64 address; /* 0 if the thread does not wait */
	u64 begin;
	u64 due;
	u64 ip, sp, bp;
	u64 held; /* address of the lock that the last wait was for */
	u64 held_since;
	u32 thread; /* id in the thread's own PID namespace */
	u32 command;
	u32 is_first; /* first wait at its address */
	u32 unused;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(map_flags, BPF_F_NO_PREALLOC);
	NUMBER(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, struct wait);
} threads SECTION(".maps");

struct lock {
	u64 waits;
	u64 wait_ns;
	u64 longest_ns;
	u64 longest_at;
	u64 timed_out;
	u64 holds;
	u64 hold_ns;
	u64 longest_hold_ns;
	u64 due[SLOTS];
	u32 wait_counts[BUCKETS];
	u32 hold_counts[BUCKETS];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(map_flags, BPF_F_NO_PREALLOC);
	NUMBER(max_entries, LOCKS);
	TYPE(key, u64);
	TYPE(value, struct lock);
} locks SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct lock);
} unused_lock SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	NUMBER(max_entries, RING);
} events SECTION(".maps");

#define EVENT_WAIT 1
#define EVENT_WAKE 2

struct event {
	u32 type;
	u32 thread;
	u64 address;
	u64 begin;
	u64 due;
	u64 end;
	u64 ip, sp, bp;
	u32 command;
	u32 is_first;
	u32 stack_bytes;
	u32 unused;
	u8 stack[];
};
