/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Definitions for both sides: main.bpf.c includes this file, and the loader's Rust types are
 * generated from it.
 */
#ifndef UNCONVOY_SHARED_H
#define UNCONVOY_SHARED_H

/*
 * Maximum number of places in the order of cores, a power of two. The loader rejects larger
 * machines.
 */
#define MAX_CPUS 1024

/*
 * Maximum number of memory nodes with their own queues, a power of two. Processors of further nodes
 * join the last one.
 */
#define MAX_NODES 64

/* Place of an offline processor: after all others. */
#define NO_RANK 0xffffffffU

/* Kinds of locks that the trace points distinguish (kind_of() in waiting.bpf.h). */
enum lock_kind {
	LOCK_SPIN,
	LOCK_RWLOCK,
	LOCK_MUTEX,
	LOCK_RWSEM,
	LOCK_OTHER,
};

/* Array size for kinds: a power of two, so that a mask bounds an index for the verifier. */
#define LOCK_ROOM 8

/* A memory node with processors, which are contiguous in the order of cores. */
struct node {
	__u32 number; /* the kernel's number */
	__u32 first; /* its first place */
	__u32 last; /* the place after its last */
	__u8 near[MAX_NODES]; /* all nodes by distance, starting with itself */
};

/* Subject of a record. */
enum record_kind {
	RECORD_SLICE, /* a time slice ended */
	RECORD_CHILD, /* a new task started in the set: its parent waits there, or has `passes_on` */
	RECORD_EXIT, /* a task with earlier records ended */
};

/* Message from the kernel side to the policy. */
struct record {
	__u64 task; /* unique number; unlike a thread id, never reused */
	__u64 parent; /* `task` of its creator; 0: the task is older than this scheduler */
	__u64 ran_ns; /* RECORD_SLICE: run time between two switches */
	__u64 waited_ns; /* RECORD_SLICE: part of ran_ns spent waiting for locks */
	__u64 bound; /* RECORD_SLICE: `set` at the start of the slice */
	__u32 tid;
	__u32 core; /* RECORD_SLICE: place in the order of cores */
	__u32 kind; /* enum record_kind */
	__u32 is_special; /* whether the kernel side counts the task as part of the set */
	__u32 parent_tid;
	__u32 pad;
};

/* Message from the policy to the kernel side: the argument of the program `update_task`. */
struct verdict {
	__u64 task;
	__u32 tid;
	__u32 is_special;
	__u32 passes_on; /* its children start in the set, whatever the task itself does */
	__u32 is_gone; /* output: the task no longer exists */
};

/* Counters of one processor since the scheduler was loaded. */
struct totals {
	__u64 waits[LOCK_ROOM]; /* waits for locks */
	__u64 spun_ns[LOCK_ROOM]; /* time waited on the processor */
	__u64 slept_ns[LOCK_ROOM]; /* time waited off the processor */
	__u64 slices; /* finished slices of all tasks */
	__u64 recorded; /* slices recorded for the policy */
	__u64 lost; /* slices dropped because the ring was full */
	__u64 lost_ends; /* ends of tasks dropped likewise */
	__u64 inherited; /* tasks that started in the set */
	__u64 borrowed; /* ordinary tasks that ran on an idle core of the set */
	__u64 crossings; /* tasks that a core took from another node's queue */
	__u64 displaced; /* tasks that the set forced off their core */
};

/* Reason for which the kernel unloaded the scheduler. */
struct ending {
	__u32 kind; /* enum scx_exit_kind; 0: still loaded */
	__u32 pad;
	__u64 code;
	char reason[128];
	char message[512];
};

#endif
