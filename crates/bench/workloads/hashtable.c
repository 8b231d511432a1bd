/*
 * A hash table with a mutex per bucket and a moving hot set: every quarter of a second another lock
 * becomes the contended one.
 *
 * After the hash table of FlexGuard's evaluation (Laforet et al., SOSP 2025): 100 buckets,
 * Zipf-distributed keys, 40 shifts of the hot set in 10 seconds, as many writes as reads, and
 * neighbouring keys in one bucket, so that the hottest keys share a lock. Differences: a bucket is
 * a list, so its section's length depends on its contents. Half of the writes remove keys, so that
 * the table's size and the work per operation stay constant. There are 10,000 keys instead of
 * 100,000, because lists of 1000 elements would dominate the workload. theta is YCSB's.
 *
 * Every key has its own node, whether or not the key is in the table. So no allocator's locks are
 * measured, and the memory in use does not depend on the number of threads. (With per-thread free
 * lists, the free memory of 64 threads cost a quarter of the throughput with hardly any contention:
 * --theta 0, 2 processors.)
 *
 * The hot set's position is a function of the clock, so no thread moves it, and its position needs
 * no shared line.
 *
 * Checks at the end: each bucket holds only its own keys, each once and with its value, and the
 * number of elements equals the initial number, plus inserts, minus removes.
 */
#include "measure.h"
#include "zipf.h"

struct node {
	uint64_t key, value;
	struct node *next;
};

struct bucket {
	pthread_mutex_t lock;
	struct node *first;
} __attribute__((aligned(MEASURE_LINE)));

struct shared {
	struct bucket *buckets;
	struct node *nodes; /* indexed by key */
	uint64_t bucket_count, key_count;
	struct zipf zipf;
	uint64_t start_ticks, shift_ticks; /* shift_ticks 0: no shifts */
	uint64_t seed;
	uint64_t write_percent, remove_percent; /* writes include removes */
	struct window window;
};

struct worker {
	struct shared *shared;
	struct counter *counter;
	struct histogram *histogram; /* NULL without --latency */
	uint64_t random;
	uint64_t inserted, removed;
	pthread_t thread;
};

/* The value that a key must have. */
static uint64_t value_of(uint64_t key)
{
	return random_next(&key);
}

static struct bucket *bucket_of(const struct shared *shared, uint64_t key)
{
	return &shared->buckets[key * shared->bucket_count / shared->key_count];
}

/* Returns the link to `key`'s node, or the last link of the list. */
static struct node **find(struct bucket *bucket, uint64_t key)
{
	struct node **link = &bucket->first;
	while (*link && (*link)->key != key)
		link = &(*link)->next;
	return link;
}

static void check_value(const struct node *node)
{
	if (node->value != value_of(node->key))
		die_inconsistent("hashtable: key %" PRIu64 " has a wrong value: the lock did not exclude",
				 node->key);
}

/* Locks the bucket in an operation that began in `phase`. */
static void lock(struct worker *self, struct bucket *bucket, enum phase phase)
{
	uint64_t before = self->histogram ? ticks() : 0;
	int error = pthread_mutex_lock(&bucket->lock);
	if (__builtin_expect(error != 0, 0))
		die_inconsistent("lock: %s", strerror(error));
	/* Also a wait that began before the window and ended in or after it. */
	if (self->histogram &&
	    (phase == PHASE_MEASURE || window_phase(&self->shared->window) != PHASE_WARM_UP))
		histogram_record(self->histogram, ticks() - before);
}

static void get(struct worker *self, uint64_t key, enum phase phase)
{
	struct bucket *bucket = bucket_of(self->shared, key);

	lock(self, bucket, phase);
	struct node *node = *find(bucket, key);
	if (node)
		check_value(node);
	pthread_mutex_unlock(&bucket->lock);
}

/* Sets the value again if the key exists. */
static void insert(struct worker *self, uint64_t key, enum phase phase)
{
	struct bucket *bucket = bucket_of(self->shared, key);

	lock(self, bucket, phase);
	struct node *node = *find(bucket, key);
	if (!node) {
		node = &self->shared->nodes[key];
		node->key = key;
		node->next = bucket->first;
		bucket->first = node;
		self->inserted++;
	}
	node->value = value_of(key);
	pthread_mutex_unlock(&bucket->lock);
}

static void delete(struct worker *self, uint64_t key, enum phase phase)
{
	struct bucket *bucket = bucket_of(self->shared, key);

	lock(self, bucket, phase);
	struct node **link = find(bucket, key), *node = *link;
	if (node) {
		*link = node->next;
		self->removed++;
	}
	pthread_mutex_unlock(&bucket->lock);
}

static uint64_t hot_offset(const struct shared *shared)
{
	if (!shared->shift_ticks)
		return 0;
	uint64_t state = shared->seed + (ticks() - shared->start_ticks) / shared->shift_ticks;
	return random_below(&state, shared->key_count);
}

static void *worker_main(void *argument)
{
	struct worker *self = argument;
	struct shared *shared = self->shared;
	enum phase phase;

	pthread_barrier_wait(&shared->window.start_barrier);
	while ((phase = window_phase(&shared->window)) != PHASE_STOP) {
		uint64_t key =
			(zipf_next(&shared->zipf, &self->random) + hot_offset(shared)) % shared->key_count;
		uint64_t operation = random_below(&self->random, 100);
		if (operation < shared->remove_percent)
			delete(self, key, phase);
		else if (operation < shared->write_percent)
			insert(self, key, phase);
		else
			get(self, key, phase);
		counter_increment(self->counter);
	}
	return NULL;
}

/* Inserts every other key, because about half of the keys stay in the table if inserts and removes
 * are equally frequent. Returns the number of inserted keys. */
static uint64_t fill(struct shared *shared)
{
	uint64_t count = 0;

	for (uint64_t key = 0; key < shared->key_count; key += 2, count++) {
		struct bucket *bucket = bucket_of(shared, key);
		struct node *node = &shared->nodes[key];
		node->key = key;
		node->value = value_of(key);
		node->next = bucket->first;
		bucket->first = node;
	}
	return count;
}

static void check_table(const struct shared *shared, uint64_t expected)
{
	bool *seen = line_alloc(shared->key_count, sizeof *seen);
	uint64_t count = 0;

	for (uint64_t i = 0; i < shared->bucket_count; i++)
		for (const struct node *node = shared->buckets[i].first; node; node = node->next, count++) {
			if (node->key >= shared->key_count ||
			    bucket_of(shared, node->key) != &shared->buckets[i])
				die_inconsistent("hashtable: key %" PRIu64 " is in the wrong bucket", node->key);
			if (seen[node->key])
				die_inconsistent("hashtable: key %" PRIu64
						 " is in the table twice: the lock did not exclude",
						 node->key);
			seen[node->key] = true;
			check_value(node);
		}
	free(seen);
	if (count != expected)
		die_inconsistent("hashtable: %" PRIu64 " elements, but %" PRIu64
				 " were expected: the lock did not exclude",
				 count, expected);
}

int main(int argc, char **argv)
{
	long threads = 2, buckets = 100, keys = 10000, inserts = 25, removes = 25, shift_ms = 250,
	     seed = 1;
	double seconds = 2, theta = 0.99;
	bool latency = false;
	const struct option_row rows[] = {
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096, "threads that use the table" },
		{ "seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window" },
		{ "buckets", "N", OPTION_COUNT, &buckets, 1, 1000000,
		  "buckets, each with a lock and a list" },
		{ "keys", "N", OPTION_COUNT, &keys, 1, 10000000,
		  "number of keys; half of them are in the table initially" },
		{ "inserts", "PERCENT", OPTION_COUNT, &inserts, 0, 100,
		  "operations that insert or change a key" },
		{ "removes", "PERCENT", OPTION_COUNT, &removes, 0, 100,
		  "operations that remove a key; the others look one up" },
		{ "theta", "X", OPTION_REAL, &theta, 0, 20, "Zipf's exponent; 0 is uniform" },
		{ "shift", "MS", OPTION_COUNT, &shift_ms, 0, 3600000,
		  "milliseconds between moves of the hot set; 0: never" },
		{ "seed", "N", OPTION_COUNT, &seed, 0, 1e15, "seed of keys, operations and shifts" },
		{ "latency", NULL, OPTION_FLAG, &latency, 0, 0,
		  "also print percentiles of the time to acquire" },
	};
	const struct program program = { "hashtable",
					 "Threads use a hash table with a lock per bucket.", rows,
					 sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);
	if (inserts + removes > 100)
		usage_error(&program, "--inserts and --removes are %ld %% together: expected 100 at most",
			    inserts + removes);
	if (keys < buckets)
		usage_error(&program, "--keys %ld: expected at least as many as --buckets, %ld", keys,
			    buckets);

	struct shared *shared = line_alloc(1, sizeof *shared);
	double ticks_per_ns = calibrate_ticks_per_ns();
	shared->bucket_count = (uint64_t)buckets;
	shared->key_count = (uint64_t)keys;
	shared->buckets = line_alloc((size_t)buckets, sizeof *shared->buckets);
	shared->nodes = line_alloc((size_t)keys, sizeof *shared->nodes);
	for (long i = 0; i < buckets; i++)
		pthread_mutex_init(&shared->buckets[i].lock, NULL);
	shared->zipf = zipf_new((uint32_t)keys, theta);
	shared->seed = (uint64_t)seed;
	shared->remove_percent = (uint64_t)removes;
	shared->write_percent = (uint64_t)(inserts + removes);
	shared->shift_ticks = (uint64_t)((double)shift_ms * 1e6 * ticks_per_ns);
	shared->start_ticks = ticks();
	uint64_t expected = fill(shared);
	window_init(&shared->window, threads, threads);

	struct worker *workers = line_alloc((size_t)threads, sizeof *workers);
	for (long i = 0; i < threads; i++) {
		/* Distinct from other threads' and the shifts'. */
		uint64_t own_seed = (uint64_t)seed ^ (uint64_t)i << 50;
		workers[i].shared = shared;
		workers[i].counter = &shared->window.counters[i];
		workers[i].random = random_next(&own_seed);
		workers[i].histogram = latency ? line_alloc(1, sizeof(struct histogram)) : NULL;
		workers[i].thread = start_thread(worker_main, &workers[i]);
	}
	window_run(&shared->window, seconds);
	for (long i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		expected += workers[i].inserted - workers[i].removed;
	}
	check_table(shared, expected);
	window_report(&shared->window);
	printf("elements %" PRIu64 "\n", expected);
	if (latency) {
		for (long i = 1; i < threads; i++)
			histogram_add(workers[0].histogram, workers[i].histogram);
		histogram_report(workers[0].histogram, ticks_per_ns);
	}
	return EXIT_SUCCESS;
}
