/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel's structures of a process, and a process's id in its own PID namespace. x86-64 only.
 */

#ifndef UNCONVOY_PROCESS_H
#define UNCONVOY_PROCESS_H

#include "helpers.h"

struct pt_regs {
	unsigned long bp, r10, r9, r8, dx, si, di, orig_ax, ip, sp;
} RELOCATED;

struct ns_common {
	u32 inum;
} RELOCATED;

struct pid_namespace {
	struct ns_common ns;
} RELOCATED;

struct upid {
	int nr;
	struct pid_namespace *ns;
} RELOCATED;

struct pid {
	u32 level;
	struct upid numbers[1];
} RELOCATED;

struct rw_semaphore {
	long unused;
} RELOCATED;

struct mm_struct {
	unsigned long start_stack;
	struct rw_semaphore mmap_lock;
} RELOCATED;

struct sighand_struct {
	struct spinlock {
		int unused;
	} siglock;
} RELOCATED;

struct thread_info {
	u32 status;
} RELOCATED;

struct thread_struct {
	unsigned long fsbase;
} RELOCATED;

struct task_struct {
	struct thread_info thread_info;
	u32 __state;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct mm_struct *mm;
	struct sighand_struct *sighand;
	char comm[16];
	struct thread_struct thread;
} RELOCATED;

struct bpf_iter__task {
	void *meta;
	struct task_struct *task;
} RELOCATED;

/* The process, by its id in its own PID namespace, and that namespace. */
volatile const u32 process = 0;
volatile const u32 namespace = 0;

INLINE u32 own_id(struct task_struct *task, u32 *inode)
{
	struct pid *pid = 0;
	struct pid_namespace *ns = 0;
	u32 level = 0, id = 0;

	bpf_probe_read_kernel(&pid, sizeof(pid), &task->thread_pid);
	if (!pid)
		return 0;
	bpf_probe_read_kernel(&level, sizeof(level), &pid->level);
	/* The kernel nests at most 32 namespaces. */
	struct upid *number = (void *)&pid->numbers[0] +
			      (level & 31) * __builtin_preserve_type_info(*(struct upid *)0, 1);
	bpf_probe_read_kernel(&id, sizeof(id), &number->nr);
	if (inode) {
		bpf_probe_read_kernel(&ns, sizeof(ns), &number->ns);
		if (ns)
			bpf_probe_read_kernel(inode, sizeof(*inode), &ns->ns.inum);
	}
	return id;
}

#endif
