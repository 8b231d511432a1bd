// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler that keeps the tasks which wait too much for the kernel's locks on a special set of cores.
 *
 * After Cui, Wang, Chen and Shi, "Lock-Contention-Aware Scheduler: A Scalable and Energy-Efficient Method for Addressing
 * Scalability Collapse on Multicore Systems", ACM TACO 9(4), 2013. More processors make a contended lock slower; so the
 * tasks that contend run on few, and how few is found by measuring.
 *
 * 1. Who decides. This side measures and obeys. Who is lock-intensive, and how large the set is, is decided by
 *    crates/sched, which the loader runs in user space, as the simulator does. Were the loader to stop, this side would go on
 *    with what it was told last.
 *
 * 2. Time slices. A slice is what a task does between two switches (section 3.2); running() and stopping() are its ends.
 *    A task that nobody else wants the processor of has its slices ended as well, when they are over: dispatch() finds nobody
 *    else and gives it the next one. What lasts less than a millisecond goes on with the task's next one: of a slice of ten
 *    microseconds a single wait is more than a tenth, and every shell would be lock-intensive. A change of the bound begins
 *    anew, so that each vote is of one bound.
 *
 * 3. Waiting. The kernel traces the beginning and the end of each wait for a lock. What a task waits *on its processor* is
 *    its waiting time (Algorithm 1); what it sleeps for a mutex or a semaphore takes no processor from anybody,
 *    is counted apart, and decides nothing. Waits nest: a mutex has a spin lock of its own, an interrupt may want one in the
 *    middle of a wait. Only the outermost counts, which is over when the lock that it was for is had. An end that was missed
 *    (the kernel skips a traced program within itself) is forgotten at the next switch, if it was one of those locks that
 *    are waited for without switching, else when the task waits for another lock.
 *
 * 4. What is told. A slice goes to the policy if the task waited for more than the threshold in it or in the one before, for it may
 *    have become lock-intensive, or if it is known to be, for then it is a vote. All others change nothing there. Votes never wake the loader,
 *    and are dropped rather than waited for, as in the paper, whose voters only try for the lock.
 *
 * 5. Migration. The paper moves a task just before its next lock. Here nobody is asked before a lock is taken, and who waits
 *    for a spin lock cannot be moved at all: a task goes to the set as soon as the policy says so, in the middle of its
 *    slice, and so it leaves a core that leaves the set.
 *
 * 6. Queues. Cores are numbered by place: 0 is the first core, and the set is the places below `bound`.
 *
 *      queue       tasks                                               cores that take from it
 *      SET         of the set                                          of the set
 *      REST + m    ordinary ones that may run anywhere                 others; of the set: if SET has nobody
 *      SOME + m    whose affinity mask leaves cores out                those in the mask
 *      PINNED + n  that may run on processor n only                    n
 *
 *    One queue for the whole set balances it within itself (section 3.4), and it spans few memory nodes. Of REST and SOME each node m has one,
 *    lest all cores of a large machine want the same; a task is put into that of the node where it was. A core takes from its own node's,
 *    where that is empty from the nearest that is not; and at every eighth look another one's comes first, in turns, if more tasks wait
 *    there for each core that is to take them. So the nodes are evened out, and nobody stays in the queue of a node that has no core for it,
 *    or none any more because the set has grown.
 *
 *    A core takes from its kinds of queues in turns, so that none of them starves behind another; each queue is first in, first out. Where
 *    there is no core outside of the set, its cores take from REST in turns as well.
 *
 * 7. Guests. Unlike in the paper, a core of the set that has nothing to do lends itself to an ordinary task; one of the
 *    set that wakes up takes it back at once. The other way round never: the set is there to be small.
 *
 * 8. Affinity. A task whose mask has the first core in it can be kept in the set whatever its size is, so it is. One
 *    whose mask has not is scheduled by its mask alone (SOME): there may be no core in both.
 *
 * 9. Idle cores. A task that wakes up goes to an idle core of its own side, next to where it was, on its own memory node first; if there is
 *    one, no queue is touched. As long as there is no lock-intensive task, it is the kernel's own choice.
 *
 * 10. Nobody is forgotten. Who is put into a queue has a core called that takes from it: an idle one; else, since one may be about
 *    to be idle that has looked into the queue a moment ago, one certain core, which the kernel has look again unless it runs a
 *    task, and which looks by itself when that task's slice is over. The task's own core need not be called: its lock is held
 *    here, and the kernel has it look again if it idles. So a task waits for a slice or two and its turn, whatever the
 *    others do. The kernel must not leave the last task of a core in that core's own queue and let the core
 *    idle, as it does with one that enqueue() puts there under SCX_ENQ_LAST, and with ending tasks and such as are not
 *    to migrate by itself: dispatch() therefore keeps all that may stay, and only those leave that have to go to the set.
 *
 * 11. Children of tasks of the set are in it from their start, if the policy's parameters say so and the parent waited too much in its
 *    last slice: they may have ended before it could say more. So are those of a task that does not wait itself and had such
 *    children, a shell: the policy judges by each child that ends, and says of the parent that its children inherit. Whoever begins a task is its
 *    parent, by the number that no other task has.
 *
 * What stands where:
 *
 *      known.bpf.h     what is known of a task
 *      cores.bpf.h     cores by place, and what runs on each
 *      waiting.bpf.h   (3)
 *      queues.bpf.h    (6, 8)
 *      slices.bpf.h    (2, 4)
 *      placing.bpf.h   (7, 9, 10)
 *      lives.bpf.h     (11)
 *      orders.bpf.h    (1, 5)
 */
#include "kernel.h"
#include "shared.h"

/* Set by the loader before the programs are loaded. */
const volatile __u32 processors = 1; /* online */
const volatile __u32 cpu_of[MAX_CPUS]; /* by place */
const volatile __u32 rank_of[MAX_CPUS]; /* by processor; NO_RANK if offline */
const volatile __u32 nodes = 1; /* memory nodes that have processors */
const volatile struct node node[MAX_NODES]; /* in the order of cores */
const volatile __u8 node_of[MAX_CPUS]; /* by processor */
const volatile __u32 threshold = 100; /* thousandths of a slice */
const volatile __u32 loader = 0; /* its process id: what it waits for is not the load's */
const volatile bool inherits = true;
const volatile __u64 slice_ns = 5000000; /* of a task of weight 100 */

/* The number of places in the set, and above 32 bits which one in the row of bounds this is: both change at once. */
volatile __u64 set = 1;

/* Lock-intensive tasks that are alive. */
volatile __u64 specials = 0;

struct ending ending = {};

/* So that their types get into the object, and thus to the loader. */
struct record record_type = {};
struct verdict verdict_type = {};
struct totals totals_type = {};
/* The same, for libbpf: it takes a type that is only pointed to for another one than the kernel's. */
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
