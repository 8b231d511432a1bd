/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is known of a task, and the sums of each processor.
 */
#ifndef UNCONVOY_KNOWN_H
#define UNCONVOY_KNOWN_H

/* What is known of a task. */
struct known {
	__u64 task;
	__u64 parent; /* the task that has begun it, by that number; 0: it was there before this scheduler */
	__u64 began; /* the time that it had run in all when the present slice began */
	__u64 bound; /* `set` when the present slice began */
	__u64 waited_ns; /* in this slice, on the processor */
	__u64 since; /* of a wait that is not over; 0: there is none */
	__u64 lock; /* what it is for */
	__u32 kind;
	__u32 is_special; /* changed by change() alone */
	__u32 has_ended;
	__u32 passes_on; /* its children are of the set from their start */
	__u32 parent_tid;
	__u32 is_told; /* the policy has heard of it */
	__u32 waits; /* its last slice was waited for more than the threshold */
	__u32 queued; /* one more than the queue that it is counted in; 0: in none */
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

/* A task goes to the set or leaves it, and is counted once: it may end, and be told of, at the same time. */
static __always_inline void change(struct known *known, __u32 is_special)
{
	if (__sync_lock_test_and_set(&known->is_special, is_special) != is_special)
		__sync_fetch_and_add(&specials, is_special ? 1 : -1);
}

#endif
