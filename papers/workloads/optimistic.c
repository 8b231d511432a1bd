/*
 * The programs that validate Syncchar's predictions (Porter, Hofmann and Witchel 2008, section 5),
 * and one more:
 *
 *   prob     a section writes one shared variable with some probability, 50 % in the report
 *   rw       one thread writes a shared structure of four lines, all others read it
 *   rb-tree  a section inserts (75 % in the report) or removes a random key from 0 to 200
 *   table    a section updates --lines of --keys cells, each on its own line: with one line, two
 *            sections conflict with a probability of 1 / keys; --calls of them call the kernel
 *   all      each thread takes all four in turn, so that one run has four locks
 *
 * Each program has one lock. All random draws come before the section, which may run more than once
 * under an elided lock. A section first computes from private data and then writes, so it takes as
 * long as --work says and writes shared data late, as in the simulator's programs of these names.
 *
 * At the end, the program checks that the tree is a red-black tree with as many keys as were
 * inserted less those removed, and that no update of a cell or of the variable was lost.
 */
#include "measure.h"
#include "red_black.h"

#include <sched.h>
#include <sys/syscall.h>

enum kind { KIND_PROB, KIND_RW, KIND_TREE, KIND_TABLE, KIND_ALL, KIND_COUNT };
static const char *const kind_names[] = { "prob", "rw", "rb-tree", "table", "all" };

enum { SHARED_LINES = 4 };

struct lock {
	pthread_mutex_t mutex;
} __attribute__((aligned(MEASURE_LINE)));

struct line {
	uint64_t value;
} __attribute__((aligned(MEASURE_LINE)));

struct shared {
	enum kind kind;
	uint64_t writes, inserts, work, sections, keys, lines, calls;
	bool yields;
	struct line variable, structure[SHARED_LINES];
	struct line *cells;
	uint64_t together;
	pthread_barrier_t meeting;
	struct rb_node *nodes; /* one per key, whether in the tree or not */
	struct rb_tree tree __attribute__((aligned(MEASURE_LINE)));
	struct window window;
};

/* Separate names, so that a report can name the locks. */
static struct lock prob_lock, rw_lock, tree_lock, table_lock;
static struct shared shared;

struct worker {
	struct counter *counter;
	uint64_t number, random;
	int64_t grown;
	uint64_t written, updated;
	pthread_t thread;
	struct line private;
} __attribute__((aligned(MEASURE_LINE)));

static void acquire(struct lock *lock)
{
	int error = pthread_mutex_lock(&lock->mutex);
	if (__builtin_expect(error != 0, 0))
		die_inconsistent("lock: %s", strerror(error));
}

/* The section's computation, on the thread's own line. */
static uint64_t compute(struct worker *self)
{
	uint64_t value = self->private.value;

	for (uint64_t i = 0; i < shared.work; i++)
		value = value * 6364136223846793005u + 1442695040888963407u;
	self->private.value = value;
	return value | 1;
}

static void prob(struct worker *self)
{
	bool writes = random_below(&self->random, 100) < shared.writes;

	acquire(&prob_lock);
	compute(self);
	if (writes)
		shared.variable.value++;
	pthread_mutex_unlock(&prob_lock.mutex);
	self->written += writes;
}

static void rw(struct worker *self)
{
	bool torn = false;

	acquire(&rw_lock);
	if (self->number == 0) {
		uint64_t value = compute(self);
		for (int i = 0; i < SHARED_LINES; i++)
			shared.structure[i].value = value;
	} else {
		uint64_t first = shared.structure[0].value;
		for (int i = 1; i < SHARED_LINES; i++)
			torn |= shared.structure[i].value != first;
		self->private.value += first;
		compute(self);
	}
	pthread_mutex_unlock(&rw_lock.mutex);
	if (torn)
		die_inconsistent("a reader saw half of a write: the lock did not exclude");
}

static void rb_tree(struct worker *self)
{
	uint64_t key = random_below(&self->random, 201);
	bool inserts = random_below(&self->random, 100) < shared.inserts;

	acquire(&tree_lock);
	bool changed =
		inserts ? rb_insert(&shared.tree, key, &shared.nodes[key]) : rb_remove(&shared.tree, key);
	pthread_mutex_unlock(&tree_lock.mutex);
	self->grown += changed ? inserts ? 1 : -1 : 0;
}

static void table(struct worker *self)
{
	uint64_t first = random_below(&self->random, shared.keys - shared.lines + 1);
	struct line *cell = &shared.cells[first];
	bool calls = shared.calls && random_below(&self->random, 100) < shared.calls;

	acquire(&table_lock);
	/* Load and store apart: even one processor then shows a second thread in the section. */
	uint64_t value = *(volatile uint64_t *)&cell->value;
	compute(self);
	if (calls)
		syscall(SYS_gettid);
	cell->value = value + 1;
	for (uint64_t line = 1; line < shared.lines; line++)
		cell[line].value++;
	pthread_mutex_unlock(&table_lock.mutex);
	self->updated += shared.lines;
}

static void *worker_main(void *argument)
{
	static void (*const sections[])(struct worker *) = { prob, rw, rb_tree, table };
	struct worker *self = argument;

	pthread_barrier_wait(&shared.window.start_barrier);
	for (uint64_t done = 0;
	     shared.sections ? done < shared.sections : window_phase(&shared.window) != PHASE_STOP;
	     done++) {
		if (shared.kind == KIND_ALL)
			for (int i = 0; i < KIND_ALL; i++)
				sections[i](self);
		else
			sections[shared.kind](self);
		if (shared.yields)
			sched_yield();
		if (shared.together && (done + 1) % shared.together == 0)
			pthread_barrier_wait(&shared.meeting);
		counter_increment(self->counter);
	}
	return NULL;
}

static void check(const struct worker *workers, long threads, int64_t keys)
{
	uint64_t written = 0, updated = 0, cells = 0;
	int blacks;

	for (long i = 0; i < threads; i++) {
		keys += workers[i].grown;
		written += workers[i].written;
		updated += workers[i].updated;
	}
	for (uint64_t i = 0; i < shared.keys; i++)
		cells += shared.cells[i].value;
	if (written != shared.variable.value || updated != cells)
		die_inconsistent("an update was lost: the lock did not exclude");
	if (rb_check(shared.tree.root, 0, 200, &blacks) != (uint64_t)keys)
		die_inconsistent("the tree has the wrong number of keys: the lock did not exclude");
}

int main(int argc, char **argv)
{
	long threads = 2, writes = 50, inserts = 75, keys = 8, lines = 1, calls = 0, work = 300,
	     sections = 0, together = 0, seed = 1;
	double seconds = 2;
	const char *name = "prob";
	const struct option_row rows[] = {
		{ "program", "NAME", OPTION_TEXT, &name, 0, 0, "prob, rw, rb-tree, table or all" },
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096, "identical threads" },
		{ "seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window" },
		{ "sections", "N", OPTION_COUNT, &sections, 0, 1e12,
		  "sections per thread; 0: run for --seconds" },
		{ "writes", "PERCENT", OPTION_COUNT, &writes, 0, 100,
		  "prob: share of sections that write" },
		{ "inserts", "PERCENT", OPTION_COUNT, &inserts, 0, 100,
		  "rb-tree: share of sections that insert" },
		{ "keys", "N", OPTION_COUNT, &keys, 1, 1000000, "table: cells" },
		{ "lines", "N", OPTION_COUNT, &lines, 1, 1000000,
		  "table: cells that a section updates, at most --keys" },
		{ "calls", "PERCENT", OPTION_COUNT, &calls, 0, 100,
		  "table: share of sections that call the kernel" },
		{ "work", "N", OPTION_COUNT, &work, 0, 1000000,
		  "multiplications in a section, a nanosecond each" },
		{ "yield", NULL, OPTION_FLAG, &shared.yields, 0, 0,
		  "yield the processor after each section" },
		{ "together", "N", OPTION_COUNT, &together, 0, 1e9,
		  "with --sections: meet at a barrier after each N; 0: never" },
		{ "seed", "N", OPTION_COUNT, &seed, 0, 1e15, "seed of all random draws" },
	};
	const struct program program = { "optimistic",
					 "Threads run critical sections that mostly touch different data.",
					 rows, sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);
	shared.kind = (enum kind)parse_choice(&program, "program", name, kind_names, KIND_COUNT);
	shared.writes = (uint64_t)writes;
	shared.inserts = (uint64_t)inserts;
	shared.keys = (uint64_t)keys;
	shared.lines = (uint64_t)lines;
	shared.calls = (uint64_t)calls;
	if (lines > keys)
		usage_error(&program, "--lines must be at most --keys");
	shared.work = (uint64_t)work;
	shared.sections = (uint64_t)sections;
	shared.together = sections ? (uint64_t)together : 0;
	pthread_barrier_init(&shared.meeting, NULL, (unsigned)threads);
	shared.cells = line_alloc((size_t)keys, sizeof *shared.cells);
	shared.nodes = line_alloc(201, sizeof *shared.nodes);
	for (struct lock **lock =
		     (struct lock *[]){ &prob_lock, &rw_lock, &tree_lock, &table_lock, NULL };
	     *lock; lock++)
		pthread_mutex_init(&(*lock)->mutex, NULL);
	int64_t filled = 0;
	for (uint64_t key = 0; key < 201; key += 2, filled++)
		rb_insert(&shared.tree, key, &shared.nodes[key]);
	window_init(&shared.window, threads, threads);

	struct worker *workers = line_alloc((size_t)threads, sizeof *workers);
	for (long i = 0; i < threads; i++) {
		uint64_t own_seed = (uint64_t)seed ^ (uint64_t)i << 50;
		workers[i].counter = &shared.window.counters[i];
		workers[i].number = (uint64_t)i;
		workers[i].random = random_next(&own_seed);
		workers[i].thread = start_thread(worker_main, &workers[i]);
	}
	if (sections) {
		/* Fixed work: the window opens before the threads start. */
		window_begin(&shared.window);
		pthread_barrier_wait(&shared.window.start_barrier);
	} else {
		window_run(&shared.window, seconds);
	}
	for (long i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	if (sections)
		window_end(&shared.window);
	check(workers, threads, filled);
	window_report(&shared.window);
	return EXIT_SUCCESS;
}
