/*
 * Nested critical sections: the effect of load control on a lock whose holder waits for another
 * lock.
 *
 * Johnson et al., ASPLOS 2010, section 6.1.2: load control puts waiters to sleep on the assumption
 * that no thread needs them soon. But a thread that holds an outer lock O, and sleeps while it
 * waits for an inner lock I, blocks every thread that waits for O. Three kinds of threads cause and
 * measure this:
 *
 *   --threads   take I in a loop; many of them cause contention and overload
 *   --nesting   take an O, and I inside it
 *   --probes    take an O from time to time, and record their wait
 *
 * With several outer locks, the threads of the last two kinds are distributed over them in turn.
 *
 * outer_wait_* are the probes' waits: the delay that other threads see, including the scheduler's
 * share of it. outer_hold_* are the times that the nesting threads hold O: the delay at its source.
 * ops and the values derived from it are those of the first kind only.
 *
 * Each lock protects a counter, which at the end must equal the sections of all its threads.
 */
#include "measure.h"

struct guarded {
	pthread_mutex_t lock;
	uint64_t sections __attribute__((aligned(MEASURE_LINE)));
} __attribute__((aligned(MEASURE_LINE)));

struct shared {
	struct guarded inner;
	struct guarded *outers;
	/* Lengths of the sections, outer_ticks without the inner one. */
	uint64_t inner_ticks, outer_ticks;
	uint64_t nesting_gap_ticks;
	double probe_gap_seconds;
	struct window window;
};

struct worker {
	struct shared *shared;
	struct guarded *outer;       /* NULL if the thread takes only the inner lock */
	struct histogram *histogram; /* of waits for, or holds of, the outer lock; NULL without one */
	struct counter *counter;     /* only if the thread has no outer lock */
	uint64_t inner_sections, outer_sections;
	uint64_t measured; /* recorded iterations */
	pthread_t thread;
} __attribute__((aligned(MEASURE_LINE)));

static void lock(struct guarded *guarded)
{
	int error = pthread_mutex_lock(&guarded->lock);
	if (__builtin_expect(error != 0, 0))
		die_inconsistent("lock: %s", strerror(error));
}

/* The section's work, inside the lock. Volatile, so that every iteration accesses the line. */
static void work(struct guarded *guarded, uint64_t length)
{
	*(volatile uint64_t *)&guarded->sections += 1;
	if (length)
		delay_ticks(length);
}

static void inner_section(struct worker *self)
{
	struct shared *shared = self->shared;

	lock(&shared->inner);
	work(&shared->inner, shared->inner_ticks);
	pthread_mutex_unlock(&shared->inner.lock);
	self->inner_sections++;
}

static void *inner_main(void *argument)
{
	struct worker *self = argument;

	pthread_barrier_wait(&self->shared->window.start_barrier);
	while (window_phase(&self->shared->window) != PHASE_STOP) {
		inner_section(self);
		counter_increment(self->counter);
	}
	return NULL;
}

/* Records an iteration that began in `phase`. Also one that began before the window and ended in or
 * after it: a thread that waits for the whole window is the worst case. */
static void record(struct worker *self, enum phase phase, uint64_t length)
{
	if (phase != PHASE_MEASURE && window_phase(&self->shared->window) == PHASE_WARM_UP)
		return;
	histogram_record(self->histogram, length);
	self->measured++;
}

static void *nesting_main(void *argument)
{
	struct worker *self = argument;
	struct shared *shared = self->shared;
	enum phase phase;

	pthread_barrier_wait(&shared->window.start_barrier);
	while ((phase = window_phase(&shared->window)) != PHASE_STOP) {
		lock(self->outer);
		uint64_t begin = ticks();
		work(self->outer, shared->outer_ticks);
		inner_section(self);
		uint64_t held = ticks() - begin;
		pthread_mutex_unlock(&self->outer->lock);
		self->outer_sections++;
		record(self, phase, held);
		if (shared->nesting_gap_ticks)
			delay_ticks(shared->nesting_gap_ticks);
	}
	return NULL;
}

static void *probe_main(void *argument)
{
	struct worker *self = argument;
	struct shared *shared = self->shared;

	pthread_barrier_wait(&shared->window.start_barrier);
	for (;;) {
		sleep_seconds(shared->probe_gap_seconds);
		enum phase phase = window_phase(&shared->window);
		if (phase == PHASE_STOP)
			return NULL;
		uint64_t before = ticks();
		lock(self->outer);
		uint64_t waited = ticks() - before;
		work(self->outer, 0);
		pthread_mutex_unlock(&self->outer->lock);
		self->outer_sections++;
		record(self, phase, waited);
	}
}

static void check_sections(const char *name, const struct guarded *guarded, uint64_t sections)
{
	if (guarded->sections != sections)
		die_inconsistent("nested: %" PRIu64 " sections of the %s lock, but its counter has %" PRIu64
				 ": the lock did not exclude",
				 sections, name, guarded->sections);
}

/* Prints the iterations of `count` threads of one kind in the window, and the percentiles of their
 * recorded times. */
static void report_kind(const struct worker *workers, long count, const char *turns,
			const char *prefix, double ticks_per_ns)
{
	static const struct {
		const char *name;
		double percentile;
	} rows[] = { { "p50", 50 }, { "p99", 99 }, { "p999", 99.9 }, { "max", 100 } };
	struct histogram *sum = line_alloc(1, sizeof *sum);
	uint64_t measured = 0;

	for (long i = 0; i < count; i++) {
		measured += workers[i].measured;
		histogram_add(sum, workers[i].histogram);
	}
	printf("%s %" PRIu64 "\n", turns, measured);
	for (size_t i = 0; measured && i < sizeof rows / sizeof *rows; i++)
		printf("%s_%s_ns %.0f\n", prefix, rows[i].name,
		       (double)histogram_percentile(sum, rows[i].percentile) / ticks_per_ns);
	free(sum);
}

int main(int argc, char **argv)
{
	long threads = 8, nesting = 1, probes = 1, outers = 1;
	double seconds = 2, inner_ns = 1000, outer_ns = 1000, nesting_gap_ns = 100000,
	       probe_gap_ns = 1000000;
	const struct option_row rows[] = {
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096,
		  "threads that take only the inner lock, in a loop" },
		{ "nesting", "N", OPTION_COUNT, &nesting, 1, 1024,
		  "threads that take an outer lock, then the inner" },
		{ "probes", "N", OPTION_COUNT, &probes, 1, 1024,
		  "threads that measure their wait for an outer lock" },
		{ "outers", "N", OPTION_COUNT, &outers, 1, 1024,
		  "outer locks, each with at least one nesting thread" },
		{ "seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window" },
		{ "inner-cs", "NS", OPTION_REAL, &inner_ns, 0, 1e9, "nanoseconds inside the inner lock" },
		{ "outer-cs", "NS", OPTION_REAL, &outer_ns, 0, 1e9,
		  "nanoseconds inside the outer lock, before the inner one" },
		{ "nesting-gap", "NS", OPTION_REAL, &nesting_gap_ns, 0, 1e9,
		  "nanoseconds of work between a nesting thread's sections" },
		{ "probe-gap", "NS", OPTION_REAL, &probe_gap_ns, 0, 1e9,
		  "nanoseconds of sleep between a probe's sections" },
	};
	const struct program program = { "nested",
					 "Threads take a contended lock, some of them inside another lock that "
					 "other threads wait for.",
					 rows, sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);
	if (nesting < outers)
		usage_error(&program, "--nesting %ld: expected at least as many as --outers, %ld", nesting,
			    outers);

	struct shared *shared = line_alloc(1, sizeof *shared);
	double ticks_per_ns = calibrate_ticks_per_ns();
	shared->inner_ticks = (uint64_t)(inner_ns * ticks_per_ns);
	shared->outer_ticks = (uint64_t)(outer_ns * ticks_per_ns);
	shared->nesting_gap_ticks = (uint64_t)(nesting_gap_ns * ticks_per_ns);
	shared->probe_gap_seconds = probe_gap_ns / 1e9;
	shared->outers = line_alloc((size_t)outers, sizeof *shared->outers);
	pthread_mutex_init(&shared->inner.lock, NULL);
	for (long i = 0; i < outers; i++)
		pthread_mutex_init(&shared->outers[i].lock, NULL);

	long all = threads + nesting + probes;
	struct worker *workers = line_alloc((size_t)all, sizeof *workers);
	window_init(&shared->window, threads, all);
	for (long i = 0; i < all; i++) {
		bool nests = i >= threads && i < threads + nesting;
		workers[i].shared = shared;
		if (i < threads) {
			workers[i].counter = &shared->window.counters[i];
		} else {
			long turn = nests ? i - threads : i - threads - nesting;
			workers[i].outer = &shared->outers[turn % outers];
			workers[i].histogram = line_alloc(1, sizeof(struct histogram));
		}
		workers[i].thread =
			start_thread(i < threads ? inner_main : nests ? nesting_main : probe_main, &workers[i]);
	}
	window_run(&shared->window, seconds);

	uint64_t inner_sections = 0;
	uint64_t *outer_sections = line_alloc((size_t)outers, sizeof *outer_sections);
	for (long i = 0; i < all; i++) {
		pthread_join(workers[i].thread, NULL);
		inner_sections += workers[i].inner_sections;
		if (workers[i].outer)
			outer_sections[workers[i].outer - shared->outers] += workers[i].outer_sections;
	}
	check_sections("inner", &shared->inner, inner_sections);
	for (long i = 0; i < outers; i++)
		check_sections("outer", &shared->outers[i], outer_sections[i]);

	window_report(&shared->window);
	report_kind(workers + threads, nesting, "nested", "outer_hold", ticks_per_ns);
	report_kind(workers + threads + nesting, probes, "probed", "outer_wait", ticks_per_ns);
	return EXIT_SUCCESS;
}
