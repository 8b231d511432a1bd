/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Declarations of the kernel's types and functions. Only the names matter: the loader relocates
 * fields and enumerators to the running kernel. Functions that some releases lack are weak. Linux
 * 6.12 has other names for the dispatch-queue functions than later releases.
 */
#ifndef UNCONVOY_KERNEL_H
#define UNCONVOY_KERNEL_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

/* From <linux/bpf.h>. */
enum {
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};

struct bpf_iter_num {
	__u64 opaque;
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* From <linux/sched.h>. */
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000

/* From include/trace/events/lock.h. */
#define LCB_F_SPIN (1U << 0)
#define LCB_F_READ (1U << 1)
#define LCB_F_WRITE (1U << 2)
#define LCB_F_RT (1U << 3)
#define LCB_F_PERCPU (1U << 4)
#define LCB_F_MUTEX (1U << 5)

#define FOUND_BY_NAME __attribute__((preserve_access_index))

struct cpumask {
	unsigned long bits[1];
};

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	unsigned short migration_disabled;
	struct sched_entity {
		__u64 sum_exec_runtime;
	} FOUND_BY_NAME se;
	struct sched_ext_entity {
		__u32 flags;
		__u32 weight;
		__u64 slice;
	} FOUND_BY_NAME scx;
} FOUND_BY_NAME;

struct scx_init_task_args {
	bool fork;
} FOUND_BY_NAME;

struct scx_exit_task_args {
	bool cancelled;
} FOUND_BY_NAME;

enum scx_exit_kind {
	SCX_EXIT_NONE,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	__s64 exit_code;
	const char *reason;
	char *msg;
} FOUND_BY_NAME;

/*
 * The kernel's values exceed 32 bits. KERNELS() reads them at load time; the values here are
 * placeholders.
 */
enum scx_dsq_id_flags {
	SCX_DSQ_GLOBAL = 1,
	SCX_DSQ_LOCAL = 2,
};

enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 1,
	SCX_ENQ_LAST = 2,
};

enum scx_ent_flags {
	SCX_TASK_QUEUED = 1,
};

enum scx_kick_flags {
	SCX_KICK_IDLE = 1,
	SCX_KICK_PREEMPT = 2,
};

#define KERNELS(enumeration, value) bpf_core_enum_value(enum enumeration, value)

/* The loader matches members by name. This struct may lack some of the kernel's members. */
struct sched_ext_ops {
	__s32 (*select_cpu)(struct task_struct *p, __s32 prev_cpu, __u64 wake_flags);
	void (*enqueue)(struct task_struct *p, __u64 enq_flags);
	void (*dispatch)(__s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	__s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	__s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	__u64 flags;
	__u32 timeout_ms;
	__u64 hotplug_seq;
	char name[128];
};

extern __s32 scx_bpf_create_dsq(__u64 dsq_id, __s32 node) __ksym;
extern __s32 scx_bpf_dsq_nr_queued(__u64 dsq_id) __ksym;
extern __s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
extern bool scx_bpf_task_running(const struct task_struct *p) __ksym;
extern __u32 scx_bpf_nr_cpu_ids(void) __ksym;
extern void scx_bpf_kick_cpu(__s32 cpu, __u64 flags) __ksym;
extern __s32 scx_bpf_select_cpu_dfl(struct task_struct *p, __s32 prev_cpu, __u64 wake_flags,
				    bool *is_idle) __ksym;
extern bool scx_bpf_test_and_clear_cpu_idle(__s32 cpu) __ksym;
extern const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym;
extern void scx_bpf_put_idle_cpumask(const struct cpumask *mask) __ksym;
extern const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
extern void scx_bpf_put_cpumask(const struct cpumask *mask) __ksym;
extern bool bpf_cpumask_test_cpu(__u32 cpu, const struct cpumask *mask) __ksym;
extern bool bpf_cpumask_empty(const struct cpumask *mask) __ksym;
extern bool bpf_cpumask_subset(const struct cpumask *part, const struct cpumask *whole) __ksym;
extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;

/* The first two have existed since 6.13; the last two are their older names. */
extern void scx_bpf_dsq_insert(struct task_struct *p, __u64 dsq_id, __u64 slice,
			       __u64 enq_flags) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local(__u64 dsq_id) __ksym __weak;
extern void scx_bpf_dispatch(struct task_struct *p, __u64 dsq_id, __u64 slice,
			     __u64 enq_flags) __ksym __weak;
extern bool scx_bpf_consume(__u64 dsq_id) __ksym __weak;

/* Since 6.19. On older kernels the slice is written directly. */
extern bool scx_bpf_task_set_slice(struct task_struct *p, __u64 slice) __ksym __weak;

#endif
