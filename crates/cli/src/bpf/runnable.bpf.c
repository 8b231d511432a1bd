// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * How many threads of one process are runnable, kept by the kernel at the moment of each change.
 *
 * Johnson, Stoica, Ailamaki and Mowry, "Decoupling Contention Management from Scheduling" (ASPLOS 2010), section
 * 6.2.2: reading the accounts of every thread costs time linear in their number, and only at intervals; what they
 * wish for is an operating system that tells at once. Here the scheduler's own trace points keep a number in memory
 * that the process reads without a system call.
 *
 * 1. A thread is runnable from a wake-up until the switch in which it leaves its processor without being preempted.
 *    Preempted, it is runnable still.
 * 2. A wake-up is no proof that the thread was not runnable: it may have been on its way to sleep and never left its
 *    run queue. So each thread carries a mark of being counted, and only the change of the mark changes the number.
 * 3. Whatever was missed heals: a thread that is switched to is runnable, whether its wake-up was seen or not. (So the
 *    first thread is counted that was runnable before the programs were attached; and before Linux 6.14 the state
 *    in the switch of a thread with a pending signal says "asleep" for one that goes on.)
 * 4. One thread is never counted: the process's load controller, which enters its id itself.
 * 5. Beside the number there is its integral over time. Each change exchanges `since` for its own time and adds what
 *    lies between the two: so no stretch of time is added twice or left out, whichever processors changes come from.
 *
 * Nothing is decided here; that is the controller's and the waiters' part (crates/locks/src/load).
 */

typedef unsigned int u32;
typedef long long s64;
typedef unsigned long long u64;

/* Of <linux/bpf.h>, whose architecture-dependent half a cross-compiler may not find. */
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_TASK_STORAGE 29
#define BPF_F_NO_PREALLOC (1U << 0)
#define BPF_F_MMAPABLE (1U << 10)
#define BPF_LOCAL_STORAGE_GET_F_CREATE (1ULL << 0)
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static void *(*const bpf_task_storage_get)(void *map, void *task, void *value, u64 flags) = (void *)156;

#define SECTION(name) __attribute__((section(name), used))
/* How a map's definition is written into its type (BTF). */
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) type *name

/* What is needed of the kernel's; the loader finds where the running kernel has it. */
struct task_struct {
	int pid;
	int tgid;
} __attribute__((preserve_access_index));

/* The same as `Count` in crates/locks/src/runtime/sensor/bpf.rs. */
struct count {
	s64 runnable;
	u64 since;     /* time of the last change, CLOCK_MONOTONIC */
	u64 thread_ns; /* integral of `runnable` until then */
	u64 events;    /* switches and wake-ups of the process's threads */
	u32 process;   /* its id */
	u32 excluded;  /* the id of the thread that is not counted, or 0 */
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

static __inline __attribute__((always_inline)) void note(struct task_struct *task, u32 is_runnable)
{
	u32 first = 0;
	struct count *all = bpf_map_lookup_elem(&count, &first);

	if (!all || (u32)task->tgid != all->process)
		return;
	__sync_fetch_and_add(&all->events, 1);
	if ((u32)task->pid == all->excluded)
		is_runnable = 0;
	u32 *mark = bpf_task_storage_get(&counted, task, 0, is_runnable ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (!mark || __sync_lock_test_and_set(mark, is_runnable) == is_runnable)
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

	note((struct task_struct *)arguments[1], stays);
	note((struct task_struct *)arguments[2], 1);
	return 0;
}

/* (task) */
SECTION("tp_btf/sched_wakeup") int sched_wakeup(u64 *arguments)
{
	note((struct task_struct *)arguments[0], 1);
	return 0;
}

/* (task) */
SECTION("tp_btf/sched_wakeup_new") int sched_wakeup_new(u64 *arguments)
{
	note((struct task_struct *)arguments[0], 1);
	return 0;
}

/* What the kernel asks for before it lets a program call all its functions. */
char licence[] SECTION("license") = "Dual MIT/GPL";
