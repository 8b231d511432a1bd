/*
 * The cost of an uncontended lock/unlock pair: the median over batches of pairs of one thread.
 *
 * libc takes a shortcut with plain stores until a process creates its second thread. Both states
 * are of interest, so this program creates no thread unless --threaded asks for one, which only
 * sleeps.
 */
#include "lock_kind.h"

#include <unistd.h>

/* About 100 us at 10 ns a pair: long compared with the clock's 30 ns, short compared with a time
 * slice. */
enum { PAIRS_PER_BATCH = 10000 };

__attribute__((always_inline)) static inline void batch(enum lock_kind kind, union any_lock *lock)
{
	for (int i = 0; i < PAIRS_PER_BATCH; i++) {
		any_lock_acquire(lock, kind);
		any_lock_release(lock, kind);
	}
}

static void *sleep_for_good(void *unused)
{
	(void)unused;
	for (;;)
		pause();
	return NULL;
}

static int by_value(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
	double seconds = 2;
	const char *kind_name = "normal";
	bool threaded = false;
	const struct option_row rows[] = {
		{ "seconds", "S", OPTION_REAL, &seconds, 0.001, 3600, "time for batches" },
		{ "kind", "KIND", OPTION_TEXT, &kind_name, 0, 0, LOCK_KIND_HELP },
		{ "threaded", NULL, OPTION_FLAG, &threaded, 0, 0, "start a second, sleeping thread first" },
	};
	const struct program program = { "pair", "One thread locks and unlocks an uncontended lock.",
					 rows, sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);
	enum lock_kind kind =
		(enum lock_kind)parse_choice(&program, "kind", kind_name, lock_kind_names, KIND_COUNT);

	static union any_lock lock __attribute__((aligned(MEASURE_LINE)));
	any_lock_init(&lock, kind);
	if (threaded)
		start_thread(sleep_for_good, NULL);

	/* Enough room: a pair takes at least a nanosecond. */
	size_t capacity = (size_t)(seconds * 1e9 / PAIRS_PER_BATCH) + 1, batches = 0;
	double *ns_per_pair = line_alloc(capacity, sizeof *ns_per_pair);
	struct window window;
	window_init(&window, 1, 1);
	with_lock_kind(kind, batch, &lock);
	window_begin(&window);
	for (uint64_t now = window.start_ns, end = now + (uint64_t)(seconds * 1e9);
	     now < end && batches < capacity;) {
		with_lock_kind(kind, batch, &lock);
		uint64_t after = now_ns();
		ns_per_pair[batches++] = (double)(after - now) / PAIRS_PER_BATCH;
		now = after;
	}
	window.counters[0].count = batches * PAIRS_PER_BATCH;
	window_end(&window);

	window_report(&window);
	qsort(ns_per_pair, batches, sizeof *ns_per_pair, by_value);
	printf("ns_per_pair %.3f\n", ns_per_pair[batches / 2]);
	printf("ns_per_pair_best %.3f\n", ns_per_pair[0]);
	return EXIT_SUCCESS;
}
