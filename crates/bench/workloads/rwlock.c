/*
 * A table under one reader-writer lock: threads look keys up, and occasionally change one.
 *
 * Each entry has two copies, on two lines. A writer changes first one copy and then the other, so
 * a reader that finds them different was in the lock together with a writer. At the end the entries
 * must add up to the number of changes.
 */
#include <sys/syscall.h>

#include "measure.h"

enum { ENTRIES = 256 };

struct entry {
	uint64_t first __attribute__((aligned(MEASURE_LINE)));
	uint64_t second __attribute__((aligned(MEASURE_LINE)));
};

struct shared {
	pthread_rwlock_t lock __attribute__((aligned(MEASURE_LINE)));
	struct entry entries[ENTRIES];
	uint64_t writes_per_million, work, calls_per_million;
	struct window window;
};

struct worker {
	struct shared *shared __attribute__((aligned(MEASURE_LINE)));
	struct counter *counter;
	uint64_t random;
	uint64_t writes;
	uint64_t result;
	pthread_t thread;
};

/* The rest of a section: a calculation of one to two nanoseconds a step. */
static void work(struct worker *self)
{
	uint64_t value = self->result;
	for (uint64_t step = 0; step < self->shared->work; step++) {
		value += step;
		value ^= value << 13;
		value ^= value >> 7;
		__asm__ volatile("" : "+r"(value)); /* keeps each step */
	}
	self->result = value;
}

/* Whether the next change makes a system call. Drawn before its section. */
static bool draws_call(struct worker *self)
{
	return self->shared->calls_per_million &&
	       random_below(&self->random, 1000000) < self->shared->calls_per_million;
}

static void write_one(struct worker *self, volatile struct entry *entry)
{
	bool calls = draws_call(self);
	pthread_rwlock_wrlock(&self->shared->lock);
	entry->first = entry->first + 1;
	work(self);
	if (calls)
		syscall(SYS_gettid);
	entry->second = entry->second + 1;
	pthread_rwlock_unlock(&self->shared->lock);
	self->writes++;
}

static void read_one(struct worker *self, volatile struct entry *entry)
{
	pthread_rwlock_rdlock(&self->shared->lock);
	uint64_t first = entry->first;
	work(self);
	uint64_t second = entry->second;
	pthread_rwlock_unlock(&self->shared->lock);
	if (first != second)
		die_inconsistent("rwlock: an entry reads %" PRIu64 " and %" PRIu64
				 ": a writer was in the lock",
				 first, second);
}

static void *worker_main(void *argument)
{
	struct worker *self = argument;
	struct shared *shared = self->shared;

	pthread_barrier_wait(&shared->window.start_barrier);
	while (window_phase(&shared->window) != PHASE_STOP) {
		struct entry *entry = &shared->entries[random_below(&self->random, ENTRIES)];
		if (shared->writes_per_million &&
		    random_below(&self->random, 1000000) < shared->writes_per_million)
			write_one(self, entry);
		else
			read_one(self, entry);
		counter_increment(self->counter);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = 2, writes = 0, work = 0, calls = 0;
	double seconds = 2;
	bool prefer_writers = false;
	const struct option_row rows[] = {
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096, "threads that use the table" },
		{ "seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window" },
		{ "writes", "N", OPTION_COUNT, &writes, 0, 1000000, "changes per million operations" },
		{ "work", "N", OPTION_COUNT, &work, 0, 1000000, "steps of a calculation in each section" },
		{ "calls", "N", OPTION_COUNT, &calls, 0, 1000000,
		  "changes per million that make a system call in the section" },
		{ "prefer-writers", NULL, OPTION_FLAG, &prefer_writers, 0, 0,
		  "PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP" },
	};
	const struct program program = { "rwlock",
					 "Threads read and change a table under one reader-writer lock.", rows,
					 sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);

	struct shared *shared = line_alloc(1, sizeof *shared);
	pthread_rwlockattr_t attributes;
	pthread_rwlockattr_init(&attributes);
	if (prefer_writers)
		pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&shared->lock, &attributes);
	shared->writes_per_million = (uint64_t)writes;
	shared->work = (uint64_t)work;
	shared->calls_per_million = (uint64_t)calls;
	window_init(&shared->window, threads, threads);

	struct worker *workers = line_alloc((size_t)threads, sizeof *workers);
	for (long i = 0; i < threads; i++) {
		workers[i].shared = shared;
		workers[i].counter = &shared->window.counters[i];
		workers[i].random = (uint64_t)i + 1;
		workers[i].thread = start_thread(worker_main, &workers[i]);
	}
	window_run(&shared->window, seconds);
	uint64_t changes = 0, sum = 0;
	for (long i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		changes += workers[i].writes;
	}
	for (long i = 0; i < ENTRIES; i++)
		sum += shared->entries[i].first;
	if (sum != changes)
		die_inconsistent("rwlock: %" PRIu64 " changes, but the entries have %" PRIu64
				 ": the lock did not exclude",
				 changes, sum);
	window_report(&shared->window);
	return EXIT_SUCCESS;
}
