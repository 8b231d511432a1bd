/*
 * Condition variables in three patterns of real programs: two threads that alternate (pingpong),
 * one thread that wakes many (broadcast), and a bounded queue between producers and consumers
 * (queue).
 *
 * Every mode checks itself: turns in order, rounds seen by every waiter, items neither lost nor
 * duplicated. A thread that still waits long after the end has missed a wake-up, and is reported.
 */
#include "measure.h"

enum mode { MODE_PINGPONG, MODE_BROADCAST, MODE_QUEUE, MODE_COUNT };
static const char *const mode_names[MODE_COUNT] = { "pingpong", "broadcast", "queue" };

/* A thread that has not ended this long after the window is stuck. */
enum { STUCK_SECONDS = 20 };

enum { QUEUE_CAPACITY = 64 };

/* One mutex with two condition variables, whose meaning depends on the mode. */
struct meeting {
	pthread_mutex_t mutex __attribute__((aligned(MEASURE_LINE)));
	pthread_cond_t conditions[2];
	bool closed; /* this and the fields below are protected by the mutex */

	int turn; /* pingpong: the side whose turn it is; it waits on condition `turn` */

	/* broadcast: condition 0 announces a round, condition 1 its last acknowledgement */
	uint64_t round;
	long missing;

	/* queue: condition 0 is "not empty", condition 1 is "not full" */
	uint64_t items[QUEUE_CAPACITY];
	uint64_t put, taken;
};

struct worker {
	struct meeting *meeting;
	struct window *window;
	struct counter *counter;
	long index; /* pingpong: the side; broadcast's announcer: number of waiters */
	uint64_t sum; /* queue: sum of the items that this thread put or took */
	pthread_t thread;
};

static void open_meeting(struct meeting *meeting)
{
	pthread_mutex_init(&meeting->mutex, NULL);
	pthread_cond_init(&meeting->conditions[0], NULL);
	pthread_cond_init(&meeting->conditions[1], NULL);
}

static bool stopped(const struct worker *self)
{
	return window_phase(self->window) == PHASE_STOP;
}

/* The mutex is held. No thread waits from here on. */
static void close_meeting(struct meeting *meeting)
{
	meeting->closed = true;
	pthread_cond_broadcast(&meeting->conditions[0]);
	pthread_cond_broadcast(&meeting->conditions[1]);
}

static void *pingpong_side(void *argument)
{
	struct worker *self = argument;
	struct meeting *meeting = self->meeting;
	int side = (int)self->index;

	pthread_barrier_wait(&self->window->start_barrier);
	pthread_mutex_lock(&meeting->mutex);
	while (!meeting->closed) {
		while (meeting->turn != side && !meeting->closed)
			pthread_cond_wait(&meeting->conditions[side], &meeting->mutex);
		if (stopped(self))
			close_meeting(meeting);
		if (meeting->closed)
			break;
		meeting->turn = !side;
		/* Back at the first side: one round trip. */
		if (side == 1)
			counter_increment(self->counter);
		pthread_cond_signal(&meeting->conditions[!side]);
	}
	pthread_mutex_unlock(&meeting->mutex);
	return NULL;
}

static void *broadcast_announcer(void *argument)
{
	struct worker *self = argument;
	struct meeting *meeting = self->meeting;

	pthread_barrier_wait(&self->window->start_barrier);
	pthread_mutex_lock(&meeting->mutex);
	while (!stopped(self)) {
		meeting->round++;
		meeting->missing = self->index;
		pthread_cond_broadcast(&meeting->conditions[0]);
		while (meeting->missing > 0)
			pthread_cond_wait(&meeting->conditions[1], &meeting->mutex);
		counter_increment(self->counter);
	}
	close_meeting(meeting);
	pthread_mutex_unlock(&meeting->mutex);
	return NULL;
}

static void *broadcast_waiter(void *argument)
{
	struct worker *self = argument;
	struct meeting *meeting = self->meeting;

	pthread_barrier_wait(&self->window->start_barrier);
	pthread_mutex_lock(&meeting->mutex);
	for (uint64_t seen = 0;;) {
		while (meeting->round == seen && !meeting->closed)
			pthread_cond_wait(&meeting->conditions[0], &meeting->mutex);
		if (meeting->round == seen)
			break;
		/* The announcer waits for all waiters, so a waiter can neither miss nor repeat a
		 * round. */
		if (meeting->round != ++seen)
			die_inconsistent("condvar: a waiter expected round %" PRIu64 " and saw %" PRIu64, seen,
					 meeting->round);
		counter_increment(self->counter);
		if (--meeting->missing == 0)
			pthread_cond_signal(&meeting->conditions[1]);
	}
	pthread_mutex_unlock(&meeting->mutex);
	return NULL;
}

static void *queue_producer(void *argument)
{
	struct worker *self = argument;
	struct meeting *meeting = self->meeting;
	uint64_t random = (uint64_t)self->index;

	pthread_barrier_wait(&self->window->start_barrier);
	while (!stopped(self)) {
		uint64_t item = random_next(&random);
		pthread_mutex_lock(&meeting->mutex);
		/* Consumers run until the queue is closed, so this wait ends without checking
		 * `closed`. */
		while (meeting->put - meeting->taken == QUEUE_CAPACITY)
			pthread_cond_wait(&meeting->conditions[1], &meeting->mutex);
		meeting->items[meeting->put++ % QUEUE_CAPACITY] = item;
		pthread_cond_signal(&meeting->conditions[0]);
		pthread_mutex_unlock(&meeting->mutex);
		self->sum += item;
		counter_increment(self->counter);
	}
	return NULL;
}

static void *queue_consumer(void *argument)
{
	struct worker *self = argument;
	struct meeting *meeting = self->meeting;

	pthread_barrier_wait(&self->window->start_barrier);
	for (;;) {
		pthread_mutex_lock(&meeting->mutex);
		while (meeting->put == meeting->taken && !meeting->closed)
			pthread_cond_wait(&meeting->conditions[0], &meeting->mutex);
		bool empty = meeting->put == meeting->taken;
		uint64_t item = empty ? 0 : meeting->items[meeting->taken++ % QUEUE_CAPACITY];
		if (!empty)
			pthread_cond_signal(&meeting->conditions[1]);
		pthread_mutex_unlock(&meeting->mutex);
		if (empty)
			return NULL;
		self->sum += item;
		counter_increment(self->counter);
	}
}

static void join_or_die(pthread_t thread)
{
	struct timespec deadline;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += STUCK_SECONDS;
	if (pthread_timedjoin_np(thread, NULL, &deadline))
		die_inconsistent("condvar: a thread still waits %d s after the end: a wake-up was lost",
				 STUCK_SECONDS);
}

/* Runs `count` workers. The first `early` of them must end before the queue is closed. */
static void run_workers(struct worker *workers, long count, long early, struct window *window,
			double seconds)
{
	window_run(window, seconds);
	for (long i = 0; i < early; i++)
		join_or_die(workers[i].thread);
	if (early) {
		pthread_mutex_lock(&workers[0].meeting->mutex);
		close_meeting(workers[0].meeting);
		pthread_mutex_unlock(&workers[0].meeting->mutex);
	}
	for (long i = early; i < count; i++)
		join_or_die(workers[i].thread);
}

static struct worker *new_workers(long count)
{
	return line_alloc((size_t)count, sizeof(struct worker));
}

static struct meeting *new_meetings(long count)
{
	struct meeting *meetings = line_alloc((size_t)count, sizeof *meetings);
	for (long i = 0; i < count; i++)
		open_meeting(&meetings[i]);
	return meetings;
}

static void start_worker(struct worker *worker, void *(*body)(void *), struct meeting *meeting,
			 struct window *window, struct counter *counter, long index)
{
	worker->meeting = meeting;
	worker->window = window;
	worker->counter = counter;
	worker->index = index;
	worker->thread = start_thread(body, worker);
}

/* Pairs of threads, each with its own mutex. An operation is a round trip; fairness is among pairs.
 * */
static void pingpong(long threads, double seconds)
{
	long pairs = threads / 2;
	struct worker *workers = new_workers(2 * pairs);
	struct meeting *meetings = new_meetings(pairs);
	struct window window;

	window_init(&window, pairs, 2 * pairs);
	for (long i = 0; i < 2 * pairs; i++)
		start_worker(&workers[i], pingpong_side, &meetings[i / 2], &window, &window.counters[i / 2],
			     i % 2);
	run_workers(workers, 2 * pairs, 0, &window, seconds);
	window_report(&window);
}

/* An operation is a round that all waiters have acknowledged. */
static void broadcast(long waiters, double seconds)
{
	struct worker *workers = new_workers(waiters + 1);
	struct meeting *meeting = new_meetings(1);
	struct counter *acknowledged = line_alloc((size_t)waiters, sizeof *acknowledged);
	struct window window;

	window_init(&window, 1, waiters + 1);
	for (long i = 0; i < waiters; i++)
		start_worker(&workers[i], broadcast_waiter, meeting, &window, &acknowledged[i], i);
	start_worker(&workers[waiters], broadcast_announcer, meeting, &window, &window.counters[0],
		     waiters);
	run_workers(workers, waiters + 1, 0, &window, seconds);
	for (long i = 0; i < waiters; i++)
		if (counter_read(&acknowledged[i]) != meeting->round)
			die_inconsistent("condvar: waiter %ld saw %" PRIu64 " of %" PRIu64 " rounds", i,
					 counter_read(&acknowledged[i]), meeting->round);
	window_report(&window);
}

/* An operation is an item taken; fairness is among consumers. */
static void queue(long pairs, double seconds)
{
	struct worker *workers = new_workers(2 * pairs);
	struct meeting *meeting = new_meetings(1);
	struct counter *produced = line_alloc((size_t)pairs, sizeof *produced);
	struct window window;
	uint64_t put = 0, taken = 0, put_sum = 0, taken_sum = 0;

	window_init(&window, pairs, 2 * pairs);
	for (long i = 0; i < pairs; i++) {
		start_worker(&workers[i], queue_producer, meeting, &window, &produced[i], i);
		start_worker(&workers[pairs + i], queue_consumer, meeting, &window, &window.counters[i], i);
	}
	run_workers(workers, 2 * pairs, pairs, &window, seconds);
	for (long i = 0; i < pairs; i++) {
		put += counter_read(&produced[i]);
		put_sum += workers[i].sum;
		taken += counter_read(&window.counters[i]);
		taken_sum += workers[pairs + i].sum;
	}
	if (put != taken || put_sum != taken_sum)
		die_inconsistent("condvar: %" PRIu64 " items with sum %" PRIu64 " put, %" PRIu64
				 " with sum %" PRIu64 " taken",
				 put, put_sum, taken, taken_sum);
	window_report(&window);
}

int main(int argc, char **argv)
{
	long threads = 2, waiters = 64;
	double seconds = 2;
	const char *mode = "pingpong";
	const struct option_row rows[] = {
		{ "mode", "MODE", OPTION_TEXT, &mode, 0, 0, "pingpong, broadcast or queue" },
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096,
		  "pingpong: threads, an even number; queue: producers, and as many consumers" },
		{ "waiters", "N", OPTION_COUNT, &waiters, 1, 4096,
		  "broadcast: threads that wait for each round" },
		{ "seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window" },
	};
	const struct program program = { "condvar",
					 "Threads wait for each other on condition variables.", rows,
					 sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);

	switch (parse_choice(&program, "mode", mode, mode_names, MODE_COUNT)) {
	case MODE_PINGPONG:
		if (threads % 2)
			usage_error(&program, "--threads %ld: pingpong needs an even number", threads);
		pingpong(threads, seconds);
		break;
	case MODE_BROADCAST:
		broadcast(waiters, seconds);
		break;
	case MODE_QUEUE:
		queue(threads, seconds);
		break;
	}
	return EXIT_SUCCESS;
}
