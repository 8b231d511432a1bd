/*
 * One lock, taken by every thread in a loop: saturated, or with --think below saturation.
 *
 * The critical section increments --lines counters, each on its own cache line, and then holds the
 * lock for --cs nanoseconds, or sleeps for as long (--blocked). At the end each counter must equal
 * the sum of all threads' operations; otherwise the lock let two threads in.
 */
#include "lock_kind.h"
#include "preemption.h"

enum { MAX_LINES = 64 };

struct line {
	uint64_t counter;
} __attribute__((aligned(MEASURE_LINE)));

struct shared {
	union any_lock lock __attribute__((aligned(MEASURE_LINE)));
	struct line lines[MAX_LINES];
	uint64_t cs_ticks __attribute__((aligned(MEASURE_LINE)));
	uint64_t think_ticks;
	long line_count;
	enum lock_kind kind;
	bool checkpoint;
	struct timespec blocked; /* zero without --blocked */
	struct window window;
};

struct worker {
	struct shared *shared;
	struct counter *counter;
	struct histogram *histogram;     /* NULL without --latency */
	struct preemptions *preemptions; /* NULL without --preemptions */
	pthread_t thread;
};

__attribute__((always_inline)) static inline void work(enum lock_kind kind, struct shared *shared,
						       struct worker *self)
{
	/* Volatile, so that every iteration accesses the lines inside the lock. */
	volatile struct line *lines = shared->lines;
	enum phase phase;

	while ((phase = window_phase(&shared->window)) != PHASE_STOP) {
		uint64_t before = self->histogram ? ticks() : 0;
		any_lock_acquire(&shared->lock, kind);
		uint64_t waited = self->histogram ? ticks() - before : 0;
		uint64_t begin = self->preemptions ? ticks() : 0;
		for (long i = 0; i < shared->line_count; i++) {
			if (kind == KIND_RWLOCK_READ)
				(void)lines[i].counter;
			else
				lines[i].counter = lines[i].counter + 1;
		}
		if (shared->blocked.tv_sec || shared->blocked.tv_nsec)
			nanosleep(&shared->blocked, NULL);
		else if (shared->cs_ticks)
			delay_ticks(shared->cs_ticks);
		uint64_t end = self->preemptions ? ticks() : 0;
		any_lock_release(&shared->lock, kind);
		counter_increment(self->counter);
		if (self->preemptions)
			preemptions_section(self->preemptions, end - begin, phase == PHASE_MEASURE);
		/* Also a wait that began before the window and ended in or after it. */
		if (self->histogram &&
		    (phase == PHASE_MEASURE || window_phase(&shared->window) != PHASE_WARM_UP))
			histogram_record(self->histogram, waited);
		if (shared->think_ticks)
			delay_ticks(shared->think_ticks);
		if (shared->checkpoint)
			unconvoy_checkpoint_if_loaded();
	}
}

static void *worker_main(void *argument)
{
	struct worker *self = argument;

	if (self->preemptions)
		preemptions_begin(self->preemptions);
	pthread_barrier_wait(&self->shared->window.start_barrier);
	with_lock_kind(self->shared->kind, work, self->shared, self);
	return NULL;
}

static void check_counters(const struct shared *shared)
{
	uint64_t sum = 0;

	if (shared->kind == KIND_RWLOCK_READ)
		return;
	for (long i = 0; i < shared->window.counters_count; i++)
		sum += counter_read(&shared->window.counters[i]);
	for (long i = 0; i < shared->line_count; i++)
		if (shared->lines[i].counter != sum)
			die_inconsistent("counter: %" PRIu64 " critical sections, but a counter has %" PRIu64
					 ": the lock did not exclude",
					 sum, shared->lines[i].counter);
}

int main(int argc, char **argv)
{
	long threads = 2, lines = 1;
	double seconds = 2, cs_ns = 100, think_ns = 0;
	const char *kind = "normal";
	bool blocked = false, latency = false, preemptions = false, checkpoint = false;
	const struct option_row rows[] = {
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096, "threads that take the lock" },
		{ "seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window" },
		{ "lines", "N", OPTION_COUNT, &lines, 1, MAX_LINES, "cache lines written inside the lock" },
		{ "cs", "NS", OPTION_REAL, &cs_ns, 0, 1e9, "nanoseconds inside the lock" },
		{ "blocked", NULL, OPTION_FLAG, &blocked, 0, 0, "sleep inside the lock" },
		{ "think", "NS", OPTION_REAL, &think_ns, 0, 1e9, "nanoseconds between two acquisitions" },
		{ "kind", "KIND", OPTION_TEXT, &kind, 0, 0, LOCK_KIND_HELP },
		CHECKPOINT_OPTION(&checkpoint),
		{ "latency", NULL, OPTION_FLAG, &latency, 0, 0,
		  "also print percentiles of the time to acquire" },
		{ "preemptions", NULL, OPTION_FLAG, &preemptions, 0, 0,
		  "also print the number of holder preemptions and the time they cost" },
	};
	const struct program program = { "counter", "Threads take one lock in a loop.", rows,
					 sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);

	struct shared *shared = line_alloc(1, sizeof *shared);
	double ticks_per_ns = calibrate_ticks_per_ns();
	shared->kind =
		(enum lock_kind)parse_choice(&program, "kind", kind, lock_kind_names, KIND_COUNT);
	shared->cs_ticks = (uint64_t)(cs_ns * ticks_per_ns);
	if (blocked)
		shared->blocked = (struct timespec){ (long)cs_ns / 1000000000, (long)cs_ns % 1000000000 };
	shared->think_ticks = (uint64_t)(think_ns * ticks_per_ns);
	shared->line_count = lines;
	shared->checkpoint = checkpoint;
	any_lock_init(&shared->lock, shared->kind);
	window_init(&shared->window, threads, threads);

	struct worker *workers = line_alloc((size_t)threads, sizeof *workers);
	for (long i = 0; i < threads; i++) {
		workers[i].shared = shared;
		workers[i].counter = &shared->window.counters[i];
		workers[i].histogram = latency ? line_alloc(1, sizeof(struct histogram)) : NULL;
		if (preemptions)
			workers[i].preemptions =
				preemptions_new(cs_ns + (double)lines * LINE_NS, ticks_per_ns);
		workers[i].thread = start_thread(worker_main, &workers[i]);
	}
	window_run(&shared->window, seconds);
	for (long i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);

	check_counters(shared);
	window_report(&shared->window);
	if (latency) {
		for (long i = 1; i < threads; i++)
			histogram_add(workers[0].histogram, workers[i].histogram);
		histogram_report(workers[0].histogram, ticks_per_ns);
	}
	if (preemptions) {
		for (long i = 1; i < threads; i++)
			preemptions_add(workers[0].preemptions, workers[i].preemptions);
		preemptions_report(workers[0].preemptions, shared->window.seconds, ticks_per_ns);
	}
	return EXIT_SUCCESS;
}
