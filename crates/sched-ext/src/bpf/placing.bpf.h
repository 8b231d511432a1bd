/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Placement: the core for a waking task, the core to kick for a queued task, and the next task of a
 * core (7, 9, 10).
 */
#ifndef UNCONVOY_PLACING_H
#define UNCONVOY_PLACING_H

#include "queues.bpf.h"
#include "slices.bpf.h"

/*
 * Finds an idle processor for `p` in the places [first, last), starting at the place `near`, and
 * marks it busy. Returns -1 if there is none.
 */
static __always_inline __s32 idle_among(struct task_struct *p, __u32 first, __u32 last, __u32 near)
{
	const struct cpumask *idle;
	__s32 found = -1;
	__u32 width, at;
	__u32 i;

	if (last > processors)
		last = processors;
	if (first >= last)
		return -1;
	width = last - first;
	at = near >= first && near < last ? near - first : 0;
	idle = scx_bpf_get_idle_cpumask();
	if (!bpf_cpumask_empty(idle)) {
		bpf_for(i, 0, width) {
			__u32 cpu = cpu_at(first + (at + i) % width);

			if (bpf_cpumask_test_cpu(cpu, idle) &&
			    bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
			    scx_bpf_test_and_clear_cpu_idle(cpu)) {
				found = cpu;
				break;
			}
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/* Finds an idle processor for `p`, a task that belongs to a queue of the kind `queue`. */
static __always_inline __s32 idle_for(struct task_struct *p, __u32 queue, __u32 near)
{
	__u32 bound = bound_of(set);
	__s32 cpu = -1;

	if (queue == SET)
		return idle_among(p, 0, bound, near);
	if (nodes > 1) {
		__u32 n = node_on(cpu_at(near));

		cpu = idle_among(p, specials ? first_outside(n) : node[node_slot(n)].first,
				 node[node_slot(n)].last, near);
	}
	if (cpu < 0 && specials)
		cpu = idle_among(p, bound, MAX_CPUS, near);
	return cpu >= 0 ? cpu : idle_among(p, 0, MAX_CPUS, near);
}

/* Chooses a core of the set that `p` may use, when none of them is idle. */
static __always_inline __s32 core_of_set(struct task_struct *p, __u32 near)
{
	__u32 bound = bound_of(set);
	__u32 cpu = bound ? cpu_at(near % bound) : 0;

	return bound && bpf_cpumask_test_cpu(cpu, p->cpus_ptr) ? cpu : cpu_at(0);
}

/* Chooses a core, idle or not, that serves the queue of `p`: preferably `cpu`, the task's own. */
static __always_inline __s32 serving_core(struct task_struct *p, __u32 queue, __s32 cpu)
{
	if (queue == SET && !in_set(cpu))
		return core_of_set(p, rank(cpu));
	if (queue >= REST && queue < SOME && in_set(cpu) && bound_of(set) < processors)
		return cpu_at(first_outside(queue - REST));
	return cpu;
}

SEC("struct_ops/select_cpu")
__s32 BPF_PROG(unconvoy_select_cpu, struct task_struct *p, __s32 prev_cpu, __u64 wake_flags)
{
	struct known *known = specials ? known_of(p) : 0;
	bool is_idle = false;
	__u32 queue;
	__s32 cpu;

	if (!known) {
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);
		if (is_idle)
			insert(p, KERNELS(scx_dsq_id_flags, SCX_DSQ_LOCAL), 0);
		return cpu;
	}
	queue = queue_of(p, known);
	if (queue == PINNED)
		return prev_cpu;
	cpu = idle_for(p, queue, rank(prev_cpu));
	if (cpu < 0)
		return queue == SET ? core_of_set(p, rank(prev_cpu)) : prev_cpu;
	insert(p, KERNELS(scx_dsq_id_flags, SCX_DSQ_LOCAL), 0);
	return cpu;
}

/* Takes a core of the set back from an ordinary task. */
static __always_inline void evict_borrower(void)
{
	__u32 bound = bound_of(set);
	__u32 i;

	if (bound >= processors)
		return; /* ordinary tasks have no other core */
	bpf_for(i, 0, bound) {
		__u32 cpu = cpu_at(i);

		if (on[slot(cpu)] == ON_BORROWER) {
			struct totals *sum = sums();

			on[slot(cpu)] = ON_SPECIAL;
			if (sum)
				sum->displaced++;
			scx_bpf_kick_cpu(cpu, KERNELS(scx_kick_flags, SCX_KICK_PREEMPT));
			return;
		}
	}
}

SEC("struct_ops/enqueue")
void BPF_PROG(unconvoy_enqueue, struct task_struct *p, __u64 flags)
{
	__s32 cpu = scx_bpf_task_cpu(p);
	struct known *known = known_of(p);
	__u32 kind, queue;
	__s32 kicked;

	if (!known) {
		/* No memory was left for the task's state. */
		insert(p, KERNELS(scx_dsq_id_flags, SCX_DSQ_GLOBAL), flags);
		return;
	}
	kind = queue_of(p, known);
	if (kind == PINNED && p->flags & PF_KTHREAD &&
	    flags & KERNELS(scx_enq_flags, SCX_ENQ_WAKEUP)) {
		/*
		 * The kernel's own workers skip the queue on a wake-up, but get no second slice
		 * ahead of others.
		 */
		insert(p, KERNELS(scx_dsq_id_flags, SCX_DSQ_LOCAL), flags);
		return;
	}
	queue = kind == SET ? SET : kind == PINNED ? PINNED + cpu : near_queue(kind, cpu);
	join_queue(known, queue);
	insert(p, queue, flags);
	if (kind == PINNED)
		return;
	/* The kernel has just found no idle processor. */
	if (!specials && flags & KERNELS(scx_enq_flags, SCX_ENQ_WAKEUP))
		return;
	kicked = idle_for(p, kind, rank(cpu));
	if (kicked < 0) {
		kicked = serving_core(p, queue, cpu);
		if (kind == SET)
			evict_borrower();
	}
	/*
	 * SCX_ENQ_LAST: the core idles after this task, which cannot stay because the core left the
	 * set. The core may be back in the set by now, so kick even the task's own core.
	 */
	if (kicked != cpu || flags & KERNELS(scx_enq_flags, SCX_ENQ_LAST))
		scx_bpf_kick_cpu(kicked, KERNELS(scx_kick_flags, SCX_KICK_IDLE));
}

SEC("struct_ops/dispatch")
void BPF_PROG(unconvoy_dispatch, __s32 cpu, struct task_struct *prev)
{
	bool is_runnable = prev && prev->scx.flags & KERNELS(scx_ent_flags, SCX_TASK_QUEUED);
	struct known *known = is_runnable ? known_of(prev) : 0;
	bool is_of_set = known && queue_of(prev, known) == SET;

	/* A core is not idle while its own task of the set wants to continue (7). */
	if (take_turns(cpu, !is_of_set) || !is_runnable)
		return;
	if (known) {
		end_slice(prev, known);
		if (is_of_set && !in_set(cpu))
			return; /* the kernel passes prev to enqueue() */
		record_running(prev, known, cpu);
	}
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(prev, slice_of(prev));
	else
		prev->scx.slice = slice_of(prev);
}

#endif
