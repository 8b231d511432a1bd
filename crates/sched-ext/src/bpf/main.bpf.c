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
 *      REST        ordinary ones that may run anywhere                 others; of the set: if SET has nobody
 *      SOME        whose affinity mask leaves cores out                those in the mask
 *      PINNED + n  that may run on processor n only                    n
 *
 *    One queue for the whole set balances it within itself, one for the rest does so there (section 3.4). A core takes from
 *    its queues in turns, so that none of them starves behind another; each is first in, first out. Where there is no core
 *    outside of the set, its cores take from REST in turns as well.
 *
 * 7. Guests. Unlike in the paper, a core of the set that has nothing to do lends itself to an ordinary task; one of the
 *    set that wakes up takes it back at once. The other way round never: the set is there to be small.
 *
 * 8. Affinity. A task whose mask has the first core in it can be kept in the set whatever its size is, so it is. One
 *    whose mask has not is scheduled by its mask alone (SOME): there may be no core in both.
 *
 * 9. Idle cores. A task that wakes up goes to an idle core of its own side, next to where it was; if there is one, no queue
 *    is touched. As long as there is no lock-intensive task, it is the kernel's own choice.
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
 *    last slice: they may have ended before it could say more.
 */
#include "kernel.h"
#include "shared.h"

#define SET 0
#define REST 1
#define SOME 2
#define PINNED 16

#define THOUSAND 1000ULL
#define SHORTEST_NS 4000000ULL

/* Set by the loader before the programs are loaded. */
const volatile __u32 processors = 1; /* online */
const volatile __u32 cpu_of[MAX_CPUS]; /* by place */
const volatile __u32 rank_of[MAX_CPUS]; /* by processor; NO_RANK if offline */
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

/* What runs on a processor. */
#define ON_ANY 0
#define ON_SPECIAL 1
#define ON_GUEST 2
__u8 on[MAX_CPUS];

/* Whose turn it is among a processor's queues. */
__u8 turn[MAX_CPUS];

/*
 * Tasks that were put into SET and SOME, or PINNED, and have not run since. Looking into a queue costs more than looking here, and
 * mostly only REST has anybody. Who is counted may not be there yet, or not any more; who is there is counted.
 */
__u64 waiting[4];
__u32 pinned[MAX_CPUS];

__u64 last_task = 0;

/* What is known of a task. */
struct known {
	__u64 task;
	__u64 began; /* the time that it had run in all when the present slice began */
	__u64 bound; /* `set` when the present slice began */
	__u64 waited_ns; /* in this slice, on the processor */
	__u64 since; /* of a wait that is not over; 0: there is none */
	__u64 lock; /* what it is for */
	__u32 kind;
	__u32 is_special; /* changed by change() alone */
	__u32 has_ended;
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
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct totals);
} totals SEC(".maps");

/* --- small questions --- */

static __always_inline struct known *known_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

static __always_inline struct totals *sums(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&totals, &first);
}

static __always_inline __u32 bound_of(__u64 packed)
{
	return (__u32)packed;
}

/*
 * An index into an array of MAX_CPUS. The verifier believes a mask; a comparison it forgets where the compiler goes on with a copy of
 * what was compared.
 */
static __always_inline __u32 slot(__u32 cpu)
{
	cpu &= MAX_CPUS - 1;
	asm volatile("" : "+r"(cpu));
	return cpu;
}

static __always_inline __u32 rank(__s32 cpu)
{
	return rank_of[slot(cpu)];
}

static __always_inline __u32 cpu_at(__u32 place)
{
	return cpu_of[slot(place)];
}

static __always_inline bool in_set(__s32 cpu)
{
	return rank(cpu) < bound_of(set);
}

/* Which of the queues a task belongs to. One that ends stays where it is: the kernel does not ask where to any more. */
static __always_inline __u32 queue_of(struct task_struct *p, struct known *known)
{
	/* A program that runs raises the count of its own task by one. */
	__u16 fixed = p->migration_disabled;

	if (p->nr_cpus_allowed == 1 || fixed > 1 || (fixed == 1 && p != bpf_get_current_task_btf()) || p->flags & PF_EXITING)
		return PINNED;
	if (known->is_special && bpf_cpumask_test_cpu(cpu_at(0), p->cpus_ptr))
		return SET;
	return p->nr_cpus_allowed < (int)processors ? SOME : REST;
}

/* Queues are first in, first out: who is to have more gets longer slices, from a fifth to four times the usual. */
static __always_inline __u64 slice_of(struct task_struct *p)
{
	__u64 weight = p->scx.weight;

	if (weight == 100)
		return slice_ns;
	weight = weight < 20 ? 20 : weight > 400 ? 400 : weight;
	return slice_ns * weight / 100;
}

static __always_inline void insert(struct task_struct *p, __u64 queue, __u64 flags)
{
	__u64 slice = slice_of(p);

	if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, queue, slice, flags);
	else
		scx_bpf_dispatch(p, queue, slice, flags);
}

static __always_inline void count(__u32 queue, int by)
{
	if (queue >= PINNED)
		__sync_fetch_and_add(&pinned[slot(queue - PINNED)], by);
	else
		__sync_fetch_and_add(&waiting[queue & 3], by);
}

static __always_inline void leave_queue(struct known *known)
{
	__u32 queued = known->queued;

	if (!queued)
		return;
	known->queued = 0;
	count(queued - 1, -1);
}

static __always_inline void join_queue(struct known *known, __u32 queue)
{
	leave_queue(known);
	if (queue == REST)
		return;
	count(queue, 1);
	known->queued = queue + 1;
}

static __always_inline bool take(__u64 queue)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
		return scx_bpf_dsq_move_to_local(queue);
	return scx_bpf_consume(queue);
}

/* A task goes to the set or leaves it, and is counted once: it may end, and be told of, at the same time. */
static __always_inline void change(struct known *known, __u32 is_special)
{
	if (__sync_lock_test_and_set(&known->is_special, is_special) != is_special)
		__sync_fetch_and_add(&specials, is_special ? 1 : -1);
}

/* --- waiting (3) --- */

static __always_inline __u32 kind_of(__u32 flags)
{
	if (flags & LCB_F_MUTEX)
		return LOCK_MUTEX;
	if (!flags || (flags & (LCB_F_RT | LCB_F_PERCPU)))
		return LOCK_OTHER;
	if (flags & (LCB_F_READ | LCB_F_WRITE))
		return flags & LCB_F_SPIN ? LOCK_RWLOCK : LOCK_RWSEM;
	return LOCK_SPIN;
}

static __always_inline bool may_sleep(__u32 kind)
{
	return kind != LOCK_SPIN && kind != LOCK_RWLOCK;
}

/* Books a wait on the processor up to now. It began when the task did run: running() sees to that. */
static __always_inline void book(struct known *known, __u64 now)
{
	struct totals *sum = sums();

	if (now <= known->since)
		return;
	known->waited_ns += now - known->since;
	if (sum)
		sum->spun_ns[known->kind & (LOCK_ROOM - 1)] += now - known->since;
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, unsigned int flags)
{
	struct known *known = known_of(bpf_get_current_task_btf());
	__u32 kind = kind_of(flags);
	struct totals *sum;

	if (!known)
		return 0;
	if (known->since) {
		/* The same wait goes on in another way, or one within it begins, or the end of the last was missed. */
		if (known->lock == (__u64)lock || !may_sleep(kind))
			return 0;
	}
	known->lock = (__u64)lock;
	known->kind = kind;
	known->since = bpf_ktime_get_ns();
	sum = sums();
	if (sum)
		sum->waits[kind & (LOCK_ROOM - 1)]++;
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock, int result)
{
	struct known *known = known_of(bpf_get_current_task_btf());

	if (!known || !known->since || known->lock != (__u64)lock)
		return 0;
	book(known, bpf_ktime_get_ns());
	known->since = 0;
	return 0;
}

/* --- what is told (4) --- */

static __always_inline struct record *new_record(struct known *known, __u32 tid, __u32 kind)
{
	struct record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record)
		return 0;
	record->task = known->task;
	record->parent = 0;
	record->ran_ns = 0;
	record->waited_ns = 0;
	record->bound = 0;
	record->tid = tid;
	record->core = 0;
	record->kind = kind;
	record->is_special = known->is_special;
	known->is_told = 1;
	return record;
}

static __always_inline void tell_slice(struct task_struct *p, struct known *known, __u64 ran_ns, struct totals *sum)
{
	/* The last half is for what the policy has to know. */
	bool is_vote = known->is_special;
	struct record *record = 0;

	if (!is_vote || bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) < (1 << 17))
		record = new_record(known, p->pid, RECORD_SLICE);
	if (!record) {
		if (sum)
			sum->lost++;
		return;
	}
	record->ran_ns = ran_ns;
	record->waited_ns = known->waited_ns;
	record->bound = known->bound;
	record->core = rank(scx_bpf_task_cpu(p));
	bpf_ringbuf_submit(record, is_vote ? BPF_RB_NO_WAKEUP : 0);
	if (sum)
		sum->told++;
}

/* --- time slices (2) --- */

/* The present slice is over, if it has lasted; `p` runs on or stops, or `set` has another value than when it began. */
static __always_inline void end_slice(struct task_struct *p, struct known *known)
{
	__u64 ran_ns = p->se.sum_exec_runtime - known->began;
	__u32 waited = known->waits;
	struct totals *sum;

	if (known->since) {
		__u64 now = bpf_ktime_get_ns();

		book(known, now);
		known->since = now;
	}
	if (ran_ns < SHORTEST_NS)
		return;
	sum = sums();
	if (sum)
		sum->slices++;
	known->waits = known->waited_ns * THOUSAND > ran_ns * threshold;
	if ((known->is_special || known->waits || waited) && !(p->flags & PF_KTHREAD) && (__u32)p->tgid != loader)
		tell_slice(p, known, ran_ns, sum);
	known->began += ran_ns;
	known->waited_ns = 0;
}

/* `p` has processor `cpu` now, or goes on to have it. */
static __always_inline void note(struct task_struct *p, struct known *known, __s32 cpu)
{
	__u64 now_set = set;
	__u32 queue;

	if (known->bound != now_set) {
		known->bound = now_set;
		known->began = p->se.sum_exec_runtime;
		known->waited_ns = 0;
	}
	if (!specials) {
		on[slot(cpu)] = ON_ANY;
		return;
	}
	queue = queue_of(p, known);
	on[slot(cpu)] = queue == SET ? ON_SPECIAL : queue == REST ? ON_GUEST : ON_ANY;
	if (queue == SET && !in_set(cpu)) {
		/* The set has become smaller since it was given this core. */
		struct totals *sum = sums();

		if (sum)
			sum->displaced++;
		scx_bpf_kick_cpu(cpu, KERNELS(scx_kick_flags, SCX_KICK_PREEMPT));
	}
}

SEC("struct_ops/running")
void BPF_PROG(unconvoy_running, struct task_struct *p)
{
	struct known *known = known_of(p);

	if (!known)
		return;
	leave_queue(known);
	if (known->since) {
		if (may_sleep(known->kind)) {
			struct totals *sum = sums();
			__u64 now = bpf_ktime_get_ns();

			if (sum && now > known->since)
				sum->slept_ns[known->kind & (LOCK_ROOM - 1)] += now - known->since;
			known->since = now;
		} else {
			known->since = 0;
		}
	}
	note(p, known, scx_bpf_task_cpu(p));
}

SEC("struct_ops/stopping")
void BPF_PROG(unconvoy_stopping, struct task_struct *p, bool runnable)
{
	struct known *known = known_of(p);

	if (known)
		end_slice(p, known);
}

/* --- where to (6 to 10) --- */

/* An idle processor that `p` may use, of the places from `first` to before `last`, from that of `near` on; marked busy. */
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

			if (bpf_cpumask_test_cpu(cpu, idle) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
			    scx_bpf_test_and_clear_cpu_idle(cpu)) {
				found = cpu;
				break;
			}
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/* The same for the queue that a task belongs to. */
static __always_inline __s32 idle_for(struct task_struct *p, __u32 queue, __u32 near)
{
	__u32 bound = bound_of(set);
	__s32 cpu;

	if (queue == SET)
		return idle_among(p, 0, bound, near);
	cpu = specials ? idle_among(p, bound, MAX_CPUS, near) : -1;
	return cpu >= 0 ? cpu : idle_among(p, 0, MAX_CPUS, near);
}

/* A core of the set that `p` may use, which is not idle. */
static __always_inline __s32 core_of_set(struct task_struct *p, __u32 near)
{
	__u32 bound = bound_of(set);
	__u32 cpu = bound ? cpu_at(near % bound) : 0;

	return bound && bpf_cpumask_test_cpu(cpu, p->cpus_ptr) ? cpu : cpu_at(0);
}

/* A core that takes from the queue of `p`, busy or not: the task's own `cpu`, if that does. */
static __always_inline __s32 taker(struct task_struct *p, __u32 queue, __s32 cpu)
{
	__u32 bound = bound_of(set);

	if (queue == SET && !in_set(cpu))
		return core_of_set(p, rank(cpu));
	if (queue == REST && in_set(cpu) && bound < processors)
		return cpu_at(bound);
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

/* Takes a core of the set back from a guest. */
static __always_inline void evict_guest(void)
{
	__u32 bound = bound_of(set);
	__u32 i;

	if (bound >= processors)
		return; /* they have nowhere else to go */
	bpf_for(i, 0, bound) {
		__u32 cpu = cpu_at(i);

		if (on[slot(cpu)] == ON_GUEST) {
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
	__u32 queue;
	__s32 called;

	if (!known) {
		/* There was no memory to know it by. */
		insert(p, KERNELS(scx_dsq_id_flags, SCX_DSQ_GLOBAL), flags);
		return;
	}
	queue = queue_of(p, known);
	if (queue == PINNED && p->flags & PF_KTHREAD && flags & KERNELS(scx_enq_flags, SCX_ENQ_WAKEUP)) {
		/* The kernel's own workers do not wait for their turn, but do not have another one without it either. */
		insert(p, KERNELS(scx_dsq_id_flags, SCX_DSQ_LOCAL), flags);
		return;
	}
	if (queue == PINNED) {
		join_queue(known, PINNED + cpu);
		insert(p, (__u64)PINNED + cpu, flags);
		return;
	}
	join_queue(known, queue);
	insert(p, queue, flags);
	/* The kernel has just found nobody idle. */
	if (!specials && flags & KERNELS(scx_enq_flags, SCX_ENQ_WAKEUP))
		return;
	called = idle_for(p, queue, rank(cpu));
	if (called < 0) {
		called = taker(p, queue, cpu);
		if (queue == SET)
			evict_guest();
	}
	/* One that leaves its core idle (SCX_ENQ_LAST) because that is not of the set may find that it is again. */
	if (called != cpu || flags & KERNELS(scx_enq_flags, SCX_ENQ_LAST))
		scx_bpf_kick_cpu(called, KERNELS(scx_kick_flags, SCX_KICK_IDLE));
}

/* Whether there was a task for the processor, which it has got. */
static __always_inline bool take_turns(__s32 cpu)
{
	__u32 bound = bound_of(set);
	bool inside = rank(cpu) < bound;
	__u8 first = turn[slot(cpu)]++;
	__u32 i;

#pragma unroll
	for (i = 0; i < 4; i++) {
		__u32 which = (first + i) & 3;

		if (which == 0 && (inside ? waiting[SET] && take(SET) : take(REST)))
			return true;
		if (which == 1 && pinned[slot(cpu)] && take((__u64)PINNED + cpu))
			return true;
		if (which == 2 && waiting[SOME] && take(SOME))
			return true;
		if (which == 3 && inside && bound >= processors && take(REST))
			return true;
	}
	if (inside && take(REST)) {
		struct totals *sum = sums();

		if (sum)
			sum->guests++;
		return true;
	}
	return false;
}

SEC("struct_ops/dispatch")
void BPF_PROG(unconvoy_dispatch, __s32 cpu, struct task_struct *prev)
{
	struct known *known;

	if (take_turns(cpu) || !prev || !(prev->scx.flags & KERNELS(scx_ent_flags, SCX_TASK_QUEUED)))
		return;
	known = known_of(prev);
	if (known) {
		end_slice(prev, known);
		if (queue_of(prev, known) == SET && !in_set(cpu))
			return; /* to enqueue() */
		note(prev, known, cpu);
	}
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(prev, slice_of(prev));
	else
		prev->scx.slice = slice_of(prev);
}

/* --- beginnings and ends --- */

SEC("struct_ops.s/init_task")
__s32 BPF_PROG(unconvoy_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct known *known = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct known *parent;
	struct record *record;

	if (!known)
		return 0;
	known->task = __sync_fetch_and_add(&last_task, 1) + 1;
	known->began = p->se.sum_exec_runtime;
	if (!args->fork || !inherits)
		return 0;
	parent = known_of(bpf_get_current_task_btf());
	if (!parent || !parent->is_special || !parent->waits)
		return 0;
	known->waits = 1;
	change(known, 1);
	record = new_record(known, p->pid, RECORD_CHILD);
	if (record) {
		record->parent = parent->task;
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
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
	if (!known->is_told)
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

SEC("struct_ops.s/init")
__s32 BPF_PROG(unconvoy_init)
{
	__u32 cpus = scx_bpf_nr_cpu_ids();
	__s32 error = 0;
	__u32 i;

	if (cpus > MAX_CPUS)
		return -22;
	bpf_for(i, 0, 3) {
		error = scx_bpf_create_dsq(i, -1);
		if (error)
			return error;
	}
	bpf_for(i, 0, cpus) {
		error = scx_bpf_create_dsq(PINNED + i, -1);
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

/* --- what the loader calls (1) --- */

/* What the policy says of a task. */
SEC("syscall")
int tell(struct verdict *verdict)
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
		known->is_told = 1;
		change(known, !!verdict->is_special);
		/* Either this sees the end, or the end sees the change. */
		if (__sync_fetch_and_add(&known->has_ended, 0))
			change(known, 0);
		cpu = scx_bpf_task_cpu(p);
		if (known->is_special && !in_set(cpu) && scx_bpf_task_running(p))
			scx_bpf_kick_cpu(cpu, KERNELS(scx_kick_flags, SCX_KICK_PREEMPT));
	}
	bpf_task_release(p);
	return 0;
}

/* The bound has changed: who is on the wrong side goes, who may come is called. */
SEC("syscall")
int rebound(void *context)
{
	__u32 bound = bound_of(set);
	__u32 i;

	bpf_for(i, 0, processors) {
		__u32 cpu = cpu_at(i);

		if (i >= bound && on[slot(cpu)] == ON_SPECIAL)
			scx_bpf_kick_cpu(cpu, KERNELS(scx_kick_flags, SCX_KICK_PREEMPT));
		else if (i < bound && on[slot(cpu)] == ON_GUEST && scx_bpf_dsq_nr_queued(SET) > 0)
			scx_bpf_kick_cpu(cpu, KERNELS(scx_kick_flags, SCX_KICK_PREEMPT));
		else
			scx_bpf_kick_cpu(cpu, KERNELS(scx_kick_flags, SCX_KICK_IDLE));
	}
	return 0;
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
