/* Waiters that give up, and the threads that wait behind them.
 *
 * A waiter that leaves without the lock must pass on whatever it held back. The cells below combine
 * every way to give up with every kind of waiter and everything that such a waiter can hold back
 * from another thread. A cell without a name cannot exist: only waits on condition variables can be
 * cancelled, and a try holds nothing back once it has returned.
 *
 *   gives up          | time-out         | past deadline    | cancelled      | a try fails
 *   ------------------+------------------+------------------+----------------+------------------
 *   mutex: place in   | M1 M4 (at the    | M2               |                | M3
 *     the queue, turn,|   release), M5   |                  |                |
 *     parked bit      |   (two in a row) |                  |                |
 *   writer: readers   | R1 R2 (two) R8   | R3               |                | R6
 *     that it holds   |   (as a reader   |                  |                |
 *     back            |   arrives)       |                  |                |
 *   writer: writers   | R4               | R3               |                | R6
 *   reader: writers   | R7               | R7               |                | R5
 *     and readers     |                  |                  |                |
 *   condition: its    | V1 (at the       | V4               | V2             |
 *     signal          |   signal)        |                  |                |
 *   condition: place  | V3               | V4               | V6             |
 *     at the mutex    | V5 (requeued)    |                  |                |
 *
 * Whether the waiter behind polls, sleeps in a slot, is parked, stands by for a queue, is in a
 * passive set or holds a ticket depends on the pair of managers: every pair runs all cells. */
#include "check.h"

enum { READERS = 3, ROUNDS = 40 };

static long op_timedlock(void *m)
{
	struct timespec t = after_ms(CLOCK_REALTIME, 15);
	return pthread_mutex_timedlock(m, &t);
}
static long op_timedrdlock(void *l)
{
	struct timespec t = after_ms(CLOCK_MONOTONIC, 15);
	return pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &t);
}
static long op_timedwrlock(void *l)
{
	struct timespec t = after_ms(CLOCK_MONOTONIC, 15);
	return pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &t);
}
static long op_timedwrlock_longer(void *l)
{
	struct timespec t = after_ms(CLOCK_REALTIME, 30);
	return pthread_rwlock_timedwrlock(l, &t);
}

/* Several calls with past deadlines: each must time out. */
static long op_timedlock_past(void *m)
{
	for (int i = 0; i < ROUNDS; i++) {
		int error = pthread_mutex_timedlock(m, &LONG_AGO);
		if (error != ETIMEDOUT)
			return error;
	}
	return ETIMEDOUT;
}
static long op_timedwrlock_past(void *l)
{
	for (int i = 0; i < ROUNDS; i++) {
		int error = pthread_rwlock_timedwrlock(l, &LONG_AGO);
		if (error != ETIMEDOUT)
			return error;
	}
	return ETIMEDOUT;
}
static long op_timedrdlock_past(void *l)
{
	for (int i = 0; i < ROUNDS; i++) {
		int error = pthread_rwlock_timedrdlock(l, &LONG_AGO);
		if (error != ETIMEDOUT)
			return error;
	}
	return ETIMEDOUT;
}

/* Delays an event by microseconds, so that it coincides with another. */
static void wait_us(unsigned us)
{
	struct timespec t = { 0, (long)us * 1000 };
	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

/* ---- mutexes --------------------------------------------------------------------------------- */

struct meeting {
	pthread_mutex_t *mutex;
	pthread_rwlock_t *lock;
	atomic_bool stop;
	unsigned us;
};

static long op_try_until_stopped(void *meeting)
{
	struct meeting *x = meeting;
	while (!atomic_load(&x->stop)) {
		int error = pthread_mutex_trylock(x->mutex);
		if (error == 0)
			pthread_mutex_unlock(x->mutex);
		else if (error != EBUSY)
			return error;
		sched_yield();
	}
	return 0;
}

static long op_timedlock_once(void *meeting)
{
	struct meeting *x = meeting;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += x->us * 1000L;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	int error = pthread_mutex_timedlock(x->mutex, &t);
	if (error == 0)
		return pthread_mutex_unlock(x->mutex);
	return error == ETIMEDOUT ? 0 : error;
}

static void mutex_cells(const char *name, int type, struct puppet *p)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t m;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, type);
	pthread_mutex_init(&m, &attr);
	pthread_mutexattr_destroy(&attr);

	pthread_mutex_lock(&m);
	puppet_send(&p[0], op_timedlock, &m);
	puppet_send(&p[1], op_lock_unlock, &m);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&p[0]), "M1 %s: a waiter times out", name);
	CHECK_VALUE(true, puppet_blocked(&p[1]), "M1 %s: the waiter behind it waits for the holder",
		    name);
	pthread_mutex_unlock(&m);
	CHECK_VALUE(0, puppet_result(&p[1]), "M1 %s: the waiter behind it gets the mutex", name);

	pthread_mutex_lock(&m);
	puppet_send(&p[1], op_lock_unlock, &m);
	puppet_blocked(&p[1]);
	CHECK_VALUE(ETIMEDOUT, puppet_call(&p[0], op_timedlock_past, &m), "M2 %s: past deadlines",
		    name);
	pthread_mutex_unlock(&m);
	CHECK_VALUE(0, puppet_result(&p[1]), "M2 %s: a waiter gets the mutex", name);

	struct meeting tries = { .mutex = &m };
	pthread_mutex_lock(&m);
	puppet_send(&p[0], op_try_until_stopped, &tries);
	puppet_send(&p[1], op_lock_unlock, &m);
	puppet_blocked(&p[1]);
	pthread_mutex_unlock(&m);
	CHECK_VALUE(0, puppet_result(&p[1]), "M3 %s: a waiter gets the mutex beside tries", name);
	atomic_store(&tries.stop, true);
	CHECK_VALUE(0, puppet_result(&p[0]), "M3 %s: the tries return 0 or EBUSY", name);

	/* The release coincides with the time-out: the wake-up must reach a thread that takes the
	 * mutex. */
	long error = 0;
	struct timespec end = after_ms(CLOCK_MONOTONIC, ROUNDS_MS / 4);
	check_begin("M4 %s: a release during a time-out wakes the next waiter", name);
	for (unsigned i = 0; i < ROUNDS && !reached(CLOCK_MONOTONIC, end); i++) {
		struct meeting race = { .mutex = &m, .us = 300 + 20 * i };
		pthread_mutex_lock(&m);
		puppet_send(&p[0], op_timedlock_once, &race);
		puppet_send(&p[1], op_lock_unlock, &m);
		wait_us(300 + 20 * i);
		pthread_mutex_unlock(&m);
		error |= puppet_result(&p[0]) | puppet_result(&p[1]);
	}
	check_end(error, 0);

	pthread_mutex_lock(&m);
	puppet_send(&p[0], op_timedlock, &m);
	puppet_send(&p[1], op_timedlock, &m);
	puppet_send(&p[2], op_lock_unlock, &m);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&p[0]), "M5 %s: the first of two gives up", name);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&p[1]), "M5 %s: the second of two gives up", name);
	pthread_mutex_unlock(&m);
	CHECK_VALUE(0, puppet_result(&p[2]), "M5 %s: the waiter behind them gets the mutex", name);
	CHECK(0, pthread_mutex_destroy(&m), "M %s: no thread is left at the mutex", name);
}

/* ---- reader-writer locks --------------------------------------------------------------------- */

static const struct { const char *name; int kind; bool keeps_readers_out; } KINDS[] = {
	{ "prefer reader", PTHREAD_RWLOCK_PREFER_READER_NP, false },
	{ "prefer writer", PTHREAD_RWLOCK_PREFER_WRITER_NP, false },
	{ "prefer writer nonrecursive", PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, true },
};

static long op_tryrdlock_until_stopped(void *meeting)
{
	struct meeting *x = meeting;
	while (!atomic_load(&x->stop)) {
		int error = pthread_rwlock_tryrdlock(x->lock);
		if (error == 0)
			return 0; /* and keeps the lock */
		if (error != EBUSY)
			return error;
	}
	return EBUSY;
}

static long op_trywrlock_until_stopped(void *meeting)
{
	struct meeting *x = meeting;
	while (!atomic_load(&x->stop)) {
		int error = pthread_rwlock_trywrlock(x->lock);
		if (error == 0)
			pthread_rwlock_unlock(x->lock);
		else if (error != EBUSY)
			return error;
		sched_yield();
	}
	return 0;
}

static long op_timedwrlock_once(void *meeting)
{
	struct meeting *x = meeting;
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += x->us * 1000L;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return pthread_rwlock_clockwrlock(x->lock, CLOCK_MONOTONIC, &t);
}

static void rwlock_cells(const char *name, int kind, bool keeps_readers_out, struct puppet *p)
{
	pthread_rwlockattr_t attr;
	pthread_rwlock_t l;
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, kind);
	pthread_rwlock_init(&l, &attr);
	pthread_rwlockattr_destroy(&attr);

	/* The main thread holds a read lock until the other readers have joined. */
	pthread_rwlock_rdlock(&l);
	puppet_send(&p[0], op_timedwrlock, &l);
	puppet_blocked(&p[0]);
	for (int i = 0; i < READERS; i++)
		puppet_send(&p[1 + i], op_rdlock, &l);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&p[0]), "R1 %s: a writer times out", name);
	for (int i = 0; i < READERS; i++)
		CHECK_VALUE(0, puppet_result(&p[1 + i]), "R1 %s: reader %d joins the first", name,
			    i);
	for (int i = 0; i < READERS; i++)
		puppet_call(&p[1 + i], op_rwunlock, &l);

	puppet_send(&p[0], op_timedwrlock, &l);
	puppet_send(&p[1], op_timedwrlock_longer, &l);
	puppet_blocked(&p[1]);
	puppet_send(&p[2], op_read_once, &l);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&p[0]), "R2 %s: the first of two writers gives up",
		    name);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&p[1]), "R2 %s: the second of two writers gives up",
		    name);
	CHECK_VALUE(0, puppet_result(&p[2]), "R2 %s: a reader joins the first", name);

	puppet_send(&p[0], op_timedwrlock_past, &l);
	CHECK_VALUE(0, puppet_call(&p[1], op_read_once, &l),
		    "R3 %s: a reader joins beside past deadlines", name);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&p[0]), "R3 %s: a writer with past deadlines", name);
	puppet_send(&p[1], op_write_once, &l);
	puppet_blocked(&p[1]);
	CHECK_VALUE(ETIMEDOUT, puppet_call(&p[0], op_timedwrlock_past, &l),
		    "R3 %s: past deadlines beside a waiting writer", name);
	pthread_rwlock_unlock(&l);
	CHECK_VALUE(0, puppet_result(&p[1]), "R3 %s: the writer gets the lock", name);

	pthread_rwlock_rdlock(&l);
	puppet_send(&p[0], op_timedwrlock, &l);
	puppet_send(&p[1], op_write_once, &l);
	puppet_blocked(&p[1]);
	puppet_send(&p[2], op_read_once, &l);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&p[0]), "R4 %s: one of two writers gives up", name);
	if (keeps_readers_out)
		CHECK_VALUE(true, puppet_blocked(&p[2]),
			    "R4 %s: a reader waits for the other writer", name);
	pthread_rwlock_unlock(&l);
	CHECK_VALUE(0, puppet_result(&p[1]), "R4 %s: the other writer gets the lock", name);
	CHECK_VALUE(0, puppet_result(&p[2]), "R4 %s: the reader gets the lock", name);

	/* A try during the writer's release gets the lock and keeps it: parked readers must join.
	 */
	long error = 0;
	struct timespec end = after_ms(CLOCK_MONOTONIC, ROUNDS_MS / 4);
	check_begin("R5 %s: readers join a try that succeeded during a release", name);
	for (unsigned i = 0; i < 10 * ROUNDS && !reached(CLOCK_MONOTONIC, end); i++) {
		struct meeting tries = { .lock = &l };
		pthread_rwlock_wrlock(&l);
		puppet_send(&p[1], op_rdlock, &l);
		puppet_send(&p[2], op_rdlock, &l);
		wait_us(100 + 10 * (i % 10));
		puppet_send(&p[0], op_tryrdlock_until_stopped, &tries);
		wait_us(20);
		pthread_rwlock_unlock(&l);
		error |= puppet_result(&p[0]) | puppet_result(&p[1]) | puppet_result(&p[2]);
		for (int j = 0; j < 3; j++)
			error |= puppet_call(&p[j], op_rwunlock, &l);
	}
	check_end(error, 0);

	struct meeting tries = { .lock = &l };
	pthread_rwlock_rdlock(&l);
	puppet_send(&p[0], op_trywrlock_until_stopped, &tries);
	puppet_send(&p[1], op_write_once, &l);
	puppet_blocked(&p[1]);
	pthread_rwlock_unlock(&l);
	CHECK_VALUE(0, puppet_result(&p[1]), "R6 %s: a writer gets the lock beside tries", name);
	puppet_send(&p[2], op_read_once, &l);
	CHECK_VALUE(0, puppet_result(&p[2]), "R6 %s: a reader gets the lock beside tries", name);
	atomic_store(&tries.stop, true);
	CHECK_VALUE(0, puppet_result(&p[0]), "R6 %s: the tries return 0 or EBUSY", name);

	puppet_call(&p[0], op_wrlock, &l);
	puppet_send(&p[1], op_timedrdlock, &l);
	puppet_send(&p[2], op_write_once, &l);
	puppet_send(&p[3], op_read_once, &l);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&p[1]), "R7 %s: a reader times out", name);
	CHECK_VALUE(ETIMEDOUT, puppet_call(&p[1], op_timedrdlock_past, &l),
		    "R7 %s: a reader with past deadlines", name);
	puppet_call(&p[0], op_rwunlock, &l);
	CHECK_VALUE(0, puppet_result(&p[2]), "R7 %s: a writer behind it gets the lock", name);
	CHECK_VALUE(0, puppet_result(&p[3]), "R7 %s: a reader behind it gets the lock", name);

	error = 0;
	end = after_ms(CLOCK_MONOTONIC, ROUNDS_MS / 4);
	pthread_rwlock_rdlock(&l);
	check_begin("R8 %s: a reader that arrives as a writer gives up", name);
	for (unsigned i = 0; i < ROUNDS && !reached(CLOCK_MONOTONIC, end); i++) {
		struct meeting race = { .lock = &l, .us = 400 };
		puppet_send(&p[0], op_timedwrlock_once, &race);
		wait_us(200 + 10 * i);
		error |= puppet_call(&p[1], op_read_once, &l);
		error |= puppet_result(&p[0]) == ETIMEDOUT ? 0 : 1;
	}
	check_end(error, 0);
	pthread_rwlock_unlock(&l);
	CHECK(0, pthread_rwlock_destroy(&l), "R %s: no thread is left at the lock", name);
}

/* ---- condition variables --------------------------------------------------------------------- */

/* Waiters of one condition. A signal adds a token, and the woken waiter takes it. */
struct place {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int tokens, arrived;
	unsigned us;
};

static void unlock_mutex(void *mutex)
{
	pthread_mutex_unlock(mutex);
}

/* Waits for a token; returns 0 with a token, otherwise ETIMEDOUT. Without `timed`, waits without a
 * deadline. */
static long take_token(struct place *x, bool timed)
{
	struct timespec t;
	/* pthread_cleanup_push may use setjmp. */
	volatile long error = 0;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += x->us * 1000L;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&x->mutex);
	pthread_cleanup_push(unlock_mutex, &x->mutex);
	x->arrived++;
	while (error == 0 && x->tokens == 0)
		error = timed ? pthread_cond_timedwait(&x->cond, &x->mutex,
						       &t) : pthread_cond_wait(&x->cond, &x->mutex);
	if (error == 0)
		x->tokens--;
	pthread_cleanup_pop(1);
	return error;
}

static long op_take(void *place) { return take_token(place, false); }
static long op_take_timed(void *place) { return take_token(place, true); }
static void *take_as_thread(void *place) { return (void *)take_token(place, false); }

/* Waits until `count` threads have started to wait; some may have timed out since. */
static void until_arrived(struct place *x, int count)
{
	for (int arrived = 0; arrived < count;) {
		sleep_ms(1);
		pthread_mutex_lock(&x->mutex);
		arrived = x->arrived;
		pthread_mutex_unlock(&x->mutex);
	}
}

/* Starts the next cell. No thread uses `x`. */
static void begin_cell(struct place *x, unsigned us)
{
	x->tokens = x->arrived = 0;
	x->us = us;
}

static void signal_token(struct place *x)
{
	pthread_mutex_lock(&x->mutex);
	x->tokens++;
	pthread_mutex_unlock(&x->mutex);
	pthread_cond_signal(&x->cond);
}

static void condition_cells(struct puppet *p)
{
	struct place x = { .mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };

	/* The longest waiter times out during the signal. There is one token for two waiters: if
	 * the first took it, a second signal serves the other. Neither may wait forever. */
	long error = 0;
	struct timespec end = after_ms(CLOCK_MONOTONIC, ROUNDS_MS / 2);
	check_begin("V1: a signal during a time-out reaches a waiter");
	for (unsigned i = 0; i < ROUNDS && !reached(CLOCK_MONOTONIC, end); i++) {
		begin_cell(&x, 1500);
		puppet_send(&p[0], op_take_timed, &x);
		until_arrived(&x, 1);
		puppet_send(&p[1], op_take, &x);
		wait_us(10 * i);
		signal_token(&x);
		if (puppet_result(&p[0]) == 0)
			signal_token(&x);
		error |= puppet_result(&p[1]);
	}
	check_end(error, 0);

	error = 0;
	end = after_ms(CLOCK_MONOTONIC, ROUNDS_MS / 2);
	check_begin("V2: a signal during a cancellation reaches a waiter");
	for (unsigned i = 0; i < ROUNDS && !reached(CLOCK_MONOTONIC, end); i++) {
		pthread_t cancelled;
		void *result;
		begin_cell(&x, 0);
		error |= thread_create(&cancelled, NULL, take_as_thread, &x);
		until_arrived(&x, 1);
		puppet_send(&p[1], op_take, &x);
		pthread_cancel(cancelled);
		wait_us(i);
		signal_token(&x);
		pthread_join(cancelled, &result);
		if (result == NULL)
			signal_token(&x);
		error |= puppet_result(&p[1]);
	}
	check_end(error, 0);

	begin_cell(&x, 10000);
	puppet_send(&p[0], op_take_timed, &x);
	until_arrived(&x, 1);
	pthread_mutex_lock(&x.mutex);
	puppet_send(&p[1], op_lock_unlock, &x.mutex);
	sleep_ms(20);
	pthread_mutex_unlock(&x.mutex);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&p[0]),
		    "V3: a waiter gives up and finds the mutex taken");
	CHECK_VALUE(0, puppet_result(&p[1]), "V3: a waiter for the mutex gets it");

	begin_cell(&x, 0);
	puppet_send(&p[1], op_take, &x);
	until_arrived(&x, 1);
	for (int i = 0; i < ROUNDS; i++)
		error |= puppet_call(&p[0], op_take_timed, &x) == ETIMEDOUT ? 0 : 1;
	CHECK_VALUE(0, error, "V4: past deadlines");
	signal_token(&x);
	CHECK_VALUE(0, puppet_result(&p[1]), "V4: the signal reaches the waiter");

	/* Waiters signalled under the mutex wait for the mutex, one of them beyond its deadline. */
	begin_cell(&x, 5000);
	puppet_send(&p[0], op_take_timed, &x);
	until_arrived(&x, 1);
	puppet_send(&p[1], op_take, &x);
	puppet_send(&p[2], op_take, &x);
	until_arrived(&x, 3);
	pthread_mutex_lock(&x.mutex);
	x.tokens = 3;
	pthread_cond_broadcast(&x.cond);
	sleep_ms(15);
	pthread_mutex_unlock(&x.mutex);
	long result = puppet_result(&p[0]);
	/* On a busy machine this waiter may time out before the broadcast. */
	CHECK_VALUE(true, result == 0 || result == ETIMEDOUT,
		    "V5: the waiter with a deadline ends");
	CHECK_VALUE(0, puppet_result(&p[1]), "V5: the second gets the mutex");
	CHECK_VALUE(0, puppet_result(&p[2]), "V5: the third gets the mutex");

	pthread_t cancelled;
	begin_cell(&x, 0);
	CHECK_VALUE(0, thread_create(&cancelled, NULL, take_as_thread, &x),
		    "V6: start the thread to cancel");
	until_arrived(&x, 1);
	puppet_send(&p[1], op_take, &x);
	until_arrived(&x, 2);
	pthread_mutex_lock(&x.mutex);
	x.tokens = 2;
	pthread_cond_broadcast(&x.cond);
	pthread_cancel(cancelled);
	sleep_ms(5);
	pthread_mutex_unlock(&x.mutex);
	CHECK_VALUE(0, puppet_result(&p[1]), "V6: the waiter beside it gets the mutex");
	CHECK_VALUE(0, pthread_join(cancelled, NULL), "V6: the cancelled thread ends");
	CHECK(0, pthread_mutex_trylock(&x.mutex), "V6: the mutex is free");
	pthread_mutex_unlock(&x.mutex);
	CHECK(0, pthread_cond_destroy(&x.cond), "V: no thread is left at the condition");
}

int main(void)
{
	struct puppet p[1 + READERS];
	check_start();
	for (size_t i = 0; i < LENGTH(p); i++)
		puppet_start(&p[i]);
	mutex_cells("normal", PTHREAD_MUTEX_NORMAL, p);
	mutex_cells("recursive", PTHREAD_MUTEX_RECURSIVE, p);
	mutex_cells("errorcheck", PTHREAD_MUTEX_ERRORCHECK, p);
	for (size_t i = 0; i < LENGTH(KINDS); i++)
		rwlock_cells(KINDS[i].name, KINDS[i].kind, KINDS[i].keeps_readers_out, p);
	condition_cells(p);
	for (size_t i = 0; i < LENGTH(p); i++)
		puppet_end(&p[i]);
	return check_finish();
}
