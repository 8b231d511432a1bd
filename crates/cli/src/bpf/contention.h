/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Numbers, structures and maps of contention.bpf.c. `profile/kernel/event.rs` has the same layouts.
 */

#include "histogram.h"
#include "process.h"

/* Flags of the tracepoint contention_begin (include/trace/events/lock.h). */
#define LCB_F_SPIN (1U << 0)
#define LCB_F_READ (1U << 1)
#define LCB_F_MUTEX (1U << 5)

#define LOCKS 16384
#define SLEEPERS 32768
#define TARGETS 65536
#define RING (16 << 20)
#define NESTED 4
#define DEPTH 62

/* Flag of thread_info::status in a system call of 32-bit programs (arch/x86 of the kernel). */
#define TS_COMPAT 2U

/* Values of `targets`. The command is only the ancestor of the processes that it starts. */
#define ANCESTOR 1
#define RECORDED 2

/* Values of `member`. */
#define MMAP_LOCK 1
#define SIGLOCK 2

volatile const u64 period_ns = 0;
volatile const u32 is_filtered = 0;
volatile const u32 first_target = 0;

struct totals {
	u32 target;      /* the process's id in the initial PID namespace; 0 until it is found */
	u32 unused;
	u64 lost_events; /* events for which the ring had no room */
	u64 lost_waits;  /* waits, and processes, for which the maps had no room */
};
struct totals totals = {};

struct wait {
	u64 lock; /* 0 if there is no wait */
	u64 begin;
	u64 due;
	u32 flags;
	u32 thread;
};

struct processor {
	u32 is_busy;
	u32 unused;
	struct wait waits[NESTED];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct processor);
} processors SECTION(".maps");

/* The hash tables are allocated in advance: a waiter may hold locks of the allocator. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, SLEEPERS);
	TYPE(key, u32);
	TYPE(value, struct wait);
} sleepers SECTION(".maps");

struct lock {
	u64 waits;
	u64 wait_ns;
	u64 longest_ns;
	u64 longest_at;
	u64 read_waits;
	u64 read_wait_ns;
	u32 flags;
	u32 member;
	u32 wait_counts[BUCKETS];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
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
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, TARGETS);
	TYPE(key, u32);
	TYPE(value, u32);
} targets SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	NUMBER(max_entries, RING);
} events SECTION(".maps");

struct event {
	u64 lock;
	u64 begin;
	u64 due;
	u64 end;
	u32 flags;
	u32 is_first;
	u32 thread;
	s32 call; /* number of the system call; negative if the task is in none */
	u32 is_32_bit; /* the call is one of 32-bit programs */
	u32 stack_bytes;
	char task[16]; /* name of the process */
	u64 stack[DEPTH];
};
