// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler that confines tasks with long waits for kernel locks to a special set of cores.
 *
 * After Cui, Wang, Chen and Shi, "Lock-Contention-Aware Scheduler: A Scalable and Energy-Efficient
 * Method for Addressing Scalability Collapse on Multicore Systems", ACM TACO 9(4), 2013. Additional
 * processors slow a contended lock down, so the tasks that contend share a few cores. Measurements
 * determine how few.
 *
 * 1. Division of work. This side measures and executes decisions. The policy (crates/sched), which
 *    the loader runs in user space, decides which tasks are lock-intensive and how large the set
 *    is. If the loader stalls, this side continues with the last decisions.
 *
 * 2. Time slices. A slice is a task's run between two context switches (section 3.2), from
 *    running() to stopping(). If no other task wants the processor, dispatch() ends the slice on
 *    time and starts the next one. A run of less than SHORTEST_NS (4 ms) is added to the task's
 *    next slice. In a slice of ten microseconds, a single wait would exceed a tenth, and every
 *    shell would count as lock-intensive. A change of the bound, the size of the set, restarts the
 *    slice, so that each vote belongs to one bound.
 *
 * 3. Waiting. The kernel traces the beginning and the end of each wait for a lock. Only time that a
 *    task waits *on its processor* counts (Algorithm 1). A task that sleeps for a mutex or a
 *    semaphore leaves its processor to other tasks; the sleep is recorded separately and decides
 *    nothing. Waits nest: a mutex contains a spin lock, and an interrupt may need one during a
 *    wait. Only the outermost wait counts; it ends when the task acquires its lock. The kernel
 *    skips a traced program that would nest in itself, so an end can be missed. A wait whose end
 *    was missed is discarded: when the task's slice or run ends if waiters for that kind of lock
 *    never sleep, and otherwise when the task waits for another lock.
 *
 * 4. Records. A slice goes to the policy if it or the one before was above the threshold, since the
 *    task may have become lock-intensive. Each slice of a task in the set goes to the policy, too,
 *    as a vote on the bound. Other slices would change nothing. Votes never wake the loader, and
 *    are dropped once the ring is half full. The paper's voters drop a vote, too, if they cannot
 *    take the policy's lock at once.
 *
 * 5. Migration. The paper moves a task just before its next lock. The kernel has no hook before an
 *    acquisition, and a task that waits for a spin lock cannot move. Here a task moves as soon as
 *    the policy decides, even in the middle of its slice: to the set, or away from a core that
 *    leaves the set.
 *
 * 6. Queues. Cores are numbered by place: 0 is the first core, and the set is the places below
 *    `bound`.
 *
 *      queue       tasks                                  cores that serve it
 *      SET         of the set                             those of the set
 *      REST + m    ordinary, may run anywhere             outside the set; idle ones of the set
 *      SOME + m    with a mask that excludes online cores those in the mask
 *      PINNED + n  that may run only on processor n       n
 *
 *    One queue for the whole set balances the set within itself (section 3.4), and the set spans
 *    few memory nodes. REST and SOME have a queue for each node m, so that the cores of a large
 *    machine do not contend for one queue. A task enters the queue of the node where it last ran. A
 *    core takes from its own node's queue, then from the nearest one that is not empty. At every
 *    eighth access, another node, chosen in rotation, comes first if more tasks per core wait
 *    there. This balances the nodes, and rescues tasks in the queue of a node without a core for
 *    them, for example after the set has grown.
 *
 *    A core serves its kinds of queues in rotation, so that none starves behind another; if the set
 *    covers all cores, the rotation includes REST. Each queue is first in, first out.
 *
 * 7. Borrowed cores. Unlike in the paper, an idle core of the set runs ordinary tasks. A core is
 *    idle if SET is empty and no task of the set wants to continue on the core. A task of the set
 *    that wakes up takes the core back at once. Tasks of the set never borrow other cores: the set
 *    is small on purpose.
 *
 * 8. Affinity. A task whose mask includes the first core can stay in a set of any size, so the set
 *    confines it. A task whose mask excludes the first core is scheduled by its mask alone (SOME),
 *    since its mask and the set may have no core in common.
 *
 * 9. Idle cores. A waking task goes directly to an idle core of its own side, bypassing the queues.
 *    The search starts near the task's last core, on its own memory node. Without lock-intensive
 *    tasks, the kernel's default choice applies.
 *
 * 10. No lost wake-ups. Enqueueing a task kicks an idle core that serves its queue, if there is
 *     one. Otherwise some core may be about to idle, having found the queue empty a moment ago. The
 *     scheduler then kicks a core of the queue, preferably the task's own. The kernel makes a
 *     kicked core look at its queues again unless it runs a task; a core that runs a task looks
 *     when the task's slice ends. The task's own core needs no kick: enqueue() runs under that
 *     core's run-queue lock, and the kernel makes the core look again if it idles. A queued task
 *     therefore waits for its turn and at most a slice or two more, whatever other tasks do. The
 *     kernel must not leave the last task of a core in that core's own queue and let the core idle.
 *     The kernel would do so with a task that enqueue() puts there under SCX_ENQ_LAST, and does so
 *     of its own accord with ending tasks and tasks with migration disabled. dispatch() therefore
 *     lets a core's last task continue, unless that task must move to the set.
 *
 * 11. Inheritance. If the policy's parameters enable inheritance, the children of a task in the set
 *     start in the set, provided that the parent's last slice was above the threshold. A
 *     short-lived child would otherwise end before a slice of its own shows anything. Children of a
 *     shell, which does not wait itself, start in the set if earlier children were lock-intensive:
 *     the policy judges by each child that ends, and marks the parent. The parent is the task that
 *     creates the child, identified by its unique number.
 *
 * Files:
 *
 *      known.bpf.h     state per task
 *      cores.bpf.h     cores by place, kind of task on each
 *      waiting.bpf.h   (3)
 *      queues.bpf.h    (6, 8)
 *      slices.bpf.h    (2, 4)
 *      placing.bpf.h   (7, 9, 10)
 *      lives.bpf.h     (11)
 *      orders.bpf.h    (1, 5)
 */
#include "kernel.h"
#include "shared.h"

/* The loader sets these before it loads the programs. */
const volatile __u32 processors = 1; /* online */
const volatile __u32 cpu_of[MAX_CPUS]; /* by place */
const volatile __u32 rank_of[MAX_CPUS]; /* by processor; NO_RANK if offline */
const volatile __u32 nodes = 1; /* memory nodes with processors */
const volatile struct node node[MAX_NODES]; /* in the order of cores */
const volatile __u8 node_of[MAX_CPUS]; /* by processor */
const volatile __u32 threshold = 100; /* thousandths of a slice */
const volatile __u32 loader = 0; /* process id; the loader's own waits are not part of the load */
const volatile bool inherits = true;
const volatile __u64 slice_ns = 5000000; /* for a task of weight 100 */

/*
 * Low 32 bits: number of places in the set. High 32 bits: serial number of the bound. One word, so
 * that both change at once.
 */
volatile __u64 set = 1;

/* Number of live lock-intensive tasks. */
volatile __u64 specials = 0;

struct ending ending = {};

/* These variables put their types into the object, and so into the loader's skeleton. */
struct record record_type = {};
struct verdict verdict_type = {};
struct totals totals_type = {};
/* libbpf matches a type with the kernel's only if the object also uses the type itself. */
struct cpumask cpumask_type = {};

#include "known.bpf.h"
#include "cores.bpf.h"
#include "waiting.bpf.h"
#include "queues.bpf.h"
#include "slices.bpf.h"
#include "placing.bpf.h"
#include "lives.bpf.h"
#include "orders.bpf.h"

SEC("struct_ops.s/init")
__s32 BPF_PROG(unconvoy_init)
{
	__u32 cpus = scx_bpf_nr_cpu_ids();
	__s32 error = 0;
	__u32 i;

	if (cpus > MAX_CPUS)
		return -22;
	possible = cpus;
	error = scx_bpf_create_dsq(SET, -1);
	if (error)
		return error;
	bpf_for(i, 0, nodes) {
		__s32 number = node[node_slot(i)].number;

		error = scx_bpf_create_dsq(REST + i, number);
		if (!error)
			error = scx_bpf_create_dsq(SOME + i, number);
		if (error)
			return error;
	}
	bpf_for(i, 0, cpus) {
		error = scx_bpf_create_dsq(PINNED + i, node[node_slot(node_on(i))].number);
		if (error)
			return error;
	}
	return 0;
}

SEC("struct_ops/exit")
void BPF_PROG(unconvoy_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(ending.reason, sizeof(ending.reason), info->reason);
	bpf_probe_read_kernel_str(ending.message, sizeof(ending.message), info->msg);
	ending.code = info->exit_code;
	ending.kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops unconvoy = {
	.select_cpu = (void *)unconvoy_select_cpu,
	.enqueue = (void *)unconvoy_enqueue,
	.dispatch = (void *)unconvoy_dispatch,
	.running = (void *)unconvoy_running,
	.stopping = (void *)unconvoy_stopping,
	.init_task = (void *)unconvoy_init_task,
	.exit_task = (void *)unconvoy_exit_task,
	.init = (void *)unconvoy_init,
	.exit = (void *)unconvoy_exit,
	.flags = 2, /* SCX_OPS_ENQ_LAST, in all releases */
	.timeout_ms = 30000,
	.name = "unconvoy",
};

char licence[] SEC("license") = "GPL";
