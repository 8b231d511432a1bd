/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs that the loader calls to apply the policy's decisions (1, 5).
 */
#ifndef UNCONVOY_ORDERS_H
#define UNCONVOY_ORDERS_H

#include "cores.bpf.h"
#include "known.bpf.h"
#include "queues.bpf.h"

/* Applies the policy's decision about a task. */
SEC("syscall")
int update_task(struct verdict *verdict)
{
	struct task_struct *p = bpf_task_from_pid(verdict->tid);
	struct known *known;
	__s32 cpu;

	verdict->is_gone = 1;
	if (!p)
		return 0;
	known = known_of(p);
	if (known && known->task == verdict->task) {
		verdict->is_gone = 0;
		known->is_recorded = 1;
		known->passes_on = !!verdict->passes_on;
		change(known, !!verdict->is_special);
		/*
		 * Pairs with unconvoy_exit_task(): either this program sees has_ended, or
		 * unconvoy_exit_task() sees this change.
		 */
		if (__sync_fetch_and_add(&known->has_ended, 0))
			change(known, 0);
		cpu = scx_bpf_task_cpu(p);
		if (known->is_special && !in_set(cpu) && scx_bpf_task_running(p))
			scx_bpf_kick_cpu(cpu, KERNELS(scx_kick_flags, SCX_KICK_PREEMPT));
	}
	bpf_task_release(p);
	return 0;
}

/* Applies a new bound: preempts tasks on the wrong side, and kicks cores that tasks may now use. */
SEC("syscall")
int update_set(void *context)
{
	__u32 bound = bound_of(set);
	__u32 i;

	bpf_for(i, 0, processors) {
		__u32 cpu = cpu_at(i);

		if (i >= bound && on[slot(cpu)] == ON_SPECIAL)
			scx_bpf_kick_cpu(cpu, KERNELS(scx_kick_flags, SCX_KICK_PREEMPT));
		else if (i < bound && on[slot(cpu)] == ON_BORROWER &&
			 scx_bpf_dsq_nr_queued(SET) > 0)
			scx_bpf_kick_cpu(cpu, KERNELS(scx_kick_flags, SCX_KICK_PREEMPT));
		else
			scx_bpf_kick_cpu(cpu, KERNELS(scx_kick_flags, SCX_KICK_IDLE));
	}
	return 0;
}

#endif
