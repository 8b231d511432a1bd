/*
 * Common parts of every workload, so that all are measured alike. This header starts the threads
 * and measures a window of their run: operations, Jain's fairness index, processor time and context
 * switches. It includes the other parts: the end of a program, its command line, clocks, a latency
 * histogram and a random generator.
 *
 * All are for C11 and C++17. So they use the __atomic builtins, which both languages have, and no
 * designated initialisers. Nothing in them takes a pthread lock during the window: the measured
 * locks are the workload's own.
 */
#ifndef UNCONVOY_MEASURE_H
#define UNCONVOY_MEASURE_H

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "command_line.h"
#include "die.h"
#include "histogram.h"
#include "splitmix.h"
#include "../../locks/include/unconvoy.h"

/* The row of an option --checkpoint: the program's threads call unconvoy_checkpoint_if_loaded()
 * after each operation. */
#define CHECKPOINT_OPTION(flag)                                                                    \
	{                                                                                          \
		"checkpoint", "", OPTION_FLAG, flag, 0, 0,                                         \
			"let threads sleep for load between operations, under libunconvoy.so"      \
	}

/* Two 64-byte lines, because the adjacent-line prefetcher of x86-64 fetches pairs. */
#define MEASURE_LINE 128

/* Returns zeroed memory, aligned to MEASURE_LINE; never NULL. */
static inline void *line_alloc(size_t count, size_t size)
{
	size_t bytes = (count * size + MEASURE_LINE - 1) / MEASURE_LINE * MEASURE_LINE;
	void *memory = aligned_alloc(MEASURE_LINE, bytes);
	if (!memory)
		die("out of memory: %zu bytes", bytes);
	return memset(memory, 0, bytes);
}

/* Operations of one thread, on lines that no other thread writes. */
struct counter {
	uint64_t count;
} __attribute__((aligned(MEASURE_LINE)));

enum phase { PHASE_WARM_UP, PHASE_MEASURE, PHASE_STOP };

struct window {
	/* Written by the main thread and polled by the others. Alone on its line, so that a poll
	 * hits the cache. */
	int phase __attribute__((aligned(MEASURE_LINE)));
	struct counter *counters __attribute__((aligned(MEASURE_LINE)));
	uint64_t *ops; /* per counter, during the window */
	long counters_count, threads;
	pthread_barrier_t start_barrier; /* start of all threads and the main thread */
	uint64_t start_ns;
	struct rusage start_usage;
	double seconds, cpu_seconds;
	long voluntary_csw, involuntary_csw;
};

/* `counters` is the number of counters reported; `threads` that of all threads at the barrier,
 * counted or not. */
static inline void window_init(struct window *window, long counters, long threads)
{
	memset(window, 0, sizeof *window);
	window->threads = threads;
	window->counters_count = counters;
	window->counters = (struct counter *)line_alloc((size_t)counters, sizeof *window->counters);
	window->ops = (uint64_t *)line_alloc((size_t)counters, sizeof *window->ops);
	pthread_barrier_init(&window->start_barrier, NULL, (unsigned)threads + 1);
}

static inline enum phase window_phase(const struct window *window)
{
	return (enum phase)__atomic_load_n(&window->phase, __ATOMIC_RELAXED);
}

/* Only this thread writes the counter. The store is atomic because the main thread reads it
 * meanwhile. */
static inline void counter_increment(struct counter *counter)
{
	__atomic_store_n(&counter->count, counter->count + 1, __ATOMIC_RELAXED);
}

static inline uint64_t counter_read(const struct counter *counter)
{
	return __atomic_load_n(&counter->count, __ATOMIC_RELAXED);
}

static inline double usage_seconds(const struct rusage *usage)
{
	return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
	       (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

/* Prints that the window is `open` or `closed` if UNCONVOY_WINDOW is set, for a reader of energy
 * counters in another process. */
static inline void window_mark(const char *state)
{
	if (getenv("UNCONVOY_WINDOW")) {
		printf("window %s\n", state);
		fflush(stdout);
	}
}

static inline void window_begin(struct window *window)
{
	window_mark("open");
	for (long i = 0; i < window->counters_count; i++)
		window->ops[i] = counter_read(&window->counters[i]);
	getrusage(RUSAGE_SELF, &window->start_usage);
	window->start_ns = now_ns();
	__atomic_store_n(&window->phase, PHASE_MEASURE, __ATOMIC_RELAXED);
}

static inline void window_end(struct window *window)
{
	struct rusage usage;

	/* Read the counters first: the threads continue until they see PHASE_STOP. */
	for (long i = 0; i < window->counters_count; i++)
		window->ops[i] = counter_read(&window->counters[i]) - window->ops[i];
	window->seconds = (double)(now_ns() - window->start_ns) / 1e9;
	getrusage(RUSAGE_SELF, &usage);
	__atomic_store_n(&window->phase, PHASE_STOP, __ATOMIC_RELAXED);
	window_mark("closed");
	window->cpu_seconds = usage_seconds(&usage) - usage_seconds(&window->start_usage);
	window->voluntary_csw = usage.ru_nvcsw - window->start_usage.ru_nvcsw;
	window->involuntary_csw = usage.ru_nivcsw - window->start_usage.ru_nivcsw;
}

/*
 * Starts the threads together and measures them for `seconds`, after 50 ms for page faults, cold
 * caches and an adaptive lock's first contention.
 */
static inline void window_run(struct window *window, double seconds)
{
	pthread_barrier_wait(&window->start_barrier);
	sleep_seconds(0.05);
	window_begin(window);
	sleep_seconds(seconds);
	window_end(window);
}

/* Jain, Chiu and Hawe 1984: (sum x)^2 / (n sum x^2). 1: all are equal; 1/n: one has everything. Not
 * defined, and here 0, if nobody has anything. */
static inline double jain_index(const uint64_t *values, long count)
{
	double sum = 0, squares = 0;
	for (long i = 0; i < count; i++) {
		sum += (double)values[i];
		squares += (double)values[i] * (double)values[i];
	}
	return squares > 0 ? sum * sum / ((double)count * squares) : 0;
}

static inline double min_over_max(const uint64_t *values, long count)
{
	uint64_t min = UINT64_MAX, max = 0;
	for (long i = 0; i < count; i++) {
		min = values[i] < min ? values[i] : min;
		max = values[i] > max ? values[i] : max;
	}
	return max ? (double)min / (double)max : 0;
}

static inline uint64_t window_ops(const struct window *window)
{
	uint64_t sum = 0;
	for (long i = 0; i < window->counters_count; i++)
		sum += window->ops[i];
	return sum;
}

/* Prints the results as lines `name value`, the format of every workload. A window without an
 * operation has no fairness and no cost of an operation. */
static inline void window_report(const struct window *window)
{
	uint64_t ops = window_ops(window);

	printf("threads %ld\n", window->threads);
	printf("ops %" PRIu64 "\n", ops);
	printf("seconds %.6f\n", window->seconds);
	printf("ops_per_sec %.1f\n", (double)ops / window->seconds);
	printf("cpu_seconds %.6f\n", window->cpu_seconds);
	if (ops) {
		printf("jain %.4f\n", jain_index(window->ops, window->counters_count));
		printf("min_max %.4f\n", min_over_max(window->ops, window->counters_count));
		printf("cpu_ns_per_op %.1f\n", window->cpu_seconds * 1e9 / (double)ops);
	}
	printf("voluntary_csw %ld\n", window->voluntary_csw);
	printf("involuntary_csw %ld\n", window->involuntary_csw);
}

/*
 * Returns whether to retry after the system lacked the resources for a thread or process: other
 * processes may free some. Pauses before each retry, 30 s in total; `tries` counts the attempts.
 */
static inline bool worth_another_try(int error, int *tries)
{
	struct timespec pause = { 0, 100000000 };
	if (error != EAGAIN || ++*tries > 300)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

/* Calls fork and ends the parent on failure. `what` describes the child. */
static inline pid_t start_child(const char *what)
{
	pid_t child;
	int tries = 0;
	do
		child = fork();
	while (child < 0 && worth_another_try(errno, &tries));
	if (child < 0)
		die("cannot start %s: %s", what, strerror(errno));
	return child;
}

static inline pthread_t start_thread(void *(*body)(void *), void *argument)
{
	pthread_t thread;
	int error, tries = 0;
	do
		error = pthread_create(&thread, NULL, body, argument);
	while (worth_another_try(error, &tries));
	if (error)
		die("cannot create a thread: %s", strerror(error));
	return thread;
}

#endif
