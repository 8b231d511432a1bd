/*
 * Counts preemptions of lock holders, in the holders themselves: without privilege or tracer.
 *
 * A holder reads the clock at both ends of its section. If the section took longer than its work
 * and a margin, the holder reads its involuntary context switches from the kernel, after the
 * release. If they have grown since the last reading, the section counts as preempted, and its time
 * beyond the work as lost.
 *
 * The count misses a preemption that is shorter than the margin, or that --cs hides: --cs waits for
 * a point in time, so a preemption that ends before this point does not lengthen the section. The
 * count wrongly includes a section that was late for another reason, such as an interrupt or the
 * hypervisor, if the thread was preempted outside its sections since the last reading.
 *
 * The count was compared with restartable sequences, which the kernel marks when it preempts a
 * thread inside one, on a virtual machine with 2 processors (counter --lines 4, 2 to 32 threads,
 * 2 s). 8 to 53 % of the counted sections were late for another reason. The share is larger at
 * small counts, so a count of 15 a second means nothing. The lost time agrees within 20 %, except
 * under libc with 8 threads: there it is only half, because most preemptions are by a thread that
 * was just woken, and are shorter than the margin.
 */
#ifndef UNCONVOY_PREEMPTION_H
#define UNCONVOY_PREEMPTION_H

#include "measure.h"

/*
 * More than a timer interrupt takes (1 to 5 us, most in a virtual machine), and much less than the
 * time for which Linux runs the preempting thread before it considers another (sched_base_slice_ns
 * and its predecessors: 0.7 to 3 ms).
 */
enum { PREEMPTION_MARGIN_NS = 20000 };
/* Allowance for writing one line that another processor wrote last. Not measured. */
enum { LINE_NS = 200 };

/* Counters of one thread. */
struct preemptions {
	uint64_t count, lost_ticks;
	uint64_t work_ticks; /* length of an undisturbed section */
	uint64_t margin_ticks;
	long involuntary_csw; /* at the last reading */
};

static inline long thread_involuntary_csw(void)
{
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

static inline struct preemptions *preemptions_new(double work_ns, double ticks_per_ns)
{
	struct preemptions *preemptions = (struct preemptions *)line_alloc(1, sizeof *preemptions);
	preemptions->work_ticks = (uint64_t)(work_ns * ticks_per_ns);
	preemptions->margin_ticks = (uint64_t)(PREEMPTION_MARGIN_NS * ticks_per_ns);
	return preemptions;
}

/* Called by the thread itself before its first section. */
static inline void preemptions_begin(struct preemptions *preemptions)
{
	preemptions->involuntary_csw = thread_involuntary_csw();
}

/* Called after the release of each section. */
static inline void preemptions_section(struct preemptions *preemptions, uint64_t length,
				       bool measured)
{
	if (__builtin_expect(length <= preemptions->work_ticks + preemptions->margin_ticks, 1))
		return;
	long now = thread_involuntary_csw();
	if (now != preemptions->involuntary_csw && measured) {
		preemptions->count++;
		preemptions->lost_ticks += length - preemptions->work_ticks;
	}
	preemptions->involuntary_csw = now;
}

static inline void preemptions_add(struct preemptions *into, const struct preemptions *from)
{
	into->count += from->count;
	into->lost_ticks += from->lost_ticks;
}

static inline void preemptions_report(const struct preemptions *preemptions, double seconds,
				      double ticks_per_ns)
{
	printf("lhp %" PRIu64 "\n", preemptions->count);
	printf("lhp_per_sec %.2f\n", (double)preemptions->count / seconds);
	printf("lhp_lost_seconds %.6f\n", (double)preemptions->lost_ticks / ticks_per_ns / 1e9);
}

#endif
