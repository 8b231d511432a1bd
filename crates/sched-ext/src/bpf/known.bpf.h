/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * State per task, and counters per processor.
 */
#ifndef UNCONVOY_KNOWN_H
#define UNCONVOY_KNOWN_H

/* State of a task. */
struct known {
	__u64 task;
	__u64 parent; /* `task` of its creator; 0: the task is older than this scheduler */
	__u64 began; /* total run time at the start of the present slice */
	__u64 bound; /* `set` at the start of the present slice */
	__u64 waited_ns; /* time waited on the processor in this slice */
	__u64 since; /* start of an unfinished wait; 0: none */
	__u64 lock; /* lock of that wait */
	__u32 kind;
	__u32 is_special; /* written only by change() */
	__u32 has_ended;
	__u32 passes_on; /* its children start in the set */
	__u32 parent_tid;
	__u32 is_recorded; /* the policy has a record of it */
	__u32 waits; /* its last slice was above the threshold */
	__u32 queued; /* 1 + the queue that counts it; 0: none */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct known);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct totals);
} totals SEC(".maps");

static __always_inline struct known *known_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

static __always_inline struct totals *sums(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&totals, &first);
}

/*
 * Moves a task into or out of the set. The exchange counts each move only once, even if the task
 * ends while the policy updates it.
 */
static __always_inline void change(struct known *known, __u32 is_special)
{
	if (__sync_lock_test_and_set(&known->is_special, is_special) != is_special)
		__sync_fetch_and_add(&specials, is_special ? 1 : -1);
}

#endif
