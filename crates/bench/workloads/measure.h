/*
 * What every workload needs to be measured in the same way: options, a measured window with per-thread
 * tallies, Jain's fairness index, a latency histogram, a calibrated delay and a random generator.
 *
 * One header for C11 and C++17, so it uses the __atomic builtins, which both languages have, and no
 * designated initialisers. Nothing here takes a pthread lock while the window is open: the locks that are
 * measured are the workload's own.
 */
#ifndef UNCONVOY_MEASURE_H
#define UNCONVOY_MEASURE_H

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* Two 64-byte lines: the adjacent-line prefetcher of x86-64 moves them in pairs. */
#define MEASURE_LINE 128

/*
 * EXIT_INCONSISTENT is for one thing only: what a lock should have kept apart was found mixed up. The harness condemns
 * the lock for it, so whatever the machine, the engine or the user is to blame for ends with EXIT_FAILED.
 */
enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INCONSISTENT = 3 };

/* Set by a program that must leave nothing behind, wherever it ends. Weak: one for all files of a program. */
__attribute__((weak)) void (*before_death)(void);

__attribute__((noreturn)) static inline void end_with(int status, const char *format, va_list args)
{
	if (before_death)
		before_death();
	fflush(stdout);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	/* Not exit(): other threads still run, and destructors under them could hang. */
	_Exit(status);
}

/* Ends the program: the machine refused something. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	end_with(EXIT_FAILED, format, args);
}

/* Ends the program: its data or its locks are not what any order of its critical sections could have made of them. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void die_inconsistent(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	end_with(EXIT_INCONSISTENT, format, args);
}

/* Zeroed memory on a line of its own; never NULL. */
static inline void *line_alloc(size_t count, size_t size)
{
	size_t bytes = (count * size + MEASURE_LINE - 1) / MEASURE_LINE * MEASURE_LINE;
	void *memory = aligned_alloc(MEASURE_LINE, bytes);
	if (!memory)
		die("out of memory: %zu bytes", bytes);
	return memset(memory, 0, bytes);
}

/* ---- Options --------------------------------------------------------------------------------------- */

enum option_type { OPTION_COUNT, OPTION_REAL, OPTION_TEXT, OPTION_FLAG };

/* One row of a program's option table; `to` points at a long, double, const char * or bool. */
struct option_row {
	const char *name;
	const char *argument; /* its name in --help; unused for a flag */
	enum option_type type;
	void *to;
	double min, max; /* range of a count or real, both ends included */
	const char *help;
};

struct program {
	const char *name, *about;
	const struct option_row *rows;
	size_t row_count;
};

static inline void print_usage(const struct program *program, FILE *out)
{
	fprintf(out, "Usage: %s [OPTIONS]\n\n%s\n\nOptions:\n", program->name, program->about);
	for (size_t i = 0; i < program->row_count; i++) {
		const struct option_row *row = &program->rows[i];
		char head[64];
		snprintf(head, sizeof head, "--%s %s", row->name, row->type == OPTION_FLAG ? "" : row->argument);
		fprintf(out, "  %-20s %s", head, row->help);
		const char *text = row->type == OPTION_TEXT ? *(const char **)row->to : NULL;
		if (row->type == OPTION_COUNT && *(long *)row->to >= row->min)
			fprintf(out, " [default: %ld]", *(long *)row->to);
		else if (row->type == OPTION_REAL)
			fprintf(out, " [default: %g]", *(double *)row->to);
		else if (text)
			fprintf(out, " [default: %s]", text);
		fputc('\n', out);
	}
	fprintf(out, "  %-20s %s\n", "--help", "print this and exit");
}

__attribute__((noreturn, format(printf, 2, 3))) static inline void
usage_error(const struct program *program, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "%s: ", program->name);
	vfprintf(stderr, format, args);
	fputs("\n\n", stderr);
	va_end(args);
	print_usage(program, stderr);
	exit(EXIT_USAGE);
}

static inline void parse_value(const struct program *program, const struct option_row *row, const char *value)
{
	char *end;
	double number;

	if (row->type == OPTION_TEXT) {
		*(const char **)row->to = value;
		return;
	}
	if (row->type == OPTION_COUNT)
		number = (double)(*(long *)row->to = strtol(value, &end, 10));
	else
		number = *(double *)row->to = strtod(value, &end);
	/* Written so that a NaN fails it too. */
	if (end == value || *end || !(number >= row->min && number <= row->max))
		usage_error(program, "--%s %s: expected a number from %.15g to %.15g", row->name, value, row->min,
			    row->max);
}

/* Accepts --name VALUE and --name=VALUE. Exits 0 after --help, 2 for anything that is not in the table. */
static inline void parse_options(const struct program *program, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *word = argv[i];
		const char *equals = strchr(word, '=');
		size_t length = equals ? (size_t)(equals - word) : strlen(word);
		const struct option_row *row = NULL;

		if (!strcmp(word, "--help")) {
			print_usage(program, stdout);
			exit(EXIT_SUCCESS);
		}
		for (size_t r = 0; r < program->row_count && length > 2 && !strncmp(word, "--", 2); r++)
			if (strlen(program->rows[r].name) == length - 2 &&
			    !strncmp(program->rows[r].name, word + 2, length - 2))
				row = &program->rows[r];
		if (!row)
			usage_error(program, "unknown option %s", word);
		if (row->type == OPTION_FLAG) {
			if (equals)
				usage_error(program, "--%s takes no value", row->name);
			*(bool *)row->to = true;
		} else if (equals) {
			parse_value(program, row, equals + 1);
		} else if (i + 1 < argc) {
			parse_value(program, row, argv[++i]);
		} else {
			usage_error(program, "--%s needs a value", row->name);
		}
	}
}

/* The index of `text` among `names`; exits 2 with the list of names if it is none of them. */
static inline int parse_choice(const struct program *program, const char *option, const char *text,
			       const char *const *names, int count)
{
	char list[256] = "";

	for (int i = 0; i < count; i++) {
		if (!strcmp(text, names[i]))
			return i;
		size_t used = strlen(list);
		snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
	}
	usage_error(program, "--%s %s: expected one of %s", option, text, list);
}

/* ---- Time ------------------------------------------------------------------------------------------ */

static inline uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void sleep_seconds(double seconds)
{
	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
	struct timespec until;
	until.tv_sec = (time_t)(end / 1000000000u);
	until.tv_nsec = (long)(end % 1000000000u);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
		;
}

/*
 * Ticks are the cheapest clock there is: the time-stamp counter on x86-64, which has a constant rate on
 * every processor of the last fifteen years, and the system clock elsewhere.
 */
static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#else
	return now_ns();
#endif
}

/* Measures the rate of ticks() against the system clock, for 20 ms: good to about 0.01 %. */
static inline double calibrate_ticks_per_ns(void)
{
	uint64_t ns = now_ns(), start = ticks(), elapsed;
	do
		elapsed = now_ns() - ns;
	while (elapsed < 20000000u);
	return (double)(ticks() - start) / (double)elapsed;
}

static inline void delay_ticks(uint64_t count)
{
	uint64_t start = ticks();
	while (ticks() - start < count)
		;
}

/* ---- The measured window --------------------------------------------------------------------------- */

/* Operations of one thread, on lines that no other thread writes. */
struct tally {
	uint64_t count;
} __attribute__((aligned(MEASURE_LINE)));

enum phase { PHASE_WARM_UP, PHASE_MEASURE, PHASE_STOP };

struct window {
	/* Written by the main thread, polled by the others: alone on its line so that a poll stays a hit. */
	int phase __attribute__((aligned(MEASURE_LINE)));
	struct tally *tallies __attribute__((aligned(MEASURE_LINE)));
	uint64_t *ops; /* per tally, inside the window */
	long tally_count, threads;
	pthread_barrier_t gate; /* the threads and the one that measures */
	uint64_t start_ns;
	struct rusage start_usage;
	double seconds, cpu_seconds;
	long voluntary_csw, involuntary_csw;
};

/* `tallies` counts what is reported; `threads` all that wait at the gate, counted or not. */
static inline void window_init(struct window *window, long tallies, long threads)
{
	memset(window, 0, sizeof *window);
	window->threads = threads;
	window->tally_count = tallies;
	window->tallies = (struct tally *)line_alloc((size_t)tallies, sizeof *window->tallies);
	window->ops = (uint64_t *)line_alloc((size_t)tallies, sizeof *window->ops);
	pthread_barrier_init(&window->gate, NULL, (unsigned)threads + 1);
}

static inline enum phase window_phase(const struct window *window)
{
	return (enum phase)__atomic_load_n(&window->phase, __ATOMIC_RELAXED);
}

/* A plain add would do for the writer; the atomic store is for the main thread that reads meanwhile. */
static inline void tally_one(struct tally *tally)
{
	__atomic_store_n(&tally->count, tally->count + 1, __ATOMIC_RELAXED);
}

static inline uint64_t tally_read(const struct tally *tally)
{
	return __atomic_load_n(&tally->count, __ATOMIC_RELAXED);
}

static inline double usage_seconds(const struct rusage *usage)
{
	return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
	       (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

/* Lets whoever reads an energy counter outside know that the window is `open` or `closed`, if UNCONVOY_WINDOW is set. */
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
	for (long i = 0; i < window->tally_count; i++)
		window->ops[i] = tally_read(&window->tallies[i]);
	getrusage(RUSAGE_SELF, &window->start_usage);
	window->start_ns = now_ns();
	__atomic_store_n(&window->phase, PHASE_MEASURE, __ATOMIC_RELAXED);
}

static inline void window_end(struct window *window)
{
	struct rusage usage;

	/* Read before anything else: the threads go on until they see PHASE_STOP. */
	for (long i = 0; i < window->tally_count; i++)
		window->ops[i] = tally_read(&window->tallies[i]) - window->ops[i];
	window->seconds = (double)(now_ns() - window->start_ns) / 1e9;
	getrusage(RUSAGE_SELF, &usage);
	__atomic_store_n(&window->phase, PHASE_STOP, __ATOMIC_RELAXED);
	window_mark("closed");
	window->cpu_seconds = usage_seconds(&usage) - usage_seconds(&window->start_usage);
	window->voluntary_csw = usage.ru_nvcsw - window->start_usage.ru_nvcsw;
	window->involuntary_csw = usage.ru_nivcsw - window->start_usage.ru_nivcsw;
}

/*
 * Lets the threads go, all together, and measures them for `seconds` after a settling time: the first
 * 50 ms belong to page faults, cold caches and an adaptive lock that has seen no contention yet.
 */
static inline void window_run(struct window *window, double seconds)
{
	pthread_barrier_wait(&window->gate);
	sleep_seconds(0.05);
	window_begin(window);
	sleep_seconds(seconds);
	window_end(window);
}

/* Jain, Chiu and Hawe 1984: (sum x)^2 / (n sum x^2); 1 if all are equal, 1/n if one has everything. */
static inline double jain_index(const uint64_t *values, long count)
{
	double sum = 0, squares = 0;
	for (long i = 0; i < count; i++) {
		sum += (double)values[i];
		squares += (double)values[i] * (double)values[i];
	}
	return squares > 0 ? sum * sum / ((double)count * squares) : 1;
}

static inline double min_over_max(const uint64_t *values, long count)
{
	uint64_t min = UINT64_MAX, max = 0;
	for (long i = 0; i < count; i++) {
		min = values[i] < min ? values[i] : min;
		max = values[i] > max ? values[i] : max;
	}
	return max ? (double)min / (double)max : 1;
}

static inline uint64_t window_ops(const struct window *window)
{
	uint64_t sum = 0;
	for (long i = 0; i < window->tally_count; i++)
		sum += window->ops[i];
	return sum;
}

/* One `name value` line each: the form that every workload prints. */
static inline void window_report(const struct window *window)
{
	uint64_t ops = window_ops(window);

	printf("threads %ld\n", window->threads);
	printf("ops %" PRIu64 "\n", ops);
	printf("seconds %.6f\n", window->seconds);
	printf("ops_per_sec %.1f\n", (double)ops / window->seconds);
	printf("jain %.4f\n", jain_index(window->ops, window->tally_count));
	printf("min_max %.4f\n", min_over_max(window->ops, window->tally_count));
	printf("cpu_seconds %.6f\n", window->cpu_seconds);
	printf("cpu_ns_per_op %.1f\n", ops ? window->cpu_seconds * 1e9 / (double)ops : 0);
	printf("voluntary_csw %ld\n", window->voluntary_csw);
	printf("involuntary_csw %ld\n", window->involuntary_csw);
}

/*
 * Whether the system, which has no room for one more thread or process, is worth another try: other processes may
 * give some back. Pauses before it says so, half a minute in all; `tries` counts them.
 */
static inline bool worth_another_try(int error, int *tries)
{
	struct timespec pause = { 0, 100000000 };
	if (error != EAGAIN || ++*tries > 300)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

/* As fork, of a parent that dies if it cannot; `what` is what the child will be. */
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

/* ---- Latency histogram ----------------------------------------------------------------------------- */

/*
 * Log-linear, as HdrHistogram: 32 steps per power of two, so a percentile is at most 1/32 = 3 % too high.
 * One per thread while they run, added up at the end.
 */
enum { HISTOGRAM_STEP_BITS = 5, HISTOGRAM_STEPS = 1 << HISTOGRAM_STEP_BITS };
enum { HISTOGRAM_BUCKETS = (64 - HISTOGRAM_STEP_BITS + 1) * HISTOGRAM_STEPS };

struct histogram {
	uint64_t total, max;
	uint64_t counts[HISTOGRAM_BUCKETS];
};

static inline unsigned histogram_bucket(uint64_t value)
{
	if (value < HISTOGRAM_STEPS)
		return (unsigned)value;
	unsigned shift = 63u - (unsigned)__builtin_clzll(value) - HISTOGRAM_STEP_BITS;
	return (shift + 1) * HISTOGRAM_STEPS + (unsigned)(value >> shift) - HISTOGRAM_STEPS;
}

/* The largest value that falls into `bucket`. */
static inline uint64_t histogram_limit(unsigned bucket)
{
	if (bucket < HISTOGRAM_STEPS)
		return bucket;
	unsigned shift = bucket / HISTOGRAM_STEPS - 1;
	return (((uint64_t)(bucket % HISTOGRAM_STEPS) + HISTOGRAM_STEPS + 1) << shift) - 1;
}

static inline void histogram_record(struct histogram *histogram, uint64_t value)
{
	histogram->counts[histogram_bucket(value)]++;
	histogram->total++;
	histogram->max = value > histogram->max ? value : histogram->max;
}

static inline void histogram_add(struct histogram *into, const struct histogram *from)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		into->counts[i] += from->counts[i];
	into->total += from->total;
	into->max = from->max > into->max ? from->max : into->max;
}

static inline uint64_t histogram_percentile(const struct histogram *histogram, double percentile)
{
	uint64_t rank = (uint64_t)ceil(percentile / 100 * (double)histogram->total), seen = 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->counts[i];
		if (seen && seen >= rank)
			return histogram_limit(i) < histogram->max ? histogram_limit(i) : histogram->max;
	}
	return histogram->max;
}

/* The values were recorded in ticks; the lines are in nanoseconds. */
static inline void histogram_report(const struct histogram *histogram, double ticks_per_ns)
{
	printf("p50_ns %.0f\n", (double)histogram_percentile(histogram, 50) / ticks_per_ns);
	printf("p99_ns %.0f\n", (double)histogram_percentile(histogram, 99) / ticks_per_ns);
	printf("p999_ns %.0f\n", (double)histogram_percentile(histogram, 99.9) / ticks_per_ns);
	printf("max_ns %.0f\n", (double)histogram->max / ticks_per_ns);
}

/* ---- Random numbers -------------------------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea and Flood 2014): any seed is good, and the same everywhere. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Uniform in [0, 1). */
static inline double random_unit(uint64_t *state)
{
	return (double)(random_next(state) >> 11) * 0x1p-53;
}

/* Uniform in [0, bound), by multiplication (Lemire 2019); the bias of bound / 2^32 does not matter here. */
static inline uint64_t random_below(uint64_t *state, uint64_t bound)
{
	return (random_next(state) >> 32) * bound >> 32;
}

#endif
