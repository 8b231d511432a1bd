/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What both sides of the scheduler know: main.bpf.c includes this, and the loader's Rust types are generated from it.
 */
#ifndef UNCONVOY_SHARED_H
#define UNCONVOY_SHARED_H

/* Processors that have a place in the order of cores, a power of two; the loader refuses a machine with more. */
#define MAX_CPUS 1024

/* Memory nodes that have queues of their own, a power of two; what is beyond belongs to the last. */
#define MAX_NODES 64

/* The place of a processor that is offline, behind all others. */
#define NO_RANK 0xffffffffU

/* Kinds of locks that the trace points tell apart (kind_of() in waiting.bpf.h). */
enum lock_kind {
	LOCK_SPIN,
	LOCK_RWLOCK,
	LOCK_MUTEX,
	LOCK_RWSEM,
	LOCK_OTHER,
};

/* Room for kinds: a power of two, by whose mask the verifier believes an index. */
#define LOCK_ROOM 8

/* A memory node that has processors. They lie together in the order of cores. */
struct node {
	__u32 number; /* the kernel's */
	__u32 first; /* place */
	__u32 last; /* the place after its last */
	__u8 near[MAX_NODES]; /* all nodes by their distance, beginning with itself */
};

/* What a record is about. */
enum record_kind {
	RECORD_SLICE, /* a time slice has ended */
	RECORD_CHILD, /* a task of the set, or one whose children are, has begun another one */
	RECORD_EXIT, /* a task that was recorded before has ended */
};

/* What the kernel's side tells the policy. */
struct record {
	__u64 task; /* a number that no other task ever has, unlike its id */
	__u64 parent; /* the number of the task that has begun it; 0: it was there before this scheduler */
	__u64 ran_ns; /* RECORD_SLICE: from switch to switch */
	__u64 waited_ns; /* RECORD_SLICE: of that, for locks, on the processor */
	__u64 bound; /* RECORD_SLICE: what `set` was when the slice began */
	__u32 tid;
	__u32 core; /* RECORD_SLICE: place in the order of cores */
	__u32 kind; /* enum record_kind */
	__u32 is_special; /* whether the kernel's side takes the task for one of the set */
	__u32 parent_tid;
	__u32 pad;
};

/* What the policy tells the kernel's side: the argument of the program `tell`. */
struct verdict {
	__u64 task;
	__u32 tid;
	__u32 is_special;
	__u32 passes_on; /* its children are of the set from their start, whatever it does itself */
	__u32 is_gone; /* out: there is no such task any more */
};

/* Sums of one processor, since the scheduler was loaded. */
struct totals {
	__u64 waits[LOCK_ROOM]; /* how often a task had to wait */
	__u64 spun_ns[LOCK_ROOM]; /* time waited on the processor */
	__u64 slept_ns[LOCK_ROOM]; /* time waited off it */
	__u64 slices; /* of any task */
	__u64 told; /* slices that went to the policy */
	__u64 lost; /* slices that did not, for want of room */
	__u64 lost_ends; /* ends of tasks that did not */
	__u64 inherited; /* tasks that were of the set from their start */
	__u64 borrowed; /* ordinary tasks that had a core of the set that was free */
	__u64 crossings; /* tasks that a core took from another memory node's queue */
	__u64 displaced; /* tasks that had to leave their core for the set's sake */
};

/* Why the kernel unloaded the scheduler. */
struct ending {
	__u32 kind; /* enum scx_exit_kind; 0: it has not */
	__u32 pad;
	__u64 code;
	char reason[128];
	char message[512];
};

#endif
