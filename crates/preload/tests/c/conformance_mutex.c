/* Mutexes of every kind that the library takes over: initialisation, return codes, rules for
 * relocking and unlocking, time-outs, and mutual exclusion. */
#include "check.h"

struct kind {
	const char *name;
	int type;
	pthread_mutex_t initialiser;
};

/* DEFAULT is NORMAL in glibc; a program may use either name, so both are here. */
static const struct kind KINDS[] = {
	{ "normal", PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_INITIALIZER },
	{ "recursive", PTHREAD_MUTEX_RECURSIVE, PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP },
	{ "errorcheck", PTHREAD_MUTEX_ERRORCHECK, PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP },
	{ "adaptive", PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP },
	{ "default", PTHREAD_MUTEX_DEFAULT, PTHREAD_MUTEX_INITIALIZER },
};

static void init_kind(pthread_mutex_t *m, int type)
{
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, type);
	pthread_mutex_init(m, &attr);
	pthread_mutexattr_destroy(&attr);
}

static void attributes(void)
{
	pthread_mutexattr_t attr;
	int value;
	CHECK(0, pthread_mutexattr_init(&attr), "mutexattr.init");
	pthread_mutexattr_gettype(&attr, &value);
	CHECK_VALUE(PTHREAD_MUTEX_DEFAULT, value, "mutexattr.type starts as default");
	for (size_t i = 0; i < LENGTH(KINDS); i++) {
		CHECK(0, pthread_mutexattr_settype(&attr, KINDS[i].type), "mutexattr.settype %s",
		      KINDS[i].name);
		value = -1;
		CHECK(0, pthread_mutexattr_gettype(&attr, &value), "mutexattr.gettype %s",
		      KINDS[i].name);
		CHECK_VALUE(KINDS[i].type, value, "mutexattr.gettype %s returns the value set",
			    KINDS[i].name);
	}
	CHECK(EINVAL, pthread_mutexattr_settype(&attr, 99), "mutexattr.settype to an invalid kind");
	CHECK(EINVAL, pthread_mutexattr_settype(&attr, -1), "mutexattr.settype to a negative kind");
	pthread_mutexattr_getpshared(&attr, &value);
	CHECK_VALUE(PTHREAD_PROCESS_PRIVATE, value, "mutexattr.pshared starts as private");
	CHECK(0, pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED),
	      "mutexattr.setpshared");
	CHECK(EINVAL, pthread_mutexattr_setpshared(&attr, 7),
	      "mutexattr.setpshared to an invalid value");
	CHECK(0, pthread_mutexattr_getpshared(&attr, &value), "mutexattr.getpshared");
	CHECK_VALUE(PTHREAD_PROCESS_SHARED, value, "mutexattr.getpshared returns the value set");
	pthread_mutexattr_getrobust(&attr, &value);
	CHECK_VALUE(PTHREAD_MUTEX_STALLED, value, "mutexattr.robust starts as stalled");
	CHECK(0, pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST), "mutexattr.setrobust");
	CHECK(EINVAL, pthread_mutexattr_setrobust(&attr, 7),
	      "mutexattr.setrobust to an invalid value");
	pthread_mutexattr_getrobust(&attr, &value);
	CHECK_VALUE(PTHREAD_MUTEX_ROBUST, value, "mutexattr.getrobust returns the value set");
	pthread_mutexattr_getprotocol(&attr, &value);
	CHECK_VALUE(PTHREAD_PRIO_NONE, value, "mutexattr.protocol starts as none");
	CHECK(0, pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT),
	      "mutexattr.setprotocol");
	CHECK(EINVAL, pthread_mutexattr_setprotocol(&attr, 7),
	      "mutexattr.setprotocol to an invalid value");
	pthread_mutexattr_getprotocol(&attr, &value);
	CHECK_VALUE(PTHREAD_PRIO_INHERIT, value, "mutexattr.getprotocol returns the value set");
	CHECK(EINVAL, pthread_mutexattr_setprioceiling(&attr, 1000),
	      "mutexattr.setprioceiling too high");
	CHECK(0, pthread_mutexattr_setprioceiling(&attr, 10), "mutexattr.setprioceiling");
	pthread_mutexattr_getprioceiling(&attr, &value);
	CHECK_VALUE(10, value, "mutexattr.getprioceiling returns the value set");
	CHECK(0, pthread_mutexattr_destroy(&attr), "mutexattr.destroy");
}

/* A process with one thread may lock without atomic instructions. What it holds then is held for
 * its first other thread, too. */
static void before_threads(void)
{
	pthread_mutex_t m[LENGTH(KINDS)];
	struct puppet other;

	for (size_t i = 0; i < LENGTH(KINDS); i++) {
		init_kind(&m[i], KINDS[i].type);
		CHECK(0, pthread_mutex_lock(&m[i]), "alone.%s lock", KINDS[i].name);
		CHECK(0, pthread_mutex_unlock(&m[i]), "alone.%s unlock", KINDS[i].name);
		CHECK(0, pthread_mutex_lock(&m[i]), "alone.%s locks again", KINDS[i].name);
	}
	puppet_start(&other);
	for (size_t i = 0; i < LENGTH(KINDS); i++) {
		CHECK(EBUSY, puppet_call(&other, op_trylock, &m[i]),
		      "alone.%s is held for the first thread", KINDS[i].name);
		puppet_send(&other, op_lock, &m[i]);
		CHECK_VALUE(true, puppet_blocked(&other), "alone.%s first thread waits",
			    KINDS[i].name);
		CHECK(0, pthread_mutex_unlock(&m[i]), "alone.%s unlock beside a waiter",
		      KINDS[i].name);
		CHECK_VALUE(0, puppet_result(&other), "alone.%s first thread locks", KINDS[i].name);
		CHECK(EBUSY, pthread_mutex_trylock(&m[i]), "alone.%s is held by the first thread",
		      KINDS[i].name);
		puppet_call(&other, op_unlock, &m[i]);
	}
	puppet_end(&other);
}

/* Time-outs on a mutex that another thread holds. */
struct timed {
	pthread_mutex_t *mutex;
	clockid_t clock;
	struct timespec deadline;
};

static long op_clocklock(void *t)
{
	struct timed *a = t;
	return pthread_mutex_clocklock(a->mutex, a->clock, &a->deadline);
}

static long op_timedlock(void *t)
{
	struct timed *a = t;
	return pthread_mutex_timedlock(a->mutex, &a->deadline);
}

static void time_outs(const char *name, pthread_mutex_t *m, struct puppet *holder)
{
	puppet_call(holder, op_lock, m);

	struct timespec deadline = after_ms(CLOCK_REALTIME, 20);
	CHECK(ETIMEDOUT, pthread_mutex_timedlock(m, &deadline), "mutex.%s timedlock times out",
	      name);
	CHECK_VALUE(true, reached(CLOCK_REALTIME, deadline), "mutex.%s timedlock not early", name);
	deadline = after_ms(CLOCK_MONOTONIC, 20);
	CHECK(ETIMEDOUT, pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &deadline),
	      "mutex.%s clocklock monotonic times out", name);
	CHECK_VALUE(true, reached(CLOCK_MONOTONIC, deadline),
		    "mutex.%s clocklock monotonic not early",
		    name);
	deadline = after_ms(CLOCK_REALTIME, 20);
	CHECK(ETIMEDOUT, pthread_mutex_clocklock(m, CLOCK_REALTIME, &deadline),
	      "mutex.%s clocklock realtime times out", name);
	CHECK_VALUE(true, reached(CLOCK_REALTIME, deadline),
		    "mutex.%s clocklock realtime not early", name);

	CHECK(ETIMEDOUT, pthread_mutex_timedlock(m, &LONG_AGO), "mutex.%s timedlock long ago",
	      name);
	CHECK(ETIMEDOUT, pthread_mutex_timedlock(m, &SEC_NEGATIVE),
	      "mutex.%s timedlock before 1970", name);
	CHECK(ETIMEDOUT, pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &SEC_NEGATIVE),
	      "mutex.%s clocklock before the clock began", name);
	CHECK(EINVAL, pthread_mutex_timedlock(m, &NSEC_TOO_BIG), "mutex.%s timedlock nsec too big",
	      name);
	CHECK(EINVAL, pthread_mutex_timedlock(m, &NSEC_NEGATIVE),
	      "mutex.%s timedlock nsec negative", name);
	CHECK(EINVAL, pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &NSEC_TOO_BIG),
	      "mutex.%s clocklock nsec too big", name);
	CHECK(EINVAL, pthread_mutex_clocklock(m, CLOCK_PROCESS_CPUTIME_ID, &LONG_AGO),
	      "mutex.%s clocklock with a clock without waits", name);

	/* A timed wait that gets the mutex in time. */
	struct puppet waiter;
	puppet_start(&waiter);
	struct timed t = { m, CLOCK_MONOTONIC, after_ms(CLOCK_MONOTONIC, LATER_MS) };
	puppet_send(&waiter, op_clocklock, &t);
	CHECK_VALUE(true, puppet_blocked(&waiter), "mutex.%s clocklock waits", name);
	CHECK_VALUE(0, puppet_call(holder, op_unlock, m), "mutex.%s unlock with a timed waiter",
		    name);
	CHECK_VALUE(0, puppet_result(&waiter), "mutex.%s clocklock gets the lock in time", name);
	CHECK_VALUE(0, puppet_call(&waiter, op_unlock, m), "mutex.%s unlock after clocklock", name);

	/* Without contention the time is not checked, but the clock always is. */
	CHECK(0, pthread_mutex_timedlock(m, &NSEC_TOO_BIG),
	      "mutex.%s free timedlock ignores the time", name);
	pthread_mutex_unlock(m);
	CHECK(0, pthread_mutex_timedlock(m, &LONG_AGO), "mutex.%s free timedlock in the past",
	      name);
	pthread_mutex_unlock(m);
	CHECK(0, pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &NSEC_NEGATIVE),
	      "mutex.%s free clocklock ignores the time", name);
	pthread_mutex_unlock(m);
	CHECK(EINVAL, pthread_mutex_clocklock(m, CLOCK_PROCESS_CPUTIME_ID, &LONG_AGO),
	      "mutex.%s free clocklock with a clock without waits", name);
	CHECK(EINVAL, pthread_mutex_clocklock(m, 4242, &LONG_AGO),
	      "mutex.%s free clocklock with an invalid clock", name);
	CHECK(0, pthread_mutex_trylock(m), "mutex.%s free after the time-outs", name);
	pthread_mutex_unlock(m);
	puppet_end(&waiter);
}

/* Lock calls by the owner, by kind. */
static void relock(const char *name, int type, pthread_mutex_t *m, struct puppet *other)
{
	struct timespec soon;
	pthread_mutex_lock(m);
	switch (type) {
	case PTHREAD_MUTEX_RECURSIVE:
		CHECK(0, pthread_mutex_lock(m), "mutex.%s lock again", name);
		CHECK(0, pthread_mutex_trylock(m), "mutex.%s trylock again", name);
		CHECK(0, pthread_mutex_timedlock(m, &NSEC_TOO_BIG), "mutex.%s timedlock again",
		      name);
		CHECK(0, pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &LONG_AGO),
		      "mutex.%s clocklock again",
		      name);
		for (int depth = 4; depth > 0; depth--) {
			CHECK(0, pthread_mutex_unlock(m), "mutex.%s unlock at depth %d", name,
			      depth);
			CHECK_VALUE(EBUSY, puppet_call(other, op_trylock, m),
				    "mutex.%s still held at depth %d", name, depth);
		}
		break;
	case PTHREAD_MUTEX_ERRORCHECK:
		CHECK(EDEADLK, pthread_mutex_lock(m), "mutex.%s lock again", name);
		CHECK(EBUSY, pthread_mutex_trylock(m), "mutex.%s trylock again", name);
		CHECK(EDEADLK, pthread_mutex_timedlock(m, &LONG_AGO), "mutex.%s timedlock again",
		      name);
		CHECK(EDEADLK, pthread_mutex_timedlock(m, &NSEC_TOO_BIG),
		      "mutex.%s timedlock again with an invalid time", name);
		CHECK(EDEADLK, pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &LONG_AGO),
		      "mutex.%s clocklock again", name);
		CHECK_VALUE(EBUSY, puppet_call(other, op_trylock, m), "mutex.%s still held", name);
		break;
	default:
		/* Locking a NORMAL mutex again deadlocks: the timed form shows it. */
		CHECK(EBUSY, pthread_mutex_trylock(m), "mutex.%s trylock again", name);
		soon = after_ms(CLOCK_REALTIME, 10);
		CHECK(ETIMEDOUT, pthread_mutex_timedlock(m, &soon), "mutex.%s timedlock again",
		      name);
		soon = after_ms(CLOCK_MONOTONIC, 10);
		CHECK(ETIMEDOUT, pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &soon),
		      "mutex.%s clocklock again", name);
		CHECK_VALUE(EBUSY, puppet_call(other, op_trylock, m), "mutex.%s still held", name);
		break;
	}
	CHECK(0, pthread_mutex_unlock(m), "mutex.%s last unlock", name);
	CHECK_VALUE(0, puppet_call(other, op_trylock_unlock, m),
		    "mutex.%s free for others after the last unlock", name);
}

static void ownership(const char *name, int type, pthread_mutex_t *m, struct puppet *other)
{
	if (type == PTHREAD_MUTEX_RECURSIVE || type == PTHREAD_MUTEX_ERRORCHECK) {
		CHECK(EPERM, pthread_mutex_unlock(m), "mutex.%s unlock when free", name);
		puppet_call(other, op_lock, m);
		CHECK(EPERM, pthread_mutex_unlock(m), "mutex.%s unlock of another thread's", name);
		CHECK(EBUSY, pthread_mutex_trylock(m), "mutex.%s held after the refused unlock",
		      name);
		CHECK_VALUE(0, puppet_call(other, op_unlock, m), "mutex.%s unlock by its owner",
			    name);
	} else {
		/* POSIX leaves this open; glibc and its manual allow it. Programs use a mutex as a
		 * gate that one thread closes and another opens. */
		puppet_call(other, op_lock, m);
		CHECK(0, pthread_mutex_unlock(m), "mutex.%s unlock of another thread's", name);
		CHECK(0, pthread_mutex_trylock(m), "mutex.%s free after another thread's unlock",
		      name);
		pthread_mutex_unlock(m);
		/* The same with a waiter. */
		struct puppet waiter;
		puppet_start(&waiter);
		puppet_call(other, op_lock, m);
		puppet_send(&waiter, op_lock_unlock, m);
		CHECK_VALUE(true, puppet_blocked(&waiter),
			    "mutex.%s waits for another thread's unlock", name);
		CHECK(0, pthread_mutex_unlock(m),
		      "mutex.%s unlock of another thread's with a waiter", name);
		CHECK_VALUE(0, puppet_result(&waiter), "mutex.%s the waiter gets the lock", name);
		puppet_end(&waiter);
	}
}

static void life(const char *name, pthread_mutex_t *m, struct puppet *other)
{
	CHECK(0, pthread_mutex_lock(m), "mutex.%s lock", name);
	CHECK(EBUSY, pthread_mutex_destroy(m), "mutex.%s destroy when held", name);
	CHECK_VALUE(EBUSY, puppet_call(other, op_trylock, m),
		    "mutex.%s trylock of another thread's", name);
	puppet_send(other, op_lock_unlock, m);
	CHECK_VALUE(true, puppet_blocked(other), "mutex.%s lock waits", name);
	CHECK(EBUSY, pthread_mutex_destroy(m), "mutex.%s destroy when held with a waiter", name);
	CHECK(0, pthread_mutex_unlock(m), "mutex.%s unlock", name);
	CHECK_VALUE(0, puppet_result(other), "mutex.%s the waiter gets the lock", name);
	CHECK(0, pthread_mutex_trylock(m), "mutex.%s trylock when free", name);
	CHECK(0, pthread_mutex_unlock(m), "mutex.%s unlock after trylock", name);
}

static void by_kind(void)
{
	struct puppet other;
	puppet_start(&other);
	for (size_t i = 0; i < LENGTH(KINDS); i++) {
		const struct kind *k = &KINDS[i];
		pthread_mutexattr_t attr;
		pthread_mutexattr_init(&attr);
		pthread_mutexattr_settype(&attr, k->type);
		pthread_mutex_t m;
		/* init must not depend on the memory's contents. */
		memset(&m, 0xa5, sizeof m);
		CHECK(0, pthread_mutex_init(&m, &attr), "mutex.%s init", k->name);
		pthread_mutexattr_destroy(&attr);
		life(k->name, &m, &other);
		relock(k->name, k->type, &m, &other);
		ownership(k->name, k->type, &m, &other);
		time_outs(k->name, &m, &other);
		CHECK(0, pthread_mutex_destroy(&m), "mutex.%s destroy", k->name);
		CHECK(0, pthread_mutex_init(&m, NULL), "mutex.%s reinitialised", k->name);
		CHECK(0, pthread_mutex_destroy(&m), "mutex.%s destroyed unused", k->name);
	}
	puppet_end(&other);
}

static void static_initialisers(void)
{
	struct puppet other;
	puppet_start(&other);
	for (size_t i = 0; i < LENGTH(KINDS); i++) {
		char name[40];
		snprintf(name, sizeof name, "static %s", KINDS[i].name);
		pthread_mutex_t m = KINDS[i].initialiser;
		life(name, &m, &other);
		relock(name, KINDS[i].type, &m, &other);
		CHECK(0, pthread_mutex_destroy(&m), "mutex.%s destroy", name);
	}
	pthread_mutex_t *zero = calloc(1, sizeof *zero);
	CHECK(0, pthread_mutex_lock(zero), "mutex.zeroed memory lock");
	CHECK_VALUE(EBUSY, puppet_call(&other, op_trylock, zero), "mutex.zeroed memory held");
	CHECK(0, pthread_mutex_unlock(zero), "mutex.zeroed memory unlock");
	free(zero);
	pthread_mutex_t defaults;
	CHECK(0, pthread_mutex_init(&defaults, NULL), "mutex.init without attributes");
	CHECK(0, pthread_mutex_lock(&defaults), "mutex.without attributes lock");
	CHECK(EBUSY, pthread_mutex_trylock(&defaults), "mutex.without attributes trylock again");
	pthread_mutex_unlock(&defaults);
	pthread_mutex_destroy(&defaults);
	puppet_end(&other);
}

/* ---- mutual exclusion ------------------------------------------------------------------------ */

enum { EXCLUDERS = 3 };

struct excluded {
	pthread_mutex_t mutex;
	/* Not atomic, on purpose: an update is lost as soon as two threads are inside. */
	long counter;
	pthread_t owner;
	atomic_int mistakes;
	atomic_long done;
	int rounds, way;
	struct timespec end;
};

static long op_exclude(void *e)
{
	struct excluded *x = e;
	for (int i = 0; i < x->rounds && !reached(CLOCK_MONOTONIC, x->end); i++) {
		struct timespec later = after_ms(CLOCK_MONOTONIC, LATER_MS);
		int error = 0;
		switch (x->way) {
		case 0: error = pthread_mutex_lock(&x->mutex); break;
		case 1:
			while ((error = pthread_mutex_trylock(&x->mutex)) == EBUSY)
				sched_yield();
			break;
		case 2: error = pthread_mutex_clocklock(&x->mutex, CLOCK_MONOTONIC, &later); break;
		case 3:
			/* Deadlines so short that many pass during the wait. */
			do {
				later = after_ms(CLOCK_REALTIME, 0);
				later.tv_nsec = later.tv_nsec + 50000 < 1000000000
						? later.tv_nsec + 50000
						: 999999999;
				error = pthread_mutex_timedlock(&x->mutex, &later);
			} while (error == ETIMEDOUT);
			break;
		}
		if (error)
			return error;
		x->owner = pthread_self();
		x->counter++;
		if (i % 64 == 0)
			sched_yield();
		if (!pthread_equal(x->owner, pthread_self()))
			atomic_fetch_add(&x->mistakes, 1);
		if ((error = pthread_mutex_unlock(&x->mutex)) != 0)
			return error;
		atomic_fetch_add(&x->done, 1);
	}
	return 0;
}

static void exclusion(void)
{
	static const char *const WAYS[] = { "lock", "trylock", "clocklock", "short timedlock" };
	struct puppet p[EXCLUDERS];
	for (int t = 0; t < EXCLUDERS; t++)
		puppet_start(&p[t]);
	for (size_t i = 0; i < LENGTH(KINDS); i++) {
		for (int way = 0; way < (int)LENGTH(WAYS); way++) {
			struct excluded x = { .rounds = 1500, .way = way,
					      .end = after_ms(CLOCK_MONOTONIC, ROUNDS_MS) };
			init_kind(&x.mutex, KINDS[i].type);
			for (int t = 0; t < EXCLUDERS; t++)
				puppet_send(&p[t], op_exclude, &x);
			long errors = 0;
			check_begin("mutex.%s exclusion by %s: codes", KINDS[i].name, WAYS[way]);
			/* Clock reads and sched_yield may set errno here; only codes count. */
			for (int t = 0; t < EXCLUDERS; t++)
				errors |= puppet_result(&p[t]) % ERRNO_CHANGED;
			check_end(errors, 0);
			CHECK_VALUE(atomic_load(&x.done), x.counter,
				    "mutex.%s exclusion by %s: count",
				    KINDS[i].name, WAYS[way]);
			CHECK_VALUE(0, x.mistakes, "mutex.%s exclusion by %s: owner", KINDS[i].name,
				    WAYS[way]);
			pthread_mutex_destroy(&x.mutex);
		}
	}
	for (int t = 0; t < EXCLUDERS; t++)
		puppet_end(&p[t]);
}

/* POSIX: the last thread to lock a mutex may destroy it and free its memory at once, even if the
 * unlock that released it has not returned yet. An unlock that accesses the mutex after releasing
 * it faults here, in unmapped memory. */
static void freed_after_unlock(void)
{
	struct puppet other;
	puppet_start(&other);
	long errors = 0;
	check_begin("mutex.memory unmapped by the next owner");
	for (int i = 0; i < 300; i++) {
		pthread_mutex_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_mutex_init(m, NULL);
		errors |= puppet_call(&other, op_lock, m);
		puppet_send(&other, op_unlock, m);
		if (i % 2)
			sched_yield();
		errors |= pthread_mutex_lock(m);
		errors |= pthread_mutex_unlock(m);
		errors |= pthread_mutex_destroy(m);
		munmap(m, 4096);
		puppet_result(&other);
	}
	check_end(errors, 0);
	puppet_end(&other);
}

/* The owner unlocks, and the waiter that acquires the mutex frees its memory. */
static long op_lock_then_unmap(void *m)
{
	int error = pthread_mutex_lock(m);
	error |= pthread_mutex_unlock(m);
	error |= pthread_mutex_destroy(m);
	munmap(m, 4096);
	return error;
}

static void freed_by_waiter(void)
{
	struct puppet waiter;
	puppet_start(&waiter);
	long errors = 0;
	check_begin("mutex.memory unmapped by the next waiter");
	for (int i = 0; i < 300; i++) {
		pthread_mutex_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_mutex_init(m, NULL);
		pthread_mutex_lock(m);
		puppet_send(&waiter, op_lock_then_unmap, m);
		/* The waiter may sleep by now, may still spin, or may not have started. */
		if (i % 3 == 0)
			sched_yield();
		else if (i % 16 == 1)
			sleep_ms(1);
		errors |= pthread_mutex_unlock(m);
		errors |= puppet_result(&waiter);
	}
	check_end(errors, 0);
	puppet_end(&waiter);
}

/* ---- odd places ------------------------------------------------------------------------------ */

/* A thread may hold many mutexes and unlock them in any order. */
static void many_held(void)
{
	enum { MANY = 200 };
	static pthread_mutex_t m[MANY];
	struct puppet other;
	puppet_start(&other);
	long errors = 0;
	for (int i = 0; i < MANY; i++)
		init_kind(&m[i], KINDS[i % LENGTH(KINDS)].type);
	check_begin("mutex.%d held at once", MANY);
	for (int i = 0; i < MANY; i++)
		errors |= pthread_mutex_lock(&m[i]);
	check_end(errors, 0);
	check_begin("mutex.each of them is held");
	for (int i = 0; i < MANY; i++)
		errors += puppet_call(&other, op_trylock, &m[i]) != EBUSY;
	check_end(errors, 0);
	check_begin("mutex.unlocked in another order");
	for (int i = 0; i < MANY; i++)
		errors |= pthread_mutex_unlock(&m[(i * 77 + 13) % MANY]);
	check_end(errors, 0);
	check_begin("mutex.each of them is free");
	for (int i = 0; i < MANY; i++)
		errors |= puppet_call(&other, op_trylock_unlock, &m[i]);
	check_end(errors, 0);
	puppet_end(&other);
}

static void deep_recursion(void)
{
	pthread_mutex_t m = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	long errors = 0;
	check_begin("mutex.recursive 100000 deep");
	for (int i = 0; i < 100000; i++)
		errors |= pthread_mutex_lock(&m);
	for (int i = 0; i < 99999; i++)
		errors |= pthread_mutex_unlock(&m);
	check_end(errors, 0);
	CHECK_VALUE(EBUSY, in_thread(op_trylock, &m), "mutex.recursive held by the last level");
	CHECK(0, pthread_mutex_unlock(&m), "mutex.recursive last of 100000");
	CHECK(EPERM, pthread_mutex_unlock(&m), "mutex.recursive one unlock too many");
}

static pthread_mutex_t early = PTHREAD_MUTEX_INITIALIZER;
static int early_errors = -1;

__attribute__((constructor)) static void before_main(void)
{
	early_errors = pthread_mutex_lock(&early);
	early_errors |= pthread_mutex_trylock(&early) != EBUSY;
	early_errors |= pthread_mutex_unlock(&early);
}

/* A signal must not end or disturb a wait for a mutex. */
static atomic_int signals_seen;

static void on_signal(int sig)
{
	(void)sig;
	atomic_fetch_add(&signals_seen, 1);
}

static void interrupted(int flags, const char *how)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	sigaction(SIGUSR1, &action, NULL);
	struct puppet waiter;
	puppet_start(&waiter);
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&m);
	atomic_store(&signals_seen, 0);
	puppet_send(&waiter, op_lock_unlock, &m);
	for (int i = 0; i < 5; i++) {
		sleep_ms(2);
		pthread_kill(waiter.thread, SIGUSR1);
	}
	CHECK_VALUE(true, puppet_blocked(&waiter), "mutex.lock still waits after signals %s", how);
	/* The waiter may not have run yet. */
	for (int i = 0; i < 2000 && !atomic_load(&signals_seen); i++)
		sleep_ms(1);
	CHECK_VALUE(true, atomic_load(&signals_seen) > 0, "mutex.handlers ran during the wait %s",
		    how);
	CHECK(0, pthread_mutex_unlock(&m), "mutex.unlock after signals %s", how);
	CHECK_VALUE(0, puppet_result(&waiter), "mutex.lock after signals %s", how);
	struct timed t = { &m, CLOCK_REALTIME, after_ms(CLOCK_REALTIME, 30) };
	pthread_mutex_lock(&m);
	puppet_send(&waiter, op_timedlock, &t);
	for (int i = 0; i < 5; i++) {
		sleep_ms(2);
		pthread_kill(waiter.thread, SIGUSR1);
	}
	CHECK_VALUE(ETIMEDOUT, puppet_result(&waiter), "mutex.timedlock after signals %s", how);
	CHECK_VALUE(true, reached(CLOCK_REALTIME, t.deadline),
		    "mutex.timedlock not early after signals %s", how);
	pthread_mutex_unlock(&m);
	puppet_end(&waiter);
}

/* pthread_mutex_lock is not a cancellation point, contended or not. */
struct cancelled {
	pthread_mutex_t *mutex;
	long lock, timed, unlock;
};

static void *lock_while_cancelled(void *c)
{
	struct cancelled *x = c;
	struct timespec soon = after_ms(CLOCK_REALTIME, LATER_MS);
	pthread_cancel(pthread_self());
	x->lock = CALL(pthread_mutex_lock(x->mutex));
	x->unlock = CALL(pthread_mutex_unlock(x->mutex));
	x->timed = CALL(pthread_mutex_timedlock(x->mutex, &soon));
	x->unlock |= CALL(pthread_mutex_unlock(x->mutex));
	pthread_testcancel();
	return NULL;
}

static void not_a_cancellation_point(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	struct cancelled x = { &m, -1, -1, -1 };
	pthread_t thread;
	void *result = NULL;
	pthread_mutex_lock(&m);
	thread_create(&thread, NULL, lock_while_cancelled, &x);
	sleep_ms(SETTLE_MS);
	pthread_mutex_unlock(&m);
	check_begin("mutex.thread with a pending cancellation ends at pthread_testcancel");
	pthread_join(thread, &result);
	check_end(result == PTHREAD_CANCELED, true);
	CHECK_VALUE(0, x.lock, "mutex.lock is not a cancellation point");
	CHECK_VALUE(0, x.timed, "mutex.timedlock is not a cancellation point");
	CHECK_VALUE(0, x.unlock, "mutex.unlock is not a cancellation point");
	CHECK(0, pthread_mutex_trylock(&m), "mutex.free after the thread ends");
}

/* Asynchronous cancellation of a thread that waits for a mutex. In POSIX no lock function is
 * async-cancel-safe, but with cancellation disabled the mutex and its other users must survive. */
static void *lock_with_cancel_disabled(void *m)
{
	int old;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
	long error = pthread_mutex_lock(m);
	error |= pthread_mutex_unlock(m);
	return (void *)error;
}

static void cancel_disabled(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_t thread;
	void *result = NULL;
	pthread_mutex_lock(&m);
	thread_create(&thread, NULL, lock_with_cancel_disabled, &m);
	sleep_ms(SETTLE_MS);
	pthread_cancel(thread);
	sleep_ms(SETTLE_MS);
	pthread_mutex_unlock(&m);
	check_begin("mutex.wait with cancellation disabled continues");
	pthread_join(thread, &result);
	check_end((long)result, 0);
}

/* Waiters of every kind start and stop waiting during hand-overs; none may be forgotten. */
struct crowd {
	pthread_mutex_t mutex;
	atomic_bool stop;
	atomic_long timed_locks;
	long counter;
};

static long op_crowd_untimed(void *c)
{
	struct crowd *x = c;
	long got = 0;
	for (; got < 200; got++) {
		if (pthread_mutex_lock(&x->mutex))
			return -1;
		x->counter++;
		pthread_mutex_unlock(&x->mutex);
	}
	return got;
}

static long op_crowd_timed(void *c)
{
	struct crowd *x = c;
	while (!atomic_load(&x->stop)) {
		struct timespec now = after_ms(CLOCK_MONOTONIC, 0);
		int error = pthread_mutex_clocklock(&x->mutex, CLOCK_MONOTONIC, &now);
		if (error == ETIMEDOUT) {
			sched_yield();
			continue;
		}
		if (error)
			return -1;
		x->counter++;
		atomic_fetch_add(&x->timed_locks, 1);
		pthread_mutex_unlock(&x->mutex);
	}
	return 0;
}

static void crowd(void)
{
	struct puppet p[4];
	struct crowd x = { .mutex = PTHREAD_MUTEX_INITIALIZER };
	for (int i = 0; i < 4; i++)
		puppet_start(&p[i]);
	puppet_send(&p[2], op_crowd_timed, &x);
	puppet_send(&p[3], op_crowd_timed, &x);
	puppet_send(&p[0], op_crowd_untimed, &x);
	puppet_send(&p[1], op_crowd_untimed, &x);
	check_begin("mutex.untimed waiters beside timed waiters");
	long untimed = puppet_result(&p[0]) % ERRNO_CHANGED + puppet_result(&p[1]) % ERRNO_CHANGED;
	check_end(untimed, 400);
	atomic_store(&x.stop, true);
	check_begin("mutex.timed waiters' count");
	long errors = (puppet_result(&p[2]) | puppet_result(&p[3])) % ERRNO_CHANGED;
	check_end(errors ? errors : x.counter - atomic_load(&x.timed_locks), 400);
	for (int i = 0; i < 4; i++)
		puppet_end(&p[i]);
}

int main(void)
{
	check_start();
	CHECK_VALUE(0, early_errors, "mutex.used in a constructor");
	before_threads();
	attributes();
	by_kind();
	static_initialisers();
	exclusion();
	freed_after_unlock();
	freed_by_waiter();
	many_held();
	deep_recursion();
	interrupted(0, "without SA_RESTART");
	interrupted(SA_RESTART, "with SA_RESTART");
	not_a_cancellation_point();
	cancel_disabled();
	crowd();
	return check_finish();
}
