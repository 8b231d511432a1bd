/* Condition variables: codes, clocks, which thread wakes, what is held when a wait ends, and waits
 * under cancellation and signals. Every kind of mutex that the library takes over is tested here;
 * the kinds handed to libc are in conformance_handed.c. */
#include "check.h"

/* ---- attributes ------------------------------------------------------------------------------ */

static void attributes(void)
{
	pthread_condattr_t attr;
	clockid_t clock = 99;
	int shared = 99;
	CHECK(0, pthread_condattr_init(&attr), "condattr.init");
	CHECK(0, pthread_condattr_getclock(&attr, &clock), "condattr.getclock");
	CHECK_VALUE(CLOCK_REALTIME, clock, "condattr.clock starts as realtime");
	CHECK(0, pthread_condattr_setclock(&attr, CLOCK_MONOTONIC), "condattr.setclock monotonic");
	pthread_condattr_getclock(&attr, &clock);
	CHECK_VALUE(CLOCK_MONOTONIC, clock, "condattr.getclock returns the value set");
	CHECK(EINVAL, pthread_condattr_setclock(&attr, CLOCK_PROCESS_CPUTIME_ID),
	      "condattr.setclock to a clock without waits");
	CHECK(EINVAL, pthread_condattr_setclock(&attr, 4242),
	      "condattr.setclock to an invalid clock");
	pthread_condattr_getclock(&attr, &clock);
	CHECK_VALUE(CLOCK_MONOTONIC, clock, "condattr.clock unchanged by refused calls");
	CHECK(0, pthread_condattr_getpshared(&attr, &shared), "condattr.getpshared");
	CHECK_VALUE(PTHREAD_PROCESS_PRIVATE, shared, "condattr.pshared starts as private");
	CHECK(0, pthread_condattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), "condattr.setpshared");
	CHECK(EINVAL, pthread_condattr_setpshared(&attr, 7),
	      "condattr.setpshared to an invalid value");
	pthread_condattr_getpshared(&attr, &shared);
	CHECK_VALUE(PTHREAD_PROCESS_SHARED, shared, "condattr.getpshared returns the value set");
	CHECK(0, pthread_condattr_destroy(&attr), "condattr.destroy");
}

static void init_clock(pthread_cond_t *c, clockid_t clock)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, clock);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

/* ---- one waiter, step by step ---------------------------------------------------------------- */

enum how { WAIT, TIMEDWAIT, CLOCKWAIT_MONOTONIC, CLOCKWAIT_REALTIME, HOWS };
static const char *const HOW_NAMES[HOWS] = { "wait", "timedwait", "clockwait monotonic",
					    "clockwait realtime" };

struct room {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	enum how how;
	/* The mutex protects all fields below, except where a check reads them from outside. */
	atomic_int inside, tokens, left;
	atomic_int wrong_code, not_held;
};

static int wait_once(struct room *r)
{
	struct timespec t;
	switch (r->how) {
	case WAIT: return pthread_cond_wait(&r->cond, &r->mutex);
	case TIMEDWAIT:
		t = after_ms(CLOCK_REALTIME, LATER_MS);
		return pthread_cond_timedwait(&r->cond, &r->mutex, &t);
	case CLOCKWAIT_MONOTONIC:
		t = after_ms(CLOCK_MONOTONIC, LATER_MS);
		return pthread_cond_clockwait(&r->cond, &r->mutex, CLOCK_MONOTONIC, &t);
	default:
		t = after_ms(CLOCK_REALTIME, LATER_MS);
		return pthread_cond_clockwait(&r->cond, &r->mutex, CLOCK_REALTIME, &t);
	}
}

/* Waits for a token and takes it. Records every wait that does not return 0, and every wait that
 * returns without the mutex held. */
static long op_take(void *room)
{
	struct room *r = room;
	int error = pthread_mutex_lock(&r->mutex);
	atomic_fetch_add(&r->inside, 1);
	while (atomic_load(&r->tokens) == 0) {
		int code = CALL(wait_once(r));
		if (code != 0)
			atomic_store(&r->wrong_code, code);
		if (in_thread(op_trylock, &r->mutex) != EBUSY)
			atomic_fetch_add(&r->not_held, 1);
		if (code != 0)
			break;
	}
	atomic_fetch_sub(&r->tokens, 1);
	atomic_fetch_sub(&r->inside, 1);
	atomic_fetch_add(&r->left, 1);
	return error | pthread_mutex_unlock(&r->mutex);
}

static void room_init(struct room *r, int type, enum how how)
{
	pthread_mutexattr_t attr;
	memset(r, 0, sizeof *r);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, type);
	pthread_mutex_init(&r->mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	pthread_cond_init(&r->cond, NULL);
	r->how = how;
}

/* Returns with the mutex held and `n` threads blocked in their waits: each of them has taken the
 * mutex and released it inside its wait, since this thread could take it. */
static void lock_with_waiters(struct room *r, int n)
{
	for (;;) {
		pthread_mutex_lock(&r->mutex);
		if (atomic_load(&r->inside) == n)
			return;
		pthread_mutex_unlock(&r->mutex);
		sleep_ms(1);
	}
}

static void each_wait_with_each_mutex(void)
{
	static const struct { const char *name; int type; } KINDS[] = {
		{ "normal", PTHREAD_MUTEX_NORMAL },
		{ "recursive", PTHREAD_MUTEX_RECURSIVE },
		{ "errorcheck", PTHREAD_MUTEX_ERRORCHECK },
		{ "adaptive", PTHREAD_MUTEX_ADAPTIVE_NP },
	};
	struct puppet waiter;
	puppet_start(&waiter);
	for (size_t k = 0; k < LENGTH(KINDS); k++) {
		for (int how = 0; how < HOWS; how++) {
			const char *kind = KINDS[k].name, *name = HOW_NAMES[how];
			struct room r;
			room_init(&r, KINDS[k].type, how);
			check_begin("cond.%s %s releases the mutex", kind, name);
			puppet_send(&waiter, op_take, &r);
			lock_with_waiters(&r, 1);
			check_end(0, 0);
			atomic_store(&r.tokens, 1);
			CHECK(0, pthread_cond_signal(&r.cond), "cond.%s %s signal", kind, name);
			CHECK_VALUE(true, puppet_blocked(&waiter), "cond.%s %s waits for the mutex",
				    kind, name);
			CHECK(0, pthread_mutex_unlock(&r.mutex),
			      "cond.%s %s unlock of the signaller", kind, name);
			/* The in_thread() inside may change errno, so only the code counts. */
			CHECK_VALUE(0, puppet_result(&waiter) % ERRNO_CHANGED,
				    "cond.%s %s mutex codes", kind, name);
			CHECK_VALUE(0, r.wrong_code, "cond.%s %s returns 0", kind, name);
			CHECK_VALUE(0, r.not_held, "cond.%s %s mutex held after the wait", kind,
				    name);
			CHECK(0, pthread_cond_destroy(&r.cond), "cond.%s %s destroy", kind, name);
			CHECK(0, pthread_mutex_destroy(&r.mutex),
			      "cond.%s %s mutex free at the end", kind, name);
		}
	}
	puppet_end(&waiter);
}

/* ---- time-outs ------------------------------------------------------------------------------- */

static void time_outs(void)
{
	pthread_mutex_t m = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	pthread_cond_t real = PTHREAD_COND_INITIALIZER, mono;
	struct timespec t;
	init_clock(&mono, CLOCK_MONOTONIC);
	pthread_mutex_lock(&m);

	t = after_ms(CLOCK_REALTIME, 20);
	CHECK(ETIMEDOUT, pthread_cond_timedwait(&real, &m, &t),
	      "cond.timedwait realtime times out");
	CHECK_VALUE(true, reached(CLOCK_REALTIME, t), "cond.timedwait realtime not early");
	CHECK(EDEADLK, pthread_mutex_lock(&m), "cond.mutex held after a time-out");
	CHECK_VALUE(EBUSY, in_thread(op_trylock, &m),
		    "cond.mutex held for others after a time-out");
	t = after_ms(CLOCK_MONOTONIC, 20);
	CHECK(ETIMEDOUT, pthread_cond_timedwait(&mono, &m, &t),
	      "cond.timedwait monotonic times out");
	CHECK_VALUE(true, reached(CLOCK_MONOTONIC, t), "cond.timedwait monotonic not early");
	/* On the realtime clock, a monotonic time is decades in the past. */
	t = after_ms(CLOCK_MONOTONIC, 60000);
	CHECK(ETIMEDOUT, pthread_cond_timedwait(&real, &m, &t),
	      "cond.timedwait uses the default clock");
	/* clockwait uses its own clock, whatever the attribute says. */
	t = after_ms(CLOCK_MONOTONIC, 20);
	CHECK(ETIMEDOUT, pthread_cond_clockwait(&real, &m, CLOCK_MONOTONIC, &t),
	      "cond.clockwait monotonic on a realtime condition");
	CHECK_VALUE(true, reached(CLOCK_MONOTONIC, t), "cond.clockwait monotonic not early");
	t = after_ms(CLOCK_REALTIME, 20);
	CHECK(ETIMEDOUT, pthread_cond_clockwait(&mono, &m, CLOCK_REALTIME, &t),
	      "cond.clockwait realtime on a monotonic condition");
	CHECK_VALUE(true, reached(CLOCK_REALTIME, t), "cond.clockwait realtime not early");

	CHECK(ETIMEDOUT, pthread_cond_timedwait(&real, &m, &LONG_AGO), "cond.timedwait long ago");
	CHECK(ETIMEDOUT, pthread_cond_timedwait(&real, &m, &SEC_NEGATIVE),
	      "cond.timedwait before 1970");
	CHECK(ETIMEDOUT, pthread_cond_timedwait(&mono, &m, &SEC_NEGATIVE),
	      "cond.timedwait before the clock began");
	CHECK(ETIMEDOUT, pthread_cond_clockwait(&real, &m, CLOCK_MONOTONIC, &SEC_NEGATIVE),
	      "cond.clockwait before the clock began");
	CHECK(EINVAL, pthread_cond_timedwait(&real, &m, &NSEC_TOO_BIG),
	      "cond.timedwait nsec too big");
	CHECK(EINVAL, pthread_cond_timedwait(&real, &m, &NSEC_NEGATIVE),
	      "cond.timedwait nsec negative");
	CHECK(EINVAL, pthread_cond_clockwait(&real, &m, CLOCK_MONOTONIC, &NSEC_TOO_BIG),
	      "cond.clockwait nsec too big");
	CHECK(EINVAL, pthread_cond_clockwait(&real, &m, CLOCK_PROCESS_CPUTIME_ID, &LONG_AGO),
	      "cond.clockwait with a clock without waits");
	CHECK(EINVAL, pthread_cond_clockwait(&real, &m, 4242, &LONG_AGO),
	      "cond.clockwait with an invalid clock");
	CHECK(EDEADLK, pthread_mutex_lock(&m), "cond.mutex held after refused deadlines");
	CHECK(0, pthread_mutex_unlock(&m), "cond.mutex unlock after refused deadlines");

	/* The time is checked before the mutex. */
	CHECK(EINVAL, pthread_cond_timedwait(&real, &m, &NSEC_TOO_BIG),
	      "cond.timedwait with an invalid time and a mutex that is not held");
	CHECK(EPERM, pthread_cond_timedwait(&real, &m, &LONG_AGO),
	      "cond.timedwait with a mutex that is not held");
	CHECK(EPERM, pthread_cond_wait(&real, &m), "cond.wait with a mutex that is not held");
	CHECK(0, pthread_mutex_lock(&m), "cond.mutex lock after refused waits");
	t = after_ms(CLOCK_MONOTONIC, 20);
	CHECK(ETIMEDOUT, pthread_cond_timedwait(&mono, &m, &t),
	      "cond.timedwait after refused waits");
	CHECK(0, pthread_mutex_unlock(&m), "cond.mutex unlock after refused waits");
	CHECK(0, pthread_cond_destroy(&real), "cond.destroy after time-outs");
	CHECK(0, pthread_cond_destroy(&mono), "cond.destroy monotonic after time-outs");
}

/* A refused wait (EPERM) must not leave a waiter that consumes the next signal. */
static void refused_waits_do_not_count(void)
{
	struct puppet waiter;
	struct room r;
	puppet_start(&waiter);
	room_init(&r, PTHREAD_MUTEX_ERRORCHECK, WAIT);
	for (int i = 0; i < 3; i++)
		CHECK(EPERM, pthread_cond_wait(&r.cond, &r.mutex), "cond.refused wait %d", i);
	puppet_send(&waiter, op_take, &r);
	lock_with_waiters(&r, 1);
	atomic_store(&r.tokens, 1);
	pthread_cond_signal(&r.cond);
	pthread_mutex_unlock(&r.mutex);
	CHECK_VALUE(0, puppet_result(&waiter) % ERRNO_CHANGED,
		    "cond.a signal after refused waits wakes its waiter");
	puppet_end(&waiter);
}

/* Several waits time out; then one signal must wake the remaining waiter. */
static void timed_out_waits_do_not_count(void)
{
	struct puppet waiter;
	struct room r;
	puppet_start(&waiter);
	room_init(&r, PTHREAD_MUTEX_NORMAL, WAIT);
	puppet_send(&waiter, op_take, &r);
	lock_with_waiters(&r, 1);
	long errors = 0;
	check_begin("cond.time-outs beside an untimed waiter");
	for (int i = 0; i < 20; i++) {
		struct timespec t = after_ms(CLOCK_REALTIME, i % 2);
		errors += pthread_cond_timedwait(&r.cond, &r.mutex, &t) != ETIMEDOUT;
	}
	check_end(errors, 0);
	atomic_store(&r.tokens, 1);
	pthread_cond_signal(&r.cond);
	pthread_mutex_unlock(&r.mutex);
	CHECK_VALUE(0, puppet_result(&waiter) % ERRNO_CHANGED,
		    "cond.a signal after time-outs wakes its waiter");
	puppet_end(&waiter);
}

/* ---- which thread wakes ---------------------------------------------------------------------- */

enum { MANY = 8 };

static void wakes(void)
{
	struct puppet p[MANY];
	struct room r;
	for (int i = 0; i < MANY; i++)
		puppet_start(&p[i]);

	room_init(&r, PTHREAD_MUTEX_NORMAL, WAIT);
	CHECK(0, pthread_cond_signal(&r.cond), "cond.signal without waiters");
	CHECK(0, pthread_cond_broadcast(&r.cond), "cond.broadcast without waiters");
	/* Neither call is remembered: a later wait blocks. */
	pthread_mutex_lock(&r.mutex);
	struct timespec t = after_ms(CLOCK_REALTIME, 10);
	CHECK(ETIMEDOUT, pthread_cond_timedwait(&r.cond, &r.mutex, &t),
	      "cond.signals are not remembered");
	pthread_mutex_unlock(&r.mutex);

	for (int i = 0; i < MANY; i++)
		puppet_send(&p[i], op_take, &r);
	lock_with_waiters(&r, MANY);
	atomic_store(&r.tokens, 1);
	pthread_mutex_unlock(&r.mutex);
	CHECK(0, pthread_cond_signal(&r.cond), "cond.signal without the mutex");
	check_begin("cond.one signal wakes one of %d", MANY);
	while (atomic_load(&r.left) < 1)
		sleep_ms(1);
	check_end(1, 1);
	atomic_fetch_add(&r.tokens, 3);
	for (int i = 0; i < 3; i++)
		CHECK(0, pthread_cond_signal(&r.cond), "cond.signal %d of 3", i);
	check_begin("cond.three signals wake three");
	while (atomic_load(&r.left) < 4)
		sleep_ms(1);
	check_end(4, 4);
	pthread_mutex_lock(&r.mutex);
	atomic_fetch_add(&r.tokens, MANY - 4);
	CHECK(0, pthread_cond_broadcast(&r.cond), "cond.broadcast");
	CHECK(0, pthread_mutex_unlock(&r.mutex), "cond.unlock after broadcast");
	check_begin("cond.broadcast wakes all");
	for (int i = 0; i < MANY; i++)
		puppet_result(&p[i]);
	check_end(atomic_load(&r.left), MANY);
	CHECK_VALUE(0, r.wrong_code, "cond.all waits returned 0");
	CHECK_VALUE(0, r.not_held, "cond.all waits held the mutex");
	CHECK(0, pthread_cond_destroy(&r.cond), "cond.destroy after all left");

	/* A broadcast without the mutex, while waiters contend for it. */
	room_init(&r, PTHREAD_MUTEX_NORMAL, CLOCKWAIT_MONOTONIC);
	for (int i = 0; i < MANY; i++)
		puppet_send(&p[i], op_take, &r);
	lock_with_waiters(&r, MANY);
	pthread_mutex_unlock(&r.mutex);
	atomic_store(&r.tokens, MANY);
	CHECK(0, pthread_cond_broadcast(&r.cond), "cond.broadcast without the mutex");
	check_begin("cond.broadcast without the mutex wakes all");
	for (int i = 0; i < MANY; i++)
		puppet_result(&p[i]);
	check_end(atomic_load(&r.left), MANY);
	for (int i = 0; i < MANY; i++)
		puppet_end(&p[i]);
}

/* POSIX: a signal unblocks a thread that is blocked at that time. A thread that starts to wait
 * later must not consume it. Here a late waiter arrives, again and again, between a signal and the
 * early waiter's return; every early waiter must return. */
struct late {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int early_waiting, early_woken, late_waiting;
	bool end;
};

static long op_early(void *l)
{
	struct late *x = l;
	pthread_mutex_lock(&x->mutex);
	x->early_waiting = 1;
	/* No predicate loop: any wake-up counts, even a spurious one. A missing wake-up is the
	 * error. */
	int error = pthread_cond_wait(&x->cond, &x->mutex);
	x->early_woken = 1;
	x->early_waiting = 0;
	pthread_mutex_unlock(&x->mutex);
	return error;
}

static long op_late(void *l)
{
	struct late *x = l;
	long errors = 0;
	pthread_mutex_lock(&x->mutex);
	x->late_waiting = 1;
	while (!x->end)
		errors |= pthread_cond_wait(&x->cond, &x->mutex);
	x->late_waiting = 0;
	pthread_mutex_unlock(&x->mutex);
	return errors;
}

static void not_stolen(void)
{
	struct puppet early, late;
	long missed = 0, errors = 0;
	puppet_start(&early);
	puppet_start(&late);
	check_begin("cond.a later waiter does not consume the wake-up");
	for (int i = 0; i < 200; i++) {
		struct late x = { .mutex = PTHREAD_MUTEX_INITIALIZER,
				 .cond = PTHREAD_COND_INITIALIZER };
		puppet_send(&early, op_early, &x);
		for (bool listed = false; !listed; sched_yield()) {
			pthread_mutex_lock(&x.mutex);
			listed = x.early_waiting;
			if (listed) {
				pthread_cond_signal(&x.cond);
				/* The signaller still holds the mutex, so the late waiter starts
				 * after the signal. */
				puppet_send(&late, op_late, &x);
			}
			pthread_mutex_unlock(&x.mutex);
		}
		errors |= puppet_result(&early) % ERRNO_CHANGED;
		missed += !x.early_woken;
		pthread_mutex_lock(&x.mutex);
		x.end = true;
		pthread_mutex_unlock(&x.mutex);
		pthread_cond_broadcast(&x.cond);
		errors |= puppet_result(&late) % ERRNO_CHANGED;
		errors |= pthread_cond_destroy(&x.cond);
	}
	check_end(missed, 0);
	CHECK_VALUE(0, errors, "cond.codes with a later waiter");
	puppet_end(&early);
	puppet_end(&late);
}

/* ---- no lost wake-up ------------------------------------------------------------------------- */

struct table {
	pthread_mutex_t mutex;
	pthread_cond_t cond[2];
	int turn, rounds;
	bool timed;
};

struct player {
	struct table *table;
	int me;
};

static long op_play(void *player)
{
	struct player *p = player;
	struct table *t = p->table;
	for (int i = 0; i < t->rounds; i++) {
		pthread_mutex_lock(&t->mutex);
		while (t->turn != p->me) {
			int error;
			if (t->timed) {
				struct timespec later = after_ms(CLOCK_MONOTONIC, LATER_MS);
				error = pthread_cond_clockwait(&t->cond[p->me], &t->mutex,
							       CLOCK_MONOTONIC, &later);
			} else {
				error = pthread_cond_wait(&t->cond[p->me], &t->mutex);
			}
			if (error)
				return error;
		}
		t->turn = !p->me;
		/* Half of the signals are sent under the mutex, half after its release. */
		if (i % 2)
			pthread_cond_signal(&t->cond[!p->me]);
		pthread_mutex_unlock(&t->mutex);
		if (i % 2 == 0)
			pthread_cond_signal(&t->cond[!p->me]);
	}
	return 0;
}

static void ping_pong(const char *name, bool timed, int rounds)
{
	struct table t = { .mutex = PTHREAD_MUTEX_INITIALIZER,
			   .cond = { PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER },
			   .rounds = rounds, .timed = timed };
	struct player players[2] = { { &t, 0 }, { &t, 1 } };
	struct puppet other;
	puppet_start(&other);
	check_begin("cond.%s %d ping-pongs", name, rounds);
	puppet_send(&other, op_play, &players[1]);
	long errors = op_play(&players[0]);
	errors |= puppet_result(&other) % ERRNO_CHANGED;
	check_end(errors, 0);
	CHECK(0, pthread_cond_destroy(&t.cond[0]), "cond.%s destroy after ping-pongs", name);
	CHECK(0, pthread_mutex_destroy(&t.mutex), "cond.%s mutex destroy after ping-pongs", name);
	puppet_end(&other);
}

/* A bounded queue with two conditions: each item leaves it once. */
enum { ITEMS = 3000, PLACES = 4 };

struct queue {
	pthread_mutex_t mutex;
	pthread_cond_t not_empty, not_full;
	long place[PLACES], put, taken;
	int used, first, producers;
	struct timespec end;
};

static long op_produce(void *queue)
{
	struct queue *q = queue;
	for (int i = 1; i <= ITEMS && !reached(CLOCK_MONOTONIC, q->end); i++) {
		pthread_mutex_lock(&q->mutex);
		while (q->used == PLACES)
			pthread_cond_wait(&q->not_full, &q->mutex);
		q->place[(q->first + q->used++) % PLACES] = i;
		q->put += i;
		pthread_cond_signal(&q->not_empty);
		pthread_mutex_unlock(&q->mutex);
	}
	pthread_mutex_lock(&q->mutex);
	q->producers--;
	pthread_cond_broadcast(&q->not_empty);
	pthread_mutex_unlock(&q->mutex);
	return 0;
}

static long op_consume(void *queue)
{
	struct queue *q = queue;
	for (;;) {
		pthread_mutex_lock(&q->mutex);
		while (q->used == 0 && q->producers > 0)
			pthread_cond_wait(&q->not_empty, &q->mutex);
		if (q->used == 0) {
			pthread_mutex_unlock(&q->mutex);
			return 0;
		}
		q->taken += q->place[q->first];
		q->first = (q->first + 1) % PLACES;
		q->used--;
		pthread_cond_signal(&q->not_full);
		pthread_mutex_unlock(&q->mutex);
	}
}

static void bounded_queue(void)
{
	struct queue q = { .mutex = PTHREAD_MUTEX_INITIALIZER,
			  .not_empty = PTHREAD_COND_INITIALIZER,
			   .not_full = PTHREAD_COND_INITIALIZER, .producers = 2,
			   .end = after_ms(CLOCK_MONOTONIC, 4 * ROUNDS_MS) };
	struct puppet p[4];
	for (int i = 0; i < 4; i++)
		puppet_start(&p[i]);
	check_begin("cond.queue of %d places, 2 producers, 2 consumers", PLACES);
	for (int i = 0; i < 4; i++)
		puppet_send(&p[i], i < 2 ? op_produce : op_consume, &q);
	for (int i = 0; i < 4; i++)
		puppet_result(&p[i]);
	check_end(q.taken, q.put);
	CHECK_VALUE(true, q.put > 0, "cond.queue items");
	for (int i = 0; i < 4; i++)
		puppet_end(&p[i]);
}

/* ---- a recursive mutex held twice ------------------------------------------------------------ */

/* glibc releases one level. So a waiter that holds the mutex twice keeps it during the wait
 * (undefined in POSIX), and has both levels afterwards. */
static pthread_mutex_t twice = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t twice_cond = PTHREAD_COND_INITIALIZER;
static atomic_int twice_about_to_wait;

static long op_wait_twice(void *ignored)
{
	(void)ignored;
	pthread_mutex_lock(&twice);
	pthread_mutex_lock(&twice);
	atomic_store(&twice_about_to_wait, 1);
	struct timespec t = after_ms(CLOCK_REALTIME, 60);
	return pthread_cond_timedwait(&twice_cond, &twice, &t);
}

static void recursive_twice(void)
{
	struct puppet waiter;
	puppet_start(&waiter);
	puppet_send(&waiter, op_wait_twice, NULL);
	while (!atomic_load(&twice_about_to_wait))
		sleep_ms(1);
	sleep_ms(SETTLE_MS);
	CHECK(EBUSY, pthread_mutex_trylock(&twice),
	      "cond.recursive held twice: kept during the wait");
	CHECK_VALUE(ETIMEDOUT, puppet_result(&waiter), "cond.recursive held twice: wait");
	CHECK_VALUE(0, puppet_call(&waiter, op_unlock, &twice),
		    "cond.recursive held twice: first unlock");
	CHECK(EBUSY, pthread_mutex_trylock(&twice), "cond.recursive held twice: still held");
	CHECK_VALUE(0, puppet_call(&waiter, op_unlock, &twice),
		    "cond.recursive held twice: second unlock");
	CHECK(0, pthread_mutex_trylock(&twice), "cond.recursive held twice: free");
	CHECK(0, pthread_mutex_unlock(&twice), "cond.recursive held twice: unlock");
	puppet_end(&waiter);
}

/* ---- destroy --------------------------------------------------------------------------------- */

struct elsewhere {
	struct room *room;
	pthread_cond_t *cond;
};

static long op_take_from(void *pair)
{
	struct elsewhere *x = pair;
	struct room *r = x->room;
	pthread_cond_t *c = x->cond;
	int error = pthread_mutex_lock(&r->mutex);
	atomic_fetch_add(&r->inside, 1);
	/* The tokens appear right before the broadcast, so no thread waits on a destroyed
	 * condition. */
	while (atomic_load(&r->tokens) == 0)
		error |= pthread_cond_wait(c, &r->mutex);
	atomic_fetch_sub(&r->tokens, 1);
	return error | pthread_mutex_unlock(&r->mutex);
}

/* POSIX allows a condition to be destroyed right after a broadcast that wakes all its waiters, even
 * before they have returned. glibc's destroy waits until they no longer access it. */
static void destroy_after_broadcast(void)
{
	struct puppet p[3];
	long errors = 0;
	for (int i = 0; i < 3; i++)
		puppet_start(&p[i]);
	check_begin("cond.destroyed and unmapped right after a broadcast");
	for (int round = 0; round < 100; round++) {
		struct room *r = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		room_init(r, PTHREAD_MUTEX_NORMAL, WAIT);
		/* The condition has its own page, which is unmapped; the waiters still need the
		 * mutex. */
		pthread_cond_t *c = (pthread_cond_t *)((char *)r + 4096);
		pthread_cond_init(c, NULL);
		struct elsewhere pair = { r, c };
		for (int i = 0; i < 3; i++)
			puppet_send(&p[i], op_take_from, &pair);
		lock_with_waiters(r, 3);
		atomic_store(&r->tokens, 3);
		errors |= pthread_cond_broadcast(c);
		pthread_mutex_unlock(&r->mutex);
		errors |= pthread_cond_destroy(c);
		munmap(c, 4096);
		for (int i = 0; i < 3; i++)
			errors |= puppet_result(&p[i]) % ERRNO_CHANGED;
		pthread_mutex_destroy(&r->mutex);
		munmap(r, 4096);
	}
	check_end(errors, 0);
	for (int i = 0; i < 3; i++)
		puppet_end(&p[i]);
}

/* ---- cancellation ---------------------------------------------------------------------------- */

struct cancel_room {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	enum how how;
	bool asynchronous, already_pending;
	atomic_int waiting, cleaned_up, tid;
	/* Results seen by the clean-up handler. */
	long relock, others, unlock;
};

static void clean_up(void *room)
{
	struct cancel_room *r = room;
	r->relock = CALL(pthread_mutex_lock(&r->mutex));
	r->others = in_thread(op_trylock, &r->mutex);
	r->unlock = CALL(pthread_mutex_unlock(&r->mutex));
	atomic_store(&r->cleaned_up, 1);
}

static void *wait_for_cancellation(void *room)
{
	struct cancel_room *r = room;
	int old;
	pthread_mutex_lock(&r->mutex);
	pthread_cleanup_push(clean_up, r);
	if (r->already_pending)
		pthread_cancel(pthread_self());
	struct timespec t;
	atomic_store(&r->tid, gettid());
	atomic_store(&r->waiting, 1);
	for (;;) {
		if (r->asynchronous)
			pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
		switch (r->how) {
		case WAIT: pthread_cond_wait(&r->cond, &r->mutex); break;
		case TIMEDWAIT:
			t = after_ms(CLOCK_REALTIME, LATER_MS);
			pthread_cond_timedwait(&r->cond, &r->mutex, &t);
			break;
		default:
			t = after_ms(CLOCK_MONOTONIC, LATER_MS);
			pthread_cond_clockwait(&r->cond, &r->mutex, CLOCK_MONOTONIC, &t);
			break;
		}
		if (r->asynchronous)
			pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old);
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancellation(enum how how, bool asynchronous, bool pending)
{
	char name[80];
	snprintf(name, sizeof name, "%s%s%s", HOW_NAMES[how], asynchronous ? " asynchronous" : "",
		 pending ? " already pending" : "");
	struct cancel_room r = { .mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
				 .cond = PTHREAD_COND_INITIALIZER, .how = how,
				 .asynchronous = asynchronous, .already_pending = pending };
	pthread_t thread;
	void *result = NULL;
	check_begin("cond.cancel in %s ends the thread", name);
	thread_create(&thread, NULL, wait_for_cancellation, &r);
	if (!pending) {
		while (!atomic_load(&r.waiting))
			sleep_ms(1);
		/* The thread waits once the mutex is free. */
		pthread_mutex_lock(&r.mutex);
		pthread_mutex_unlock(&r.mutex);
		until_asleep(atomic_load(&r.tid));
		pthread_cancel(thread);
	}
	pthread_join(thread, &result);
	check_end(result == PTHREAD_CANCELED, true);
	CHECK_VALUE(1, r.cleaned_up, "cond.cancel in %s runs the handler", name);
	CHECK_VALUE(EDEADLK, r.relock, "cond.cancel in %s: handler owns the mutex", name);
	CHECK_VALUE(EBUSY, r.others, "cond.cancel in %s: others cannot lock it", name);
	CHECK_VALUE(0, r.unlock, "cond.cancel in %s: handler unlocks", name);
	CHECK(0, pthread_mutex_trylock(&r.mutex), "cond.cancel in %s: mutex free", name);
	struct timespec t = after_ms(CLOCK_REALTIME, 5);
	CHECK(ETIMEDOUT, pthread_cond_timedwait(&r.cond, &r.mutex, &t),
	      "cond.cancel in %s: condition usable", name);
	CHECK(0, pthread_mutex_unlock(&r.mutex), "cond.cancel in %s: unlock", name);
	CHECK(0, pthread_cond_destroy(&r.cond), "cond.cancel in %s: destroy", name);
}

/* Another thread holds the mutex when the waiter is cancelled: the waiter must acquire the mutex
 * before its handler runs. */
static void cancelled_while_busy(void)
{
	struct cancel_room r = { .mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
				 .cond = PTHREAD_COND_INITIALIZER, .how = WAIT };
	pthread_t thread;
	void *result = NULL;
	thread_create(&thread, NULL, wait_for_cancellation, &r);
	while (!atomic_load(&r.waiting))
		sleep_ms(1);
	pthread_mutex_lock(&r.mutex);
	pthread_cancel(thread);
	sleep_ms(SETTLE_MS);
	CHECK_VALUE(0, r.cleaned_up,
		    "cond.cancelled waiter does not run its handler without the mutex");
	CHECK(0, pthread_mutex_unlock(&r.mutex), "cond.unlock for a cancelled waiter");
	check_begin("cond.cancelled waiter ends once it has the mutex");
	pthread_join(thread, &result);
	check_end(result == PTHREAD_CANCELED, true);
	CHECK_VALUE(EDEADLK, r.relock, "cond.cancelled waiter owned the mutex in its handler");
}

static void *wait_with_cancel_disabled(void *room)
{
	struct room *r = room;
	int old;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	return (void *)(op_take(r) % ERRNO_CHANGED);
}

static void cancel_disabled(void)
{
	struct room r;
	pthread_t thread;
	void *result = (void *)-1L;
	room_init(&r, PTHREAD_MUTEX_NORMAL, WAIT);
	thread_create(&thread, NULL, wait_with_cancel_disabled, &r);
	lock_with_waiters(&r, 1);
	pthread_cancel(thread);
	pthread_mutex_unlock(&r.mutex);
	sleep_ms(SETTLE_MS);
	CHECK_VALUE(0, atomic_load(&r.left), "cond.wait with cancellation disabled continues");
	pthread_mutex_lock(&r.mutex);
	atomic_store(&r.tokens, 1);
	pthread_cond_signal(&r.cond);
	pthread_mutex_unlock(&r.mutex);
	check_begin("cond.wait with cancellation disabled ends at its signal");
	pthread_join(thread, &result);
	check_end((long)result, 0);
}

static void unlock_room(void *room)
{
	struct room *r = room;
	atomic_fetch_sub(&r->inside, 1);
	pthread_mutex_unlock(&r->mutex);
}

static void *take_or_be_cancelled(void *room)
{
	struct room *r = room;
	pthread_mutex_lock(&r->mutex);
	atomic_fetch_add(&r->inside, 1);
	pthread_cleanup_push(unlock_room, r);
	while (atomic_load(&r->tokens) == 0)
		pthread_cond_wait(&r->cond, &r->mutex);
	atomic_fetch_sub(&r->tokens, 1);
	pthread_cleanup_pop(1);
	return NULL;
}

/* One of two waiters is cancelled during a signal: the signal must reach a waiter that continues.
 */
static void cancelled_waiter_takes_no_signal(void)
{
	struct puppet waiter;
	long errors = 0, lost = 0;
	puppet_start(&waiter);
	check_begin("cond.signal beside a cancellation is not lost");
	for (int i = 0; i < 60; i++) {
		struct room r;
		pthread_t thread;
		void *result;
		room_init(&r, PTHREAD_MUTEX_NORMAL, WAIT);
		thread_create(&thread, NULL, take_or_be_cancelled, &r);
		lock_with_waiters(&r, 1);
		pthread_mutex_unlock(&r.mutex);
		puppet_send(&waiter, op_take, &r);
		lock_with_waiters(&r, 2);
		atomic_store(&r.tokens, 1);
		if (i % 2) {
			pthread_cond_signal(&r.cond);
			pthread_cancel(thread);
		} else {
			pthread_cancel(thread);
			pthread_cond_signal(&r.cond);
		}
		pthread_mutex_unlock(&r.mutex);
		pthread_join(thread, &result);
		if (result != PTHREAD_CANCELED) {
			/* The cancelled thread took the token; the other waiter gets a new one. */
			pthread_mutex_lock(&r.mutex);
			lost += atomic_load(&r.tokens) != 0;
			atomic_store(&r.tokens, 1);
			pthread_cond_signal(&r.cond);
			pthread_mutex_unlock(&r.mutex);
		}
		/* Otherwise the token and the signal are for the remaining waiter. */
		errors |= puppet_result(&waiter) % ERRNO_CHANGED;
		errors |= pthread_cond_destroy(&r.cond);
	}
	check_end(lost, 0);
	CHECK_VALUE(0, errors, "cond.codes beside a cancellation");
	puppet_end(&waiter);
}

static void *signal_while_cancelled(void *room)
{
	struct room *r = room;
	long errors = 0;
	pthread_cancel(pthread_self());
	errors |= pthread_cond_signal(&r->cond);
	errors |= pthread_cond_broadcast(&r->cond);
	atomic_store(&r->left, errors ? -1 : 1);
	pthread_testcancel();
	return NULL;
}

static void signal_is_not_a_cancellation_point(void)
{
	struct room r;
	pthread_t thread;
	room_init(&r, PTHREAD_MUTEX_NORMAL, WAIT);
	check_begin("cond.signal and broadcast are not cancellation points");
	thread_create(&thread, NULL, signal_while_cancelled, &r);
	pthread_join(thread, NULL);
	check_end(atomic_load(&r.left), 1);
}

/* ---- signals --------------------------------------------------------------------------------- */

static atomic_int handled;

static void on_signal(int sig)
{
	(void)sig;
	atomic_fetch_add(&handled, 1);
}

static void interrupted(enum how how, int flags, const char *with)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	struct puppet waiter;
	struct room r;
	sigaction(SIGUSR1, &action, NULL);
	atomic_store(&handled, 0);
	puppet_start(&waiter);
	room_init(&r, PTHREAD_MUTEX_NORMAL, how);
	puppet_send(&waiter, op_take, &r);
	lock_with_waiters(&r, 1);
	pthread_mutex_unlock(&r.mutex);
	for (int i = 0; i < 5; i++) {
		sleep_ms(1);
		pthread_kill(waiter.thread, SIGUSR1);
	}
	CHECK_VALUE(true, puppet_blocked(&waiter), "cond.%s continues after signals %s",
		    HOW_NAMES[how], with);
	/* The waiter may not have run yet. */
	for (int i = 0; i < 2000 && !atomic_load(&handled); i++)
		sleep_ms(1);
	CHECK_VALUE(true, atomic_load(&handled) > 0, "cond.%s handlers ran during the wait %s",
		    HOW_NAMES[how], with);
	pthread_mutex_lock(&r.mutex);
	atomic_store(&r.tokens, 1);
	pthread_cond_signal(&r.cond);
	pthread_mutex_unlock(&r.mutex);
	CHECK_VALUE(0, puppet_result(&waiter) % ERRNO_CHANGED, "cond.%s ends after signals %s",
		    HOW_NAMES[how], with);
	/* A wait may wake early, but never returns EINTR. */
	CHECK_VALUE(0, r.wrong_code, "cond.%s codes after signals %s", HOW_NAMES[how], with);
	CHECK_VALUE(0, r.not_held, "cond.%s mutex held after signals %s", HOW_NAMES[how], with);
	puppet_end(&waiter);
}

/* ---- several mutexes and conditions together ------------------------------------------------- */

static long op_wait_holding_another(void *room)
{
	struct room *r = room;
	pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&outer);
	long error = op_take(r);
	if (in_thread(op_trylock, &outer) != EBUSY)
		error = -1;
	pthread_mutex_unlock(&outer);
	return error;
}

static void other_mutexes_stay_held(void)
{
	struct puppet waiter;
	struct room r;
	puppet_start(&waiter);
	room_init(&r, PTHREAD_MUTEX_NORMAL, WAIT);
	puppet_send(&waiter, op_wait_holding_another, &r);
	lock_with_waiters(&r, 1);
	atomic_store(&r.tokens, 1);
	pthread_cond_broadcast(&r.cond);
	pthread_mutex_unlock(&r.mutex);
	CHECK_VALUE(0, puppet_result(&waiter) % ERRNO_CHANGED,
		    "cond.another mutex stays held during a wait");
	puppet_end(&waiter);
}

int main(void)
{
	check_start();
	attributes();
	each_wait_with_each_mutex();
	time_outs();
	refused_waits_do_not_count();
	timed_out_waits_do_not_count();
	wakes();
	not_stolen();
	ping_pong("wait", false, 10000);
	ping_pong("clockwait", true, 2000);
	bounded_queue();
	recursive_twice();
	destroy_after_broadcast();
	for (int how = WAIT; how <= CLOCKWAIT_MONOTONIC; how++) {
		cancellation(how, false, false);
		cancellation(how, true, false);
		cancellation(how, false, true);
	}
	cancelled_while_busy();
	cancel_disabled();
	cancelled_waiter_takes_no_signal();
	signal_is_not_a_cancellation_point();
	interrupted(WAIT, 0, "without SA_RESTART");
	interrupted(TIMEDWAIT, SA_RESTART, "with SA_RESTART");
	interrupted(CLOCKWAIT_MONOTONIC, 0, "without SA_RESTART");
	other_mutexes_stay_held();
	return check_finish();
}
