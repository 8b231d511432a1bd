/* Reader-writer locks and spin locks: shared readers, exclusive writers, both preferences, codes,
 * time-outs on both clocks, self-deadlocks that glibc detects, and the same across processes. */
#include "check.h"

struct timed {
	pthread_rwlock_t *lock;
	struct timespec deadline;
	bool write;
};

static long op_timed(void *t)
{
	struct timed *x = t;
	return x->write ? pthread_rwlock_clockwrlock(x->lock, CLOCK_MONOTONIC, &x->deadline)
			: pthread_rwlock_clockrdlock(x->lock, CLOCK_MONOTONIC, &x->deadline);
}

static const struct { const char *name; int kind; } KINDS[] = {
	{ "prefer reader", PTHREAD_RWLOCK_PREFER_READER_NP },
	{ "prefer writer", PTHREAD_RWLOCK_PREFER_WRITER_NP },
	{ "prefer writer nonrecursive", PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP },
};

static void attributes(void)
{
	pthread_rwlockattr_t attr;
	int value = -1;
	CHECK(0, pthread_rwlockattr_init(&attr), "rwlockattr.init");
	pthread_rwlockattr_getkind_np(&attr, &value);
	CHECK_VALUE(PTHREAD_RWLOCK_DEFAULT_NP, value, "rwlockattr.kind starts as default");
	for (size_t i = 0; i < LENGTH(KINDS); i++) {
		CHECK(0, pthread_rwlockattr_setkind_np(&attr, KINDS[i].kind),
		      "rwlockattr.setkind %s", KINDS[i].name);
		CHECK(0, pthread_rwlockattr_getkind_np(&attr, &value), "rwlockattr.getkind %s",
		      KINDS[i].name);
		CHECK_VALUE(KINDS[i].kind, value, "rwlockattr.getkind %s returns the value set",
			    KINDS[i].name);
	}
	CHECK(EINVAL, pthread_rwlockattr_setkind_np(&attr, 99),
	      "rwlockattr.setkind to an invalid kind");
	CHECK(0, pthread_rwlockattr_getpshared(&attr, &value), "rwlockattr.getpshared");
	CHECK_VALUE(PTHREAD_PROCESS_PRIVATE, value, "rwlockattr.pshared starts as private");
	CHECK(0, pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED),
	      "rwlockattr.setpshared");
	CHECK(EINVAL, pthread_rwlockattr_setpshared(&attr, 7),
	      "rwlockattr.setpshared to an invalid value");
	pthread_rwlockattr_getpshared(&attr, &value);
	CHECK_VALUE(PTHREAD_PROCESS_SHARED, value, "rwlockattr.getpshared returns the value set");
	CHECK(0, pthread_rwlockattr_destroy(&attr), "rwlockattr.destroy");
}

/* The rules for a lock of any kind, however it was initialised. */
static void codes(const char *name, pthread_rwlock_t *l, struct puppet *a, struct puppet *b)
{
	struct timespec t;
	/* Readers share. */
	CHECK(0, pthread_rwlock_rdlock(l), "rwlock.%s rdlock", name);
	CHECK_VALUE(0, puppet_call(a, op_rdlock, l), "rwlock.%s second reader at once", name);
	CHECK_VALUE(0, puppet_call(b, op_tryrdlock, l), "rwlock.%s third reader by tryrdlock",
		    name);
	CHECK(EBUSY, pthread_rwlock_trywrlock(l), "rwlock.%s trywrlock of a reader", name);
	CHECK_VALUE(0, puppet_call(b, op_rwunlock, l), "rwlock.%s third reader unlocks", name);
	CHECK_VALUE(EBUSY, puppet_call(b, op_trywrlock, l),
		    "rwlock.%s trywrlock beside two readers", name);
	/* The same thread twice, without a waiting writer. */
	CHECK(0, pthread_rwlock_rdlock(l), "rwlock.%s rdlock again", name);
	CHECK(0, pthread_rwlock_unlock(l), "rwlock.%s unlock of the second", name);
	/* A reader that requests a write lock waits for itself. glibc cannot detect this, so the
	 * call times out. */
	t = after_ms(CLOCK_REALTIME, 10);
	CHECK(ETIMEDOUT, pthread_rwlock_timedwrlock(l, &t), "rwlock.%s timedwrlock of a reader",
	      name);
	CHECK_VALUE(true, reached(CLOCK_REALTIME, t), "rwlock.%s timedwrlock not early", name);
	t = after_ms(CLOCK_MONOTONIC, 10);
	CHECK(ETIMEDOUT, pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &t),
	      "rwlock.%s clockwrlock of a reader", name);
	CHECK_VALUE(true, reached(CLOCK_MONOTONIC, t), "rwlock.%s clockwrlock not early", name);
	CHECK(ETIMEDOUT, pthread_rwlock_timedwrlock(l, &LONG_AGO), "rwlock.%s timedwrlock long ago",
	      name);
	CHECK(ETIMEDOUT, pthread_rwlock_timedwrlock(l, &SEC_NEGATIVE),
	      "rwlock.%s timedwrlock before 1970", name);
	/* A writer that timed out no longer holds readers back. */
	CHECK_VALUE(0, puppet_call(b, op_rdlock, l), "rwlock.%s reader after a writer gave up",
		    name);
	CHECK_VALUE(0, puppet_call(b, op_rwunlock, l), "rwlock.%s unlock of that reader", name);
	/* A waiting writer gets the lock once all readers have left. */
	puppet_send(b, op_write_once, l);
	CHECK_VALUE(true, puppet_blocked(b), "rwlock.%s writer waits for readers", name);
	CHECK(0, pthread_rwlock_unlock(l), "rwlock.%s first reader unlocks", name);
	CHECK_VALUE(true, puppet_blocked(b), "rwlock.%s writer waits for the last reader", name);
	CHECK_VALUE(0, puppet_call(a, op_rwunlock, l), "rwlock.%s last reader unlocks", name);
	CHECK_VALUE(0, puppet_result(b), "rwlock.%s writer gets the lock", name);

	/* A writer excludes all others. */
	CHECK(0, pthread_rwlock_wrlock(l), "rwlock.%s wrlock", name);
	CHECK_VALUE(EBUSY, puppet_call(a, op_tryrdlock, l), "rwlock.%s tryrdlock beside a writer",
		    name);
	CHECK_VALUE(EBUSY, puppet_call(a, op_trywrlock, l), "rwlock.%s trywrlock beside a writer",
		    name);
	CHECK(EBUSY, pthread_rwlock_trywrlock(l), "rwlock.%s trywrlock of the writer", name);
	CHECK(EBUSY, pthread_rwlock_tryrdlock(l), "rwlock.%s tryrdlock of the writer", name);
	CHECK(EDEADLK, pthread_rwlock_wrlock(l), "rwlock.%s wrlock of the writer", name);
	CHECK(EDEADLK, pthread_rwlock_rdlock(l), "rwlock.%s rdlock of the writer", name);
	CHECK(EDEADLK, pthread_rwlock_timedwrlock(l, &LONG_AGO),
	      "rwlock.%s timedwrlock of the writer", name);
	CHECK(EDEADLK, pthread_rwlock_timedrdlock(l, &LONG_AGO),
	      "rwlock.%s timedrdlock of the writer", name);
	CHECK(EDEADLK, pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &LONG_AGO),
	      "rwlock.%s clockwrlock of the writer", name);
	CHECK(EDEADLK, pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &LONG_AGO),
	      "rwlock.%s clockrdlock of the writer", name);
	puppet_send(a, op_read_once, l);
	puppet_send(b, op_write_once, l);
	CHECK_VALUE(true, puppet_blocked(a), "rwlock.%s reader waits for the writer", name);
	CHECK_VALUE(true, puppet_blocked(b), "rwlock.%s writer waits for the writer", name);
	CHECK(0, pthread_rwlock_unlock(l), "rwlock.%s writer unlocks", name);
	CHECK_VALUE(0, puppet_result(a), "rwlock.%s waiting reader gets the lock", name);
	CHECK_VALUE(0, puppet_result(b), "rwlock.%s waiting writer gets the lock", name);

	/* Time-outs of readers. */
	puppet_call(a, op_wrlock, l);
	t = after_ms(CLOCK_REALTIME, 10);
	CHECK(ETIMEDOUT, pthread_rwlock_timedrdlock(l, &t), "rwlock.%s timedrdlock times out",
	      name);
	CHECK_VALUE(true, reached(CLOCK_REALTIME, t), "rwlock.%s timedrdlock not early", name);
	t = after_ms(CLOCK_MONOTONIC, 10);
	CHECK(ETIMEDOUT, pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &t),
	      "rwlock.%s clockrdlock monotonic times out", name);
	CHECK_VALUE(true, reached(CLOCK_MONOTONIC, t), "rwlock.%s clockrdlock not early", name);
	t = after_ms(CLOCK_REALTIME, 10);
	CHECK(ETIMEDOUT, pthread_rwlock_clockrdlock(l, CLOCK_REALTIME, &t),
	      "rwlock.%s clockrdlock realtime times out", name);
	t = after_ms(CLOCK_REALTIME, 10);
	CHECK(ETIMEDOUT, pthread_rwlock_clockwrlock(l, CLOCK_REALTIME, &t),
	      "rwlock.%s clockwrlock realtime times out", name);
	CHECK(ETIMEDOUT, pthread_rwlock_timedrdlock(l, &LONG_AGO), "rwlock.%s timedrdlock long ago",
	      name);
	CHECK(ETIMEDOUT, pthread_rwlock_timedrdlock(l, &SEC_NEGATIVE),
	      "rwlock.%s timedrdlock before 1970", name);
	/* A timed wait that gets the lock in time. */
	struct timed served = { l, after_ms(CLOCK_MONOTONIC, LATER_MS), false };
	puppet_send(b, op_timed, &served);
	CHECK_VALUE(true, puppet_blocked(b), "rwlock.%s clockrdlock waits", name);
	puppet_call(a, op_rwunlock, l);
	CHECK_VALUE(0, puppet_result(b), "rwlock.%s clockrdlock gets the lock in time", name);
	served.write = true;
	puppet_send(a, op_timed, &served);
	CHECK_VALUE(true, puppet_blocked(a), "rwlock.%s clockwrlock waits", name);
	puppet_call(b, op_rwunlock, l);
	CHECK_VALUE(0, puppet_result(a), "rwlock.%s clockwrlock gets the lock in time", name);
	puppet_call(a, op_rwunlock, l);

	/* Unlike for a mutex, the time and the clock are checked even if the lock is free. */
	CHECK(EINVAL, pthread_rwlock_timedrdlock(l, &NSEC_TOO_BIG),
	      "rwlock.%s free timedrdlock nsec too big", name);
	CHECK(EINVAL, pthread_rwlock_timedwrlock(l, &NSEC_TOO_BIG),
	      "rwlock.%s free timedwrlock nsec too big", name);
	CHECK(EINVAL, pthread_rwlock_timedrdlock(l, &NSEC_NEGATIVE),
	      "rwlock.%s free timedrdlock nsec negative", name);
	CHECK(EINVAL, pthread_rwlock_timedwrlock(l, &NSEC_NEGATIVE),
	      "rwlock.%s free timedwrlock nsec negative", name);
	CHECK(EINVAL, pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &NSEC_TOO_BIG),
	      "rwlock.%s free clockrdlock nsec too big", name);
	CHECK(EINVAL, pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &NSEC_TOO_BIG),
	      "rwlock.%s free clockwrlock nsec too big", name);
	CHECK(EINVAL, pthread_rwlock_clockrdlock(l, CLOCK_PROCESS_CPUTIME_ID, &LONG_AGO),
	      "rwlock.%s clockrdlock with a clock without waits", name);
	CHECK(EINVAL, pthread_rwlock_clockwrlock(l, CLOCK_PROCESS_CPUTIME_ID, &LONG_AGO),
	      "rwlock.%s clockwrlock with a clock without waits", name);
	/* A past time does not prevent the acquisition of a free lock. */
	CHECK(0, pthread_rwlock_timedrdlock(l, &LONG_AGO), "rwlock.%s free timedrdlock in the past",
	      name);
	pthread_rwlock_unlock(l);
	CHECK(0, pthread_rwlock_timedwrlock(l, &LONG_AGO), "rwlock.%s free timedwrlock in the past",
	      name);
	pthread_rwlock_unlock(l);
	CHECK(0, pthread_rwlock_trywrlock(l), "rwlock.%s trywrlock when free", name);
	CHECK(0, pthread_rwlock_unlock(l), "rwlock.%s unlock after trywrlock", name);
	CHECK(0, pthread_rwlock_tryrdlock(l), "rwlock.%s tryrdlock when free", name);
	CHECK(0, pthread_rwlock_unlock(l), "rwlock.%s unlock after tryrdlock", name);
}

/* What a reader gets while a writer waits for other readers: the preference. */
static void preference(const char *name, bool nonrecursive, pthread_rwlock_t *l, struct puppet *a,
		       struct puppet *b)
{
	pthread_rwlock_rdlock(l);
	puppet_send(a, op_write_once, l);
	if (nonrecursive) {
		check_begin("rwlock.%s tryrdlock behind a waiting writer", name);
		int error;
		/* Until the writer waits, the reader gets the lock. */
		while ((error = pthread_rwlock_tryrdlock(l)) == 0) {
			pthread_rwlock_unlock(l);
			sleep_ms(1);
		}
		check_end(error, EBUSY);
		struct timespec t = after_ms(CLOCK_MONOTONIC, 10);
		CHECK(ETIMEDOUT, pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &t),
		      "rwlock.%s clockrdlock behind a waiting writer", name);
		puppet_send(b, op_read_once, l);
		CHECK_VALUE(true, puppet_blocked(b), "rwlock.%s rdlock behind a waiting writer",
			    name);
	} else {
		CHECK_VALUE(true, puppet_blocked(a), "rwlock.%s writer waits", name);
		CHECK(0, pthread_rwlock_tryrdlock(l), "rwlock.%s tryrdlock past a waiting writer",
		      name);
		pthread_rwlock_unlock(l);
		CHECK(0, pthread_rwlock_rdlock(l), "rwlock.%s rdlock again past a waiting writer",
		      name);
		pthread_rwlock_unlock(l);
		puppet_send(b, op_read_once, l);
		CHECK_VALUE(0, puppet_result(b), "rwlock.%s another reader past a waiting writer",
			    name);
		CHECK_VALUE(true, puppet_blocked(a), "rwlock.%s writer still waits", name);
	}
	CHECK(0, pthread_rwlock_unlock(l), "rwlock.%s reader unlocks for the writer", name);
	CHECK_VALUE(0, puppet_result(a), "rwlock.%s writer gets the lock", name);
	if (nonrecursive)
		CHECK_VALUE(0, puppet_result(b), "rwlock.%s reader gets the lock", name);
}

static void by_kind(void)
{
	struct puppet a, b;
	puppet_start(&a);
	puppet_start(&b);
	for (size_t i = 0; i < LENGTH(KINDS); i++) {
		pthread_rwlockattr_t attr;
		pthread_rwlock_t l;
		pthread_rwlockattr_init(&attr);
		pthread_rwlockattr_setkind_np(&attr, KINDS[i].kind);
		memset(&l, 0xa5, sizeof l);
		CHECK(0, pthread_rwlock_init(&l, &attr), "rwlock.%s init", KINDS[i].name);
		pthread_rwlockattr_destroy(&attr);
		codes(KINDS[i].name, &l, &a, &b);
		preference(KINDS[i].name,
			   KINDS[i].kind == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, &l, &a,
			   &b);
		CHECK(0, pthread_rwlock_destroy(&l), "rwlock.%s destroy", KINDS[i].name);
	}
	pthread_rwlock_t plain = PTHREAD_RWLOCK_INITIALIZER;
	codes("static", &plain, &a, &b);
	preference("static", false, &plain, &a, &b);
	CHECK(0, pthread_rwlock_destroy(&plain), "rwlock.static destroy");
	pthread_rwlock_t writer = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
	codes("static nonrecursive", &writer, &a, &b);
	preference("static nonrecursive", true, &writer, &a, &b);
	CHECK(0, pthread_rwlock_destroy(&writer), "rwlock.static nonrecursive destroy");
	pthread_rwlock_t none;
	CHECK(0, pthread_rwlock_init(&none, NULL), "rwlock.init without attributes");
	CHECK(0, pthread_rwlock_destroy(&none), "rwlock.destroyed unused");
	puppet_end(&a);
	puppet_end(&b);
}

/* ---- sections without system calls ----------------------------------------------------------- */

/* Locks again within short sections. A library that runs sections as transactions does so here: a
 * section has no output and no system call. Each case runs often, and all its results count. */
enum { SECTIONS = 300 };

typedef int rwlock_function(pthread_rwlock_t *);

static int timed_rdlock(pthread_rwlock_t *l) { return pthread_rwlock_timedrdlock(l, &LONG_AGO); }
static int timed_wrlock(pthread_rwlock_t *l) { return pthread_rwlock_timedwrlock(l, &LONG_AGO); }

static const struct again {
	const char *name;
	rwlock_function *outer, *inner;
	int code;
} AGAIN[] = {
	{ "rdlock of a reader", pthread_rwlock_rdlock, pthread_rwlock_rdlock, 0 },
	{ "tryrdlock of a reader", pthread_rwlock_rdlock, pthread_rwlock_tryrdlock, 0 },
	{ "timedrdlock of a reader", pthread_rwlock_rdlock, timed_rdlock, 0 },
	{ "trywrlock of a reader", pthread_rwlock_rdlock, pthread_rwlock_trywrlock, EBUSY },
	{ "timedwrlock of a reader", pthread_rwlock_rdlock, timed_wrlock, ETIMEDOUT },
	{ "rdlock of the writer", pthread_rwlock_wrlock, pthread_rwlock_rdlock, EDEADLK },
	{ "tryrdlock of the writer", pthread_rwlock_wrlock, pthread_rwlock_tryrdlock, EBUSY },
	{ "timedrdlock of the writer", pthread_rwlock_wrlock, timed_rdlock, EDEADLK },
	{ "wrlock of the writer", pthread_rwlock_wrlock, pthread_rwlock_wrlock, EDEADLK },
	{ "trywrlock of the writer", pthread_rwlock_wrlock, pthread_rwlock_trywrlock, EBUSY },
	{ "timedwrlock of the writer", pthread_rwlock_wrlock, timed_wrlock, EDEADLK },
};

/* Sections of `x` with the right result; `mutex` is NULL or encloses each section. */
static int again(const struct again *x, pthread_rwlock_t *l, pthread_mutex_t *mutex)
{
	int right = 0;
	for (int i = 0; i < SECTIONS; i++) {
		int error = mutex ? pthread_mutex_lock(mutex) : 0;
		error |= x->outer(l);
		int code = x->inner(l);
		if (code == 0)
			error |= pthread_rwlock_unlock(l);
		error |= pthread_rwlock_unlock(l);
		if (mutex)
			error |= pthread_mutex_unlock(mutex);
		right += error == 0 && code == x->code;
	}
	return right;
}

/* Sections of two locks that overlap: the second begins within the first, and ends after it. */
static int chained(rwlock_function *first, pthread_rwlock_t *l, rwlock_function *second,
		   pthread_rwlock_t *next)
{
	int right = 0;
	for (int i = 0; i < SECTIONS; i++) {
		int error = first(l);
		error |= second(next);
		error |= pthread_rwlock_unlock(l);
		int busy = pthread_rwlock_trywrlock(next);
		error |= pthread_rwlock_unlock(next);
		right += error == 0 && busy == EBUSY;
	}
	return right;
}

/* As above, but the second lock is a mutex. */
static int chained_to_mutex(rwlock_function *first, pthread_rwlock_t *l, pthread_mutex_t *mutex)
{
	int right = 0;
	for (int i = 0; i < SECTIONS; i++) {
		int error = first(l);
		/* Every other time the reader-writer lock is taken, not elided. */
		if (i % 2)
			sched_yield();
		error |= pthread_mutex_lock(mutex);
		error |= pthread_rwlock_unlock(l);
		error |= pthread_mutex_unlock(mutex);
		right += error == 0;
	}
	return right;
}

static void without_system_calls(void)
{
	struct puppet reader;
	puppet_start(&reader);
	for (size_t k = 0; k < LENGTH(KINDS); k++) {
		const char *name = KINDS[k].name;
		pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
		pthread_rwlockattr_t attr;
		pthread_rwlock_t l, next;
		pthread_rwlockattr_init(&attr);
		pthread_rwlockattr_setkind_np(&attr, KINDS[k].kind);
		pthread_rwlock_init(&l, &attr);
		pthread_rwlock_init(&next, &attr);
		for (size_t i = 0; i < LENGTH(AGAIN); i++) {
			CHECK_VALUE(SECTIONS, again(&AGAIN[i], &l, NULL), "rwlock.%s %s, at once",
				    name, AGAIN[i].name);
			CHECK_VALUE(SECTIONS, again(&AGAIN[i], &l, &mutex),
				    "rwlock.%s %s, at once, within a mutex", name, AGAIN[i].name);
		}
		static rwlock_function *const SIDES[] = { pthread_rwlock_rdlock,
							  pthread_rwlock_wrlock };
		for (int i = 0; i < 4; i++) {
			CHECK_VALUE(SECTIONS, chained(SIDES[i / 2], &l, SIDES[i % 2], &next),
				    "rwlock.%s chained to another, %d", name, i);
			CHECK(0, pthread_rwlock_trywrlock(&l), "rwlock.%s first is free, %d", name,
			      i);
			pthread_rwlock_unlock(&l);
			CHECK(0, pthread_rwlock_trywrlock(&next), "rwlock.%s second is free, %d",
			      name, i);
			pthread_rwlock_unlock(&next);
		}
		for (int i = 0; i < 2; i++) {
			CHECK_VALUE(SECTIONS, chained_to_mutex(SIDES[i], &l, &mutex),
				    "rwlock.%s chained to a mutex, %d", name, i);
			CHECK(0, pthread_rwlock_trywrlock(&l), "rwlock.%s is free again, %d", name,
			      i);
			pthread_rwlock_unlock(&l);
		}
		/* Readers come and go beside one that stays. */
		puppet_call(&reader, op_rdlock, &l);
		CHECK_VALUE(SECTIONS, again(&AGAIN[0], &l, NULL), "rwlock.%s readers beside one",
			    name);
		CHECK(EBUSY, pthread_rwlock_trywrlock(&l), "rwlock.%s the reader stays", name);
		puppet_call(&reader, op_rwunlock, &l);
		CHECK(0, pthread_rwlock_trywrlock(&l), "rwlock.%s the reader has left", name);
		pthread_rwlock_unlock(&l);
		CHECK(0, pthread_rwlock_destroy(&l), "rwlock.%s destroy after sections", name);
		pthread_rwlock_destroy(&next);
		pthread_rwlockattr_destroy(&attr);
	}
	puppet_end(&reader);
}

/* ---- invariants under load ------------------------------------------------------------------- */

enum { ROUNDS = 1000, USERS = 4 };

struct shelf {
	pthread_rwlock_t lock;
	/* Not atomic, on purpose: the two words are equal whenever no writer is inside. */
	long left, right;
	atomic_int readers, writers, mistakes, arrived;
	atomic_long writes;
	int way;
	struct timespec end;
};

static long op_use_shelf(void *s)
{
	struct shelf *x = s;
	int me = atomic_fetch_add(&x->arrived, 1);
	for (int i = 0; i < ROUNDS && !reached(CLOCK_MONOTONIC, x->end); i++) {
		bool write = (i + me) % 4 == 0;
		struct timespec later;
		int error = 0;
		switch (x->way) {
		case 0:
			error = write ? pthread_rwlock_wrlock(&x->lock)
				      : pthread_rwlock_rdlock(&x->lock);
			break;
		case 1:
			while ((error = write ? pthread_rwlock_trywrlock(&x->lock)
					      : pthread_rwlock_tryrdlock(&x->lock)) == EBUSY)
				sched_yield();
			break;
		default:
			do {
				later = after_ms(CLOCK_MONOTONIC, i % 2);
				error = write ? pthread_rwlock_clockwrlock(&x->lock,
									   CLOCK_MONOTONIC, &later)
					      : pthread_rwlock_clockrdlock(&x->lock,
									   CLOCK_MONOTONIC, &later);
			} while (error == ETIMEDOUT);
			break;
		}
		if (error)
			return error;
		if (write) {
			if (atomic_fetch_add(&x->writers, 1) != 0 || atomic_load(&x->readers) != 0)
				atomic_fetch_add(&x->mistakes, 1);
			x->left++;
			if (i % 16 == 0)
				sched_yield();
			x->right++;
			atomic_fetch_add(&x->writes, 1);
			atomic_fetch_sub(&x->writers, 1);
		} else {
			atomic_fetch_add(&x->readers, 1);
			if (atomic_load(&x->writers) != 0 || x->left != x->right)
				atomic_fetch_add(&x->mistakes, 1);
			if (i % 16 == 0)
				sched_yield();
			atomic_fetch_sub(&x->readers, 1);
		}
		if ((error = pthread_rwlock_unlock(&x->lock)) != 0)
			return error;
	}
	return 0;
}

static void exclusion(void)
{
	static const char *const WAYS[] = { "lock", "trylock", "short clocklock" };
	struct puppet p[USERS];
	for (int i = 0; i < USERS; i++)
		puppet_start(&p[i]);
	for (size_t k = 0; k < LENGTH(KINDS); k++) {
		for (int way = 0; way < (int)LENGTH(WAYS); way++) {
			struct shelf x = { .way = way,
					  .end = after_ms(CLOCK_MONOTONIC, ROUNDS_MS) };
			pthread_rwlockattr_t attr;
			pthread_rwlockattr_init(&attr);
			pthread_rwlockattr_setkind_np(&attr, KINDS[k].kind);
			pthread_rwlock_init(&x.lock, &attr);
			check_begin("rwlock.%s exclusion by %s: codes", KINDS[k].name, WAYS[way]);
			for (int i = 0; i < USERS; i++)
				puppet_send(&p[i], op_use_shelf, &x);
			long errors = 0;
			for (int i = 0; i < USERS; i++)
				errors |= puppet_result(&p[i]) % ERRNO_CHANGED;
			check_end(errors, 0);
			CHECK_VALUE(0, x.mistakes, "rwlock.%s exclusion by %s: mistakes",
				    KINDS[k].name, WAYS[way]);
			CHECK_VALUE(atomic_load(&x.writes), x.left,
				    "rwlock.%s exclusion by %s: writes", KINDS[k].name, WAYS[way]);
			pthread_rwlock_destroy(&x.lock);
		}
	}
	for (int i = 0; i < USERS; i++)
		puppet_end(&p[i]);
}

/* Many readers hold the lock at once: each waits inside for all others. */
enum { TOGETHER = 16 };

struct meeting {
	pthread_rwlock_t lock;
	pthread_barrier_t barrier;
};

static long op_meet(void *m)
{
	struct meeting *x = m;
	int error = pthread_rwlock_rdlock(&x->lock);
	pthread_barrier_wait(&x->barrier);
	return error | pthread_rwlock_unlock(&x->lock);
}

static void meeting(void)
{
	struct puppet p[TOGETHER];
	struct meeting m = { .lock = PTHREAD_RWLOCK_INITIALIZER };
	long errors = 0;
	pthread_barrier_init(&m.barrier, NULL, TOGETHER);
	check_begin("rwlock.%d readers inside at once", TOGETHER);
	for (int i = 0; i < TOGETHER; i++) {
		puppet_start(&p[i]);
		puppet_send(&p[i], op_meet, &m);
	}
	for (int i = 0; i < TOGETHER; i++)
		errors |= puppet_result(&p[i]);
	check_end(errors, 0);
	/* Readers that waited for a writer also enter together. */
	check_begin("rwlock.%d waiting readers enter at once", TOGETHER);
	pthread_rwlock_wrlock(&m.lock);
	for (int i = 0; i < TOGETHER; i++)
		puppet_send(&p[i], op_meet, &m);
	sleep_ms(SETTLE_MS);
	pthread_rwlock_unlock(&m.lock);
	for (int i = 0; i < TOGETHER; i++)
		errors |= puppet_result(&p[i]);
	check_end(errors, 0);
	CHECK(0, pthread_rwlock_trywrlock(&m.lock), "rwlock.free after %d readers", TOGETHER);
	pthread_rwlock_unlock(&m.lock);
	for (int i = 0; i < TOGETHER; i++)
		puppet_end(&p[i]);
}

/* Signals and cancellation do not affect a wait for a reader-writer lock. */
static atomic_int handled;

static void on_signal(int sig)
{
	(void)sig;
	atomic_fetch_add(&handled, 1);
}

static void interrupted(bool write)
{
	struct sigaction action = { .sa_handler = on_signal };
	pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
	struct puppet waiter;
	const char *name = write ? "wrlock" : "rdlock";
	sigaction(SIGUSR1, &action, NULL);
	atomic_store(&handled, 0);
	puppet_start(&waiter);
	pthread_rwlock_wrlock(&l);
	puppet_send(&waiter, write ? op_write_once : op_read_once, &l);
	for (int i = 0; i < 5; i++) {
		sleep_ms(1);
		pthread_kill(waiter.thread, SIGUSR1);
	}
	CHECK_VALUE(true, puppet_blocked(&waiter), "rwlock.%s still waits after signals", name);
	/* The waiter may not have run yet. */
	for (int i = 0; i < 2000 && !atomic_load(&handled); i++)
		sleep_ms(1);
	CHECK_VALUE(true, atomic_load(&handled) > 0, "rwlock.%s handlers ran during the wait",
		    name);
	pthread_rwlock_unlock(&l);
	CHECK_VALUE(0, puppet_result(&waiter), "rwlock.%s gets the lock after signals", name);
	pthread_rwlock_wrlock(&l);
	struct timed t = { &l, after_ms(CLOCK_MONOTONIC, 20), write };
	puppet_send(&waiter, op_timed, &t);
	for (int i = 0; i < 5; i++) {
		sleep_ms(1);
		pthread_kill(waiter.thread, SIGUSR1);
	}
	CHECK_VALUE(ETIMEDOUT, puppet_result(&waiter), "rwlock.clock%s times out after signals",
		    name);
	pthread_rwlock_unlock(&l);
	puppet_end(&waiter);
}

struct cancelled {
	pthread_rwlock_t *lock;
	long errors;
};

static void *use_while_cancelled(void *c)
{
	struct cancelled *x = c;
	pthread_cancel(pthread_self());
	x->errors = pthread_rwlock_rdlock(x->lock);
	x->errors |= pthread_rwlock_unlock(x->lock);
	x->errors |= pthread_rwlock_wrlock(x->lock);
	x->errors |= pthread_rwlock_unlock(x->lock);
	pthread_testcancel();
	return NULL;
}

static void not_a_cancellation_point(void)
{
	pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
	struct cancelled x = { &l, -1 };
	pthread_t thread;
	void *result;
	pthread_rwlock_wrlock(&l);
	thread_create(&thread, NULL, use_while_cancelled, &x);
	sleep_ms(SETTLE_MS);
	pthread_rwlock_unlock(&l);
	check_begin("rwlock.thread with a pending cancellation ends at pthread_testcancel");
	pthread_join(thread, &result);
	check_end(result == PTHREAD_CANCELED, true);
	CHECK_VALUE(0, x.errors, "rwlock.functions are not cancellation points");
	CHECK(0, pthread_rwlock_trywrlock(&l), "rwlock.free after the thread ends");
}

/* glibc promises for its rwlock what POSIX promises for a mutex: its sole owner may destroy it. */
static long op_write_then_unmap(void *l)
{
	int error = pthread_rwlock_wrlock(l);
	error |= pthread_rwlock_unlock(l);
	error |= pthread_rwlock_destroy(l);
	munmap(l, 4096);
	return error;
}

static void freed_by_waiter(void)
{
	struct puppet waiter;
	puppet_start(&waiter);
	long errors = 0;
	check_begin("rwlock.memory unmapped by the next writer");
	for (int i = 0; i < 200; i++) {
		pthread_rwlock_t *l = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_rwlock_init(l, NULL);
		if (i % 2)
			pthread_rwlock_rdlock(l);
		else
			pthread_rwlock_wrlock(l);
		puppet_send(&waiter, op_write_then_unmap, l);
		if (i % 3 == 0)
			sched_yield();
		else if (i % 16 == 1)
			sleep_ms(1);
		errors |= pthread_rwlock_unlock(l);
		errors |= puppet_result(&waiter);
	}
	check_end(errors, 0);
	puppet_end(&waiter);
}

/* ---- many readers ---------------------------------------------------------------------------- */

/* Readings beside another reader. A library that serves such locks differently does so then. */
enum { OVERLAPS = 100 };

static void overlap(pthread_rwlock_t *l, struct puppet *a)
{
	puppet_call(a, op_rdlock, l);
	for (int i = 0; i < OVERLAPS; i++) {
		pthread_rwlock_rdlock(l);
		pthread_rwlock_unlock(l);
	}
	puppet_call(a, op_rwunlock, l);
}

static long child_of_reader(void *l)
{
	if (pthread_rwlock_trywrlock(l) != EBUSY)
		return 1;
	long error = pthread_rwlock_rdlock(l);
	error |= pthread_rwlock_unlock(l);
	if (error || pthread_rwlock_trywrlock(l) != EBUSY)
		return 2;
	error = pthread_rwlock_unlock(l);
	error |= pthread_rwlock_wrlock(l);
	return error | pthread_rwlock_unlock(l);
}

static long child_that_initialises(void *l)
{
	struct puppet a;
	pthread_rwlock_init(l, NULL);
	puppet_start(&a);
	overlap(l, &a);
	puppet_end(&a);
	return pthread_rwlock_trywrlock(l);
}

static void after_overlaps(void)
{
	struct puppet a, b;
	puppet_start(&a);
	puppet_start(&b);
	for (size_t k = 0; k < LENGTH(KINDS); k++) {
		const char *name = KINDS[k].name;
		bool nonrecursive = KINDS[k].kind == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP;
		pthread_rwlockattr_t attr;
		pthread_rwlockattr_init(&attr);
		pthread_rwlockattr_setkind_np(&attr, KINDS[k].kind);
		pthread_rwlock_t l;
		char context[64];
		pthread_rwlock_init(&l, &attr);
		overlap(&l, &a);
		snprintf(context, sizeof context, "%s after overlaps", name);
		codes(context, &l, &a, &b);
		pthread_rwlock_init(&l, &attr);
		overlap(&l, &a);
		preference(context, nonrecursive, &l, &a, &b);
		/* Readers that entered at different times, and left in another order. */
		pthread_rwlock_init(&l, &attr);
		overlap(&l, &a);
		pthread_rwlock_rdlock(&l);
		CHECK_VALUE(0, puppet_call(&a, op_rdlock, &l), "rwlock.%s second reader", context);
		CHECK(EBUSY, pthread_rwlock_trywrlock(&l), "rwlock.%s trywrlock", context);
		CHECK_VALUE(0, puppet_call(&b, op_rdlock, &l), "rwlock.%s third reader", context);
		pthread_rwlock_unlock(&l);
		CHECK(EBUSY, pthread_rwlock_trywrlock(&l), "rwlock.%s beside two", context);
		puppet_call(&a, op_rwunlock, &l);
		CHECK(EBUSY, pthread_rwlock_trywrlock(&l), "rwlock.%s beside one", context);
		puppet_call(&b, op_rwunlock, &l);
		CHECK(0, pthread_rwlock_trywrlock(&l), "rwlock.%s free", context);
		/* Forks. */
		pthread_rwlock_init(&l, &attr);
		overlap(&l, &a);
		pthread_rwlock_rdlock(&l);
		CHECK_VALUE(0, in_child(child_of_reader, &l), "rwlock.%s child of a reader",
			    context);
		pthread_rwlock_unlock(&l);
		puppet_call(&a, op_rdlock, &l);
		CHECK_VALUE(0, in_child(child_that_initialises, &l),
			    "rwlock.%s child that initialises it", context);
		puppet_call(&a, op_rwunlock, &l);
		/* Initialised again while read. */
		pthread_rwlock_init(&l, &attr);
		overlap(&l, &a);
		pthread_rwlock_rdlock(&l);
		puppet_call(&a, op_rdlock, &l);
		pthread_rwlock_init(&l, &attr);
		overlap(&l, &a);
		CHECK(0, pthread_rwlock_trywrlock(&l), "rwlock.%s initialised while read", context);
		pthread_rwlockattr_destroy(&attr);
	}
	/* Writers asleep while readers hold the lock, and the memory unmapped at once. */
	long errors = 0;
	check_begin("rwlock.memory unmapped by the next writer after overlaps");
	for (int i = 0; i < 100; i++) {
		pthread_rwlock_t *l = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		overlap(l, &a);
		pthread_rwlock_rdlock(l);
		puppet_send(&a, op_write_then_unmap, l);
		if (i % 3 == 0)
			sched_yield();
		else if (i % 8 == 1)
			sleep_ms(1);
		errors |= pthread_rwlock_unlock(l);
		errors |= puppet_result(&a);
	}
	check_end(errors, 0);
	puppet_end(&a);
	puppet_end(&b);
}

/* ---- process-shared -------------------------------------------------------------------------- */

struct shared {
	pthread_rwlock_t lock;
	pthread_spinlock_t spin;
	long left, right, counter;
	atomic_int readers, mistakes, stage;
};

static long child_codes_beside_reader(void *s)
{
	struct shared *x = s;
	if (pthread_rwlock_tryrdlock(&x->lock) != 0)
		return 1;
	if (pthread_rwlock_unlock(&x->lock) != 0)
		return 2;
	if (pthread_rwlock_trywrlock(&x->lock) != EBUSY)
		return 3;
	struct timespec t = after_ms(CLOCK_REALTIME, 10);
	if (pthread_rwlock_timedwrlock(&x->lock, &t) != ETIMEDOUT)
		return 4;
	return 0;
}

static long child_codes_beside_writer(void *s)
{
	struct shared *x = s;
	if (pthread_rwlock_tryrdlock(&x->lock) != EBUSY)
		return 1;
	if (pthread_rwlock_trywrlock(&x->lock) != EBUSY)
		return 2;
	struct timespec t = after_ms(CLOCK_MONOTONIC, 10);
	if (pthread_rwlock_clockrdlock(&x->lock, CLOCK_MONOTONIC, &t) != ETIMEDOUT)
		return 3;
	return 0;
}

static long child_uses(void *s)
{
	struct shared *x = s;
	long errors = 0;
	for (int i = 0; i < 1000; i++) {
		if (i % 3 == 0) {
			errors |= pthread_rwlock_wrlock(&x->lock);
			x->left++;
			x->right++;
		} else {
			errors |= pthread_rwlock_rdlock(&x->lock);
			if (x->left != x->right)
				atomic_fetch_add(&x->mistakes, 1);
		}
		errors |= pthread_rwlock_unlock(&x->lock);
		errors |= pthread_spin_lock(&x->spin);
		x->counter++;
		errors |= pthread_spin_unlock(&x->spin);
	}
	return errors;
}

static void process_shared(void)
{
	struct shared *x = shared_memory(sizeof *x);
	pthread_rwlockattr_t attr;
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	CHECK(0, pthread_rwlock_init(&x->lock, &attr), "rwlock.shared init");
	CHECK(0, pthread_spin_init(&x->spin, PTHREAD_PROCESS_SHARED), "spin.shared init");
	pthread_rwlock_rdlock(&x->lock);
	CHECK_VALUE(0, in_child(child_codes_beside_reader, x),
		    "rwlock.shared child beside a reader");
	pthread_rwlock_unlock(&x->lock);
	pthread_rwlock_wrlock(&x->lock);
	CHECK(EDEADLK, pthread_rwlock_wrlock(&x->lock), "rwlock.shared wrlock of the writer");
	CHECK_VALUE(0, in_child(child_codes_beside_writer, x),
		    "rwlock.shared child beside a writer");
	pthread_rwlock_unlock(&x->lock);

	fflush(stdout);
	pid_t child = child_create();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit((int)child_uses(x));
	}
	CHECK_VALUE(0, child_uses(x), "rwlock.shared codes under contention");
	int status = -1;
	check_begin("rwlock.shared child's codes under contention");
	status = await_child(child);
	check_end(status, 0);
	CHECK_VALUE(0, x->mistakes, "rwlock.shared readers saw no partial write");
	CHECK_VALUE(2 * 334, x->left, "rwlock.shared writes");
	CHECK_VALUE(2 * 1000, x->counter, "spin.shared count");
	CHECK(0, pthread_rwlock_destroy(&x->lock), "rwlock.shared destroy");
	CHECK(0, pthread_spin_destroy(&x->spin), "spin.shared destroy");
}

/* ---- spin locks ------------------------------------------------------------------------------ */

static long op_spin_lock(void *l) { return pthread_spin_lock(l); }
static long op_spin_trylock(void *l) { return pthread_spin_trylock(l); }
static long op_spin_unlock(void *l) { return pthread_spin_unlock(l); }

struct spun {
	pthread_spinlock_t lock;
	long counter;
	int way;
};

static long op_spin_count(void *s)
{
	struct spun *x = s;
	long errors = 0;
	for (int i = 0; i < 3000; i++) {
		if (x->way)
			while (pthread_spin_trylock(&x->lock) != 0)
				sched_yield();
		else
			errors |= pthread_spin_lock(&x->lock);
		x->counter++;
		errors |= pthread_spin_unlock(&x->lock);
	}
	return errors;
}

static void spin_locks(void)
{
	struct puppet a, b;
	pthread_spinlock_t *l = malloc(sizeof *l);
	/* A spin lock has 4 bytes; the bytes around it belong to the program. */
	struct {
		int before;
		pthread_spinlock_t lock;
		int after;
	} fenced = { 0x1234567, 0, 0x7654321 };
	puppet_start(&a);
	puppet_start(&b);
	memset((void *)l, 0xa5, sizeof *l);
	CHECK(0, pthread_spin_init(l, PTHREAD_PROCESS_PRIVATE), "spin.init");
	CHECK(0, pthread_spin_lock(l), "spin.lock");
	CHECK(EBUSY, pthread_spin_trylock(l), "spin.trylock of the owner");
	CHECK_VALUE(EBUSY, puppet_call(&a, op_spin_trylock, (void *)l), "spin.trylock of another");
	puppet_send(&a, op_spin_lock, (void *)l);
	CHECK_VALUE(true, puppet_blocked(&a), "spin.lock waits");
	CHECK(0, pthread_spin_unlock(l), "spin.unlock");
	CHECK_VALUE(0, puppet_result(&a), "spin.waiter gets the lock");
	CHECK(EBUSY, pthread_spin_trylock(l), "spin.trylock of another thread's");
	CHECK_VALUE(0, puppet_call(&a, op_spin_unlock, (void *)l), "spin.waiter unlocks");
	CHECK(0, pthread_spin_trylock(l), "spin.trylock when free");
	CHECK(0, pthread_spin_unlock(l), "spin.unlock after trylock");
	CHECK(0, pthread_spin_destroy(l), "spin.destroy");
	free((void *)l);

	pthread_spin_init(&fenced.lock, PTHREAD_PROCESS_PRIVATE);
	puppet_send(&a, op_spin_lock, (void *)&fenced.lock);
	puppet_result(&a);
	puppet_send(&b, op_spin_lock, (void *)&fenced.lock);
	puppet_blocked(&b);
	puppet_call(&a, op_spin_unlock, (void *)&fenced.lock);
	puppet_result(&b);
	puppet_call(&b, op_spin_unlock, (void *)&fenced.lock);
	pthread_spin_destroy(&fenced.lock);
	CHECK_VALUE(0x1234567, fenced.before, "spin.memory before the lock untouched");
	CHECK_VALUE(0x7654321, fenced.after, "spin.memory after the lock untouched");

	for (int way = 0; way < 2; way++) {
		struct spun x = { .way = way };
		pthread_spin_init(&x.lock, PTHREAD_PROCESS_PRIVATE);
		check_begin("spin.exclusion by %s", way ? "trylock" : "lock");
		puppet_send(&a, op_spin_count, &x);
		puppet_send(&b, op_spin_count, &x);
		long errors = op_spin_count(&x);
		errors |= puppet_result(&a) % ERRNO_CHANGED;
		errors |= puppet_result(&b) % ERRNO_CHANGED;
		check_end(errors ? -errors : x.counter, 3 * 3000);
		pthread_spin_destroy(&x.lock);
	}
	puppet_end(&a);
	puppet_end(&b);
}

int main(void)
{
	check_start();
	attributes();
	by_kind();
	without_system_calls();
	exclusion();
	meeting();
	interrupted(false);
	interrupted(true);
	not_a_cancellation_point();
	freed_by_waiter();
	after_overlaps();
	process_shared();
	spin_locks();
	return check_finish();
}
