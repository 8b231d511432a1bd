/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Creation and end of tasks (11).
 */
#ifndef UNCONVOY_LIVES_H
#define UNCONVOY_LIVES_H

#include "slices.bpf.h"

__u64 last_task = 0;

SEC("struct_ops.s/init_task")
__s32 BPF_PROG(unconvoy_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct known *known = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct task_struct *current = bpf_get_current_task_btf();
	struct known *parent;
	struct record *record;
	struct totals *sum;

	if (!known)
		return 0;
	known->task = __sync_fetch_and_add(&last_task, 1) + 1;
	known->began = p->se.sum_exec_runtime;
	if (!args->fork || !inherits)
		return 0;
	parent = known_of(current);
	if (!parent)
		return 0;
	known->parent = parent->task;
	known->parent_tid = current->pid;
	if (!parent->passes_on && !(parent->is_special && parent->waits))
		return 0;
	known->waits = 1;
	change(known, 1);
	sum = sums();
	if (sum)
		sum->inherited++;
	record = new_record(known, p->pid, RECORD_CHILD);
	if (record)
		/* The set's first task wakes the loader, which polls rarely while the set is empty. */
		bpf_ringbuf_submit(record, specials > 1 ? BPF_RB_NO_WAKEUP : 0);
	return 0;
}

SEC("struct_ops/exit_task")
void BPF_PROG(unconvoy_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct known *known = known_of(p);
	struct record *record;
	struct totals *sum;

	if (!known)
		return;
	leave_queue(known);
	__sync_lock_test_and_set(&known->has_ended, 1);
	change(known, 0);
	if (!known->is_recorded)
		return;
	record = new_record(known, p->pid, RECORD_EXIT);
	if (record) {
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
		return;
	}
	sum = sums();
	if (sum)
		sum->lost_ends++;
}

#endif
