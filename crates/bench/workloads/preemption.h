/*
 * Preemptions of lock holders, counted by the holders themselves: no privilege, no tracer.
 *
 * A holder reads the clock at both ends of its section. One that took longer than its work and a margin is a
 * suspect; only then it asks the kernel for its involuntary context switches, after the release. If these have
 * grown since it last asked, the section counts as preempted, and all it took beyond its work as lost.
 *
 * Bounds. Missed: a preemption shorter than the margin, and one that --cs hides, since that is a wait for a point
 * in time. Counted too much: a section that was late for another reason, such as an interrupt or the hypervisor,
 * while the thread has been preempted outside its sections since it last asked. Measured on a virtual machine
 * with 2 processors against restartable sequences, which the kernel marks when it preempts inside one (counter
 * --lines 4, 2 to 32 threads, 2 s): 8 to 53 % of what is counted was late for another reason, the more the fewer
 * there are, so 15 a second mean nothing. The time lost agrees within 20 %, but under libc with 8 threads it is
 * half: most preemptions are there by a thread just woken, and shorter than the margin.
 */
#ifndef UNCONVOY_PREEMPTION_H
#define UNCONVOY_PREEMPTION_H

#include "measure.h"

/*
 * More than the timer interrupt takes (1 to 5 us, the more in a virtual machine), and much less than Linux lets
 * the preempting thread run before it considers another (sched_base_slice_ns and its forerunners: 0.7 to 3 ms).
 */
enum { PREEMPTION_MARGIN_NS = 20000 };
/* What writing one line that another processor has written last may take: allowed for, not measured. */
enum { LINE_NS = 200 };

/* Of one thread. */
struct preemptions {
	uint64_t count, lost_ticks;
	uint64_t work_ticks; /* a section's length when all goes well */
	uint64_t margin_ticks;
	long involuntary_csw; /* when last asked */
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

/* By the thread itself, before its first section. */
static inline void preemptions_begin(struct preemptions *preemptions)
{
	preemptions->involuntary_csw = thread_involuntary_csw();
}

/* After the release of each section. */
static inline void preemptions_section(struct preemptions *preemptions, uint64_t length, bool measured)
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

static inline void preemptions_report(const struct preemptions *preemptions, double seconds, double ticks_per_ns)
{
	printf("lhp %" PRIu64 "\n", preemptions->count);
	printf("lhp_per_sec %.2f\n", (double)preemptions->count / seconds);
	printf("lhp_lost_seconds %.6f\n", (double)preemptions->lost_ticks / ticks_per_ns / 1e9);
}

#endif
