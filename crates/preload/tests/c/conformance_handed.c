/* Mutexes and condition variables that the library hands to libc: process-shared, robust,
 * priority-inheriting and priority-protecting. They are tested alone, and in condition waits in
 * which the library serves only the condition or only the mutex. */
#include "check.h"

#include <sched.h>

static void init(pthread_mutex_t *m, int type, int shared, int robust, int protocol)
{
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, type);
	pthread_mutexattr_setpshared(&attr, shared);
	pthread_mutexattr_setrobust(&attr, robust);
	pthread_mutexattr_setprotocol(&attr, protocol);
	pthread_mutex_init(m, &attr);
	pthread_mutexattr_destroy(&attr);
}

enum { PRIVATE = PTHREAD_PROCESS_PRIVATE, SHARED = PTHREAD_PROCESS_SHARED };
enum { STALLED = PTHREAD_MUTEX_STALLED, ROBUST = PTHREAD_MUTEX_ROBUST };
enum { NO_PROTOCOL = PTHREAD_PRIO_NONE, INHERIT = PTHREAD_PRIO_INHERIT,
      PROTECT = PTHREAD_PRIO_PROTECT };

static const struct { const char *name; int shared, robust, protocol; } FLAVOURS[] = {
	{ "shared", SHARED, STALLED, NO_PROTOCOL },
	{ "robust", PRIVATE, ROBUST, NO_PROTOCOL },
	{ "robust shared", SHARED, ROBUST, NO_PROTOCOL },
	{ "inherit", PRIVATE, STALLED, INHERIT },
	{ "inherit shared", SHARED, STALLED, INHERIT },
	{ "inherit robust", PRIVATE, ROBUST, INHERIT },
};

static const struct { const char *name; int type; } KINDS[] = {
	{ "normal", PTHREAD_MUTEX_NORMAL },
	{ "recursive", PTHREAD_MUTEX_RECURSIVE },
	{ "errorcheck", PTHREAD_MUTEX_ERRORCHECK },
	{ "adaptive", PTHREAD_MUTEX_ADAPTIVE_NP },
};

/* ---- the same rules as for any mutex --------------------------------------------------------- */

static void rules(size_t f, const char *kind, int type, pthread_mutex_t *m, struct puppet *other)
{
	const char *flavour = FLAVOURS[f].name;
	struct timespec t;
	CHECK(0, pthread_mutex_lock(m), "%s %s lock", flavour, kind);
	/* glibc does not check whether a robust mutex is held; destroy makes it unusable. */
	if (FLAVOURS[f].robust == STALLED)
		CHECK(EBUSY, pthread_mutex_destroy(m), "%s %s destroy when held", flavour, kind);
	CHECK_VALUE(EBUSY, puppet_call(other, op_trylock, m), "%s %s trylock of another thread's",
		    flavour, kind);
	switch (type) {
	case PTHREAD_MUTEX_RECURSIVE:
		CHECK(0, pthread_mutex_lock(m), "%s %s lock again", flavour, kind);
		CHECK(0, pthread_mutex_trylock(m), "%s %s trylock again", flavour, kind);
		CHECK(0, pthread_mutex_unlock(m), "%s %s unlock of trylock", flavour, kind);
		CHECK(0, pthread_mutex_unlock(m), "%s %s unlock of second", flavour, kind);
		break;
	case PTHREAD_MUTEX_ERRORCHECK:
		CHECK(EDEADLK, pthread_mutex_lock(m), "%s %s lock again", flavour, kind);
		CHECK(EDEADLK, pthread_mutex_timedlock(m, &LONG_AGO), "%s %s timedlock again",
		      flavour, kind);
		/* For robust and inheriting mutexes, glibc reports a relock to the owner even in
		 * trylock. */
		CHECK(FLAVOURS[f].protocol == INHERIT ||
		      FLAVOURS[f].robust == ROBUST ? EDEADLK : EBUSY,
		      pthread_mutex_trylock(m),
		      "%s %s trylock again", flavour, kind);
		break;
	default:
		CHECK(EBUSY, pthread_mutex_trylock(m), "%s %s trylock again", flavour, kind);
		break;
	}
	puppet_send(other, op_lock_unlock, m);
	CHECK_VALUE(true, puppet_blocked(other), "%s %s lock waits", flavour, kind);
	CHECK(0, pthread_mutex_unlock(m), "%s %s unlock", flavour, kind);
	CHECK_VALUE(0, puppet_result(other), "%s %s waiter gets the lock", flavour, kind);
	puppet_call(other, op_lock, m);
	t = after_ms(CLOCK_REALTIME, 10);
	CHECK(ETIMEDOUT, pthread_mutex_timedlock(m, &t), "%s %s timedlock times out", flavour,
	      kind);
	CHECK_VALUE(true, reached(CLOCK_REALTIME, t), "%s %s timedlock not early", flavour, kind);
	/* With priority inheritance, the monotonic clock works only if the kernel supports it. */
	t = after_ms(CLOCK_MONOTONIC, 10);
	RECORD(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &t), "%s %s clocklock", flavour, kind);
	CHECK(EINVAL, pthread_mutex_timedlock(m, &NSEC_TOO_BIG), "%s %s timedlock nsec too big",
	      flavour, kind);
	CHECK(EINVAL, pthread_mutex_clocklock(m, 4242, &LONG_AGO),
	      "%s %s clocklock with an invalid clock", flavour, kind);
	RECORD(pthread_mutex_consistent(m), "%s %s consistent without an owner's death", flavour,
	       kind);
	CHECK_VALUE(0, puppet_call(other, op_unlock, m), "%s %s unlock by the other", flavour,
		    kind);
	if (type == PTHREAD_MUTEX_RECURSIVE || type == PTHREAD_MUTEX_ERRORCHECK)
		CHECK(EPERM, pthread_mutex_unlock(m), "%s %s unlock when free", flavour, kind);
}

/* ---- condition waits with such a mutex ------------------------------------------------------- */

struct room {
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	int tokens;
	atomic_int inside;
	int how;
};

static long op_take(void *room)
{
	struct room *r = room;
	int error = pthread_mutex_lock(r->mutex);
	atomic_fetch_add(&r->inside, 1);
	while (r->tokens == 0 && error == 0) {
		struct timespec t;
		if (r->how == 0) {
			error = pthread_cond_wait(r->cond, r->mutex);
		} else if (r->how == 1) {
			t = after_ms(CLOCK_REALTIME, LATER_MS);
			error = pthread_cond_timedwait(r->cond, r->mutex, &t);
		} else {
			t = after_ms(CLOCK_MONOTONIC, LATER_MS);
			error = pthread_cond_clockwait(r->cond, r->mutex, CLOCK_MONOTONIC, &t);
		}
	}
	r->tokens--;
	return error ? error : pthread_mutex_unlock(r->mutex);
}

static void waits(const char *name, pthread_mutex_t *m, pthread_cond_t *c, struct puppet *a,
		  struct puppet *b)
{
	static const char *const HOWS[] = { "wait", "timedwait", "clockwait" };
	struct timespec t;
	for (int how = 0; how < 3; how++) {
		struct room r = { .mutex = m, .cond = c, .how = how };
		check_begin("%s cond %s releases the mutex", name, HOWS[how]);
		puppet_send(a, op_take, &r);
		puppet_send(b, op_take, &r);
		for (bool both = false; !both;) {
			pthread_mutex_lock(m);
			both = atomic_load(&r.inside) == 2;
			if (!both)
				pthread_mutex_unlock(m);
			sched_yield();
		}
		check_end(0, 0);
		r.tokens = 2;
		CHECK(0, pthread_cond_broadcast(c), "%s cond %s broadcast", name, HOWS[how]);
		CHECK(0, pthread_mutex_unlock(m), "%s cond %s unlock", name, HOWS[how]);
		CHECK_VALUE(0, puppet_result(a) % ERRNO_CHANGED, "%s cond %s first waiter", name,
			    HOWS[how]);
		CHECK_VALUE(0, puppet_result(b) % ERRNO_CHANGED, "%s cond %s second waiter", name,
			    HOWS[how]);
	}
	pthread_mutex_lock(m);
	t = after_ms(CLOCK_REALTIME, 10);
	CHECK(ETIMEDOUT, pthread_cond_timedwait(c, m, &t), "%s cond timedwait times out", name);
	CHECK_VALUE(EBUSY, in_thread(op_trylock, m), "%s cond mutex held after the time-out", name);
	CHECK(EINVAL, pthread_cond_timedwait(c, m, &NSEC_TOO_BIG), "%s cond timedwait nsec too big",
	      name);
	CHECK(0, pthread_mutex_unlock(m), "%s cond unlock after the time-out", name);
}

static void shared_cond(pthread_cond_t *c)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

static void flavours(void)
{
	struct puppet a, b;
	puppet_start(&a);
	puppet_start(&b);
	for (size_t f = 0; f < LENGTH(FLAVOURS); f++) {
		for (size_t k = 0; k < LENGTH(KINDS); k++) {
			char name[60];
			pthread_mutex_t m;
			pthread_cond_t c = PTHREAD_COND_INITIALIZER;
			snprintf(name, sizeof name, "%s %s", FLAVOURS[f].name, KINDS[k].name);
			init(&m, KINDS[k].type, FLAVOURS[f].shared, FLAVOURS[f].robust,
			     FLAVOURS[f].protocol);
			rules(f, KINDS[k].name, KINDS[k].type, &m, &a);
			waits(name, &m, &c, &a, &b);
			CHECK(0, pthread_cond_destroy(&c), "%s cond destroy", name);
			if (FLAVOURS[f].shared == SHARED) {
				shared_cond(&c);
				snprintf(name, sizeof name, "%s %s with shared cond",
					 FLAVOURS[f].name, KINDS[k].name);
				waits(name, &m, &c, &a, &b);
				pthread_cond_destroy(&c);
			}
			CHECK(0, pthread_mutex_destroy(&m), "%s destroy", name);
		}
	}
	/* A shared condition with a private mutex: the library takes over the mutex but not the
	 * condition. */
	pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t c;
	shared_cond(&c);
	waits("private mutex with shared cond", &plain, &c, &a, &b);
	pthread_cond_destroy(&c);
	puppet_end(&a);
	puppet_end(&b);
}

/* Cancellation with each combination of a mutex and a condition. */
struct cancel_room {
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	atomic_int waiting;
	long others, unlock;
};

static void clean_up(void *room)
{
	struct cancel_room *r = room;
	r->others = in_thread(op_trylock, r->mutex);
	r->unlock = CALL(pthread_mutex_unlock(r->mutex));
}

static void *wait_for_cancellation(void *room)
{
	struct cancel_room *r = room;
	pthread_mutex_lock(r->mutex);
	pthread_cleanup_push(clean_up, r);
	atomic_store(&r->waiting, 1);
	for (;;)
		pthread_cond_wait(r->cond, r->mutex);
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancellation(const char *name, pthread_mutex_t *m, pthread_cond_t *c)
{
	struct cancel_room r = { .mutex = m, .cond = c, .others = -1, .unlock = -1 };
	pthread_t thread;
	void *result = NULL;
	check_begin("%s cancelled wait ends", name);
	thread_create(&thread, NULL, wait_for_cancellation, &r);
	while (!atomic_load(&r.waiting))
		sleep_ms(1);
	pthread_mutex_lock(m);
	pthread_mutex_unlock(m);
	sleep_ms(SETTLE_MS);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	check_end(result == PTHREAD_CANCELED, true);
	CHECK_VALUE(EBUSY, r.others, "%s cancelled wait: mutex held in the handler", name);
	CHECK_VALUE(0, r.unlock, "%s cancelled wait: handler unlocks", name);
	CHECK(0, pthread_mutex_trylock(m), "%s cancelled wait: mutex free", name);
	CHECK(0, pthread_mutex_unlock(m), "%s cancelled wait: unlock", name);
}

static void cancellations(void)
{
	for (size_t f = 0; f < LENGTH(FLAVOURS); f++) {
		char name[60];
		pthread_mutex_t m;
		pthread_cond_t c = PTHREAD_COND_INITIALIZER;
		init(&m, PTHREAD_MUTEX_NORMAL, FLAVOURS[f].shared, FLAVOURS[f].robust,
		     FLAVOURS[f].protocol);
		cancellation(FLAVOURS[f].name, &m, &c);
		shared_cond(&c);
		snprintf(name, sizeof name, "%s with shared cond", FLAVOURS[f].name);
		cancellation(name, &m, &c);
	}
	pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t c;
	shared_cond(&c);
	cancellation("private mutex with shared cond", &plain, &c);
}

/* ---- owners that die ------------------------------------------------------------------------- */

static void owner_death(const char *name, int type, int shared, int protocol)
{
	pthread_mutex_t m;
	struct timespec t = after_ms(CLOCK_REALTIME, LATER_MS);
	init(&m, type, shared, ROBUST, protocol);
	CHECK(EINVAL, pthread_mutex_consistent(&m), "%s consistent before any death", name);
	in_thread(op_lock, &m);
	CHECK(EOWNERDEAD, pthread_mutex_lock(&m), "%s lock after the owner's death", name);
	CHECK_VALUE(EBUSY, in_thread(op_trylock, &m), "%s the mutex is held", name);
	CHECK(0, pthread_mutex_consistent(&m), "%s consistent", name);
	CHECK(EINVAL, pthread_mutex_consistent(&m), "%s consistent twice", name);
	CHECK(0, pthread_mutex_unlock(&m), "%s unlock once consistent", name);
	CHECK(0, pthread_mutex_lock(&m), "%s lock once consistent", name);
	CHECK(0, pthread_mutex_unlock(&m), "%s unlock again", name);
	in_thread(op_lock, &m);
	CHECK(EOWNERDEAD, pthread_mutex_trylock(&m), "%s trylock after the owner's death", name);
	pthread_mutex_consistent(&m);
	pthread_mutex_unlock(&m);
	in_thread(op_lock, &m);
	CHECK(EOWNERDEAD, pthread_mutex_timedlock(&m, &t), "%s timedlock after the owner's death",
	      name);
	/* Unlocked without being made consistent, the mutex is lost for good. */
	CHECK(0, pthread_mutex_unlock(&m), "%s unlock while inconsistent", name);
	CHECK(ENOTRECOVERABLE, pthread_mutex_lock(&m), "%s lock of a lost mutex", name);
	t = after_ms(CLOCK_REALTIME, LATER_MS);
	CHECK(ENOTRECOVERABLE, pthread_mutex_timedlock(&m, &t), "%s timedlock of a lost mutex",
	      name);
	/* Last, because in glibc 2.36 this trylock leaves the lost mutex locked. */
	CHECK(ENOTRECOVERABLE, pthread_mutex_trylock(&m), "%s trylock of a lost mutex", name);
	CHECK(0, pthread_mutex_destroy(&m), "%s destroy of a lost mutex", name);
	CHECK(0, pthread_mutex_init(&m, NULL), "%s reinitialised", name);
	CHECK(0, op_lock_unlock(&m), "%s usable again", name);
}

/* A waiter that sleeps when the owner dies. */
struct dying {
	pthread_mutex_t *mutex;
	sem_t locked, die;
};

static void *lock_and_die(void *d)
{
	struct dying *x = d;
	pthread_mutex_lock(x->mutex);
	sem_post(&x->locked);
	puppet_wait_sem(&x->die);
	return NULL;
}

static void death_with_a_waiter(const char *name, int protocol)
{
	pthread_mutex_t m;
	struct puppet waiter;
	struct dying d = { .mutex = &m };
	pthread_t thread;
	init(&m, PTHREAD_MUTEX_NORMAL, PRIVATE, ROBUST, protocol);
	sem_init(&d.locked, 0, 0);
	sem_init(&d.die, 0, 0);
	puppet_start(&waiter);
	thread_create(&thread, NULL, lock_and_die, &d);
	puppet_wait_sem(&d.locked);
	puppet_send(&waiter, op_lock, &m);
	CHECK_VALUE(true, puppet_blocked(&waiter), "%s waits for a mutex whose owner will die",
		    name);
	sem_post(&d.die);
	CHECK_VALUE(EOWNERDEAD, puppet_result(&waiter), "%s the waiter gets EOWNERDEAD", name);
	pthread_join(thread, NULL);
	puppet_call(&waiter, op_unlock, &m);
	puppet_end(&waiter);
}

/* The owner of a waiter's mutex dies: the wait must report it. */
struct dead_room {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	atomic_int inside;
	bool timed;
};

static long op_wait_for_error(void *room)
{
	struct dead_room *r = room;
	struct timespec t = after_ms(CLOCK_REALTIME, LATER_MS);
	pthread_mutex_lock(&r->mutex);
	atomic_store(&r->inside, 1);
	int error;
	do
		error = r->timed ? pthread_cond_timedwait(&r->cond, &r->mutex, &t)
				 : pthread_cond_wait(&r->cond, &r->mutex);
	while (error == 0);
	return error;
}

static long op_signal_and_die(void *room)
{
	struct dead_room *r = room;
	pthread_mutex_lock(&r->mutex);
	return pthread_cond_signal(&r->cond);
}

static void owner_death_in_a_wait(bool timed, bool shared)
{
	struct puppet waiter;
	struct dead_room r = { .cond = PTHREAD_COND_INITIALIZER, .timed = timed };
	const char *name = timed ? shared ? "shared timedwait" : "timedwait"
				 : shared ? "shared wait" : "wait";
	init(&r.mutex, PTHREAD_MUTEX_NORMAL, PRIVATE, ROBUST, NO_PROTOCOL);
	if (shared)
		shared_cond(&r.cond);
	puppet_start(&waiter);
	puppet_send(&waiter, op_wait_for_error, &r);
	for (bool there = false; !there; sleep_ms(1)) {
		pthread_mutex_lock(&r.mutex);
		there = atomic_load(&r.inside);
		pthread_mutex_unlock(&r.mutex);
	}
	in_thread(op_signal_and_die, &r);
	CHECK_VALUE(EOWNERDEAD, puppet_result(&waiter) % ERRNO_CHANGED,
		    "robust %s reports the owner's death", name);
	CHECK(EBUSY, pthread_mutex_trylock(&r.mutex), "robust %s holds the mutex afterwards", name);
	/* The mutex is left inconsistent while another thread waits on the condition. */
	CHECK_VALUE(0, puppet_call(&waiter, op_unlock, &r.mutex),
		    "robust %s unlock while inconsistent", name);
	CHECK(ENOTRECOVERABLE, pthread_mutex_lock(&r.mutex), "robust %s mutex is lost", name);
	CHECK(0, pthread_cond_signal(&r.cond), "robust %s signal afterwards", name);
	puppet_end(&waiter);
}

static long op_die_inconsistent(void *room)
{
	struct dead_room *r = room;
	int error = pthread_mutex_lock(&r->mutex);
	pthread_mutex_unlock(&r->mutex);
	return error;
}

static void lost_in_a_wait(void)
{
	struct puppet waiter;
	struct dead_room r = { .cond = PTHREAD_COND_INITIALIZER };
	init(&r.mutex, PTHREAD_MUTEX_NORMAL, PRIVATE, ROBUST, NO_PROTOCOL);
	puppet_start(&waiter);
	puppet_send(&waiter, op_wait_for_error, &r);
	for (bool there = false; !there; sleep_ms(1)) {
		pthread_mutex_lock(&r.mutex);
		there = atomic_load(&r.inside);
		pthread_mutex_unlock(&r.mutex);
	}
	in_thread(op_lock, &r.mutex);
	CHECK_VALUE(EOWNERDEAD, in_thread(op_die_inconsistent, &r),
		    "robust mutex lost while another waits");
	CHECK(0, pthread_cond_broadcast(&r.cond), "robust broadcast with a lost mutex");
	CHECK_VALUE(ENOTRECOVERABLE, puppet_result(&waiter) % ERRNO_CHANGED,
		    "robust wait reports the lost mutex");
	puppet_end(&waiter);
}

/* ---- between processes ----------------------------------------------------------------------- */

struct common {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	long counter;
	int turn;
};

static long child_try(void *c)
{
	struct common *x = c;
	struct timespec t = after_ms(CLOCK_REALTIME, 10);
	if (pthread_mutex_trylock(&x->mutex) != EBUSY)
		return 1;
	return pthread_mutex_timedlock(&x->mutex, &t);
}

static long child_lock_and_die(void *c) { return pthread_mutex_lock(&((struct common *)c)->mutex); }

static long child_take_turns(void *c)
{
	struct common *x = c;
	long errors = 0;
	for (int i = 0; i < 500; i++) {
		errors |= pthread_mutex_lock(&x->mutex);
		while (x->turn != 1)
			errors |= pthread_cond_wait(&x->cond, &x->mutex);
		x->turn = 0;
		x->counter++;
		errors |= pthread_cond_signal(&x->cond);
		errors |= pthread_mutex_unlock(&x->mutex);
	}
	return errors;
}

static void between_processes(const char *name, int type, int robust, int protocol)
{
	struct common *x = shared_memory(sizeof *x);
	init(&x->mutex, type, SHARED, robust, protocol);
	shared_cond(&x->cond);
	pthread_mutex_lock(&x->mutex);
	CHECK_VALUE(ETIMEDOUT, in_child(child_try, x), "%s is held for a child too", name);
	pthread_mutex_unlock(&x->mutex);
	fflush(stdout);
	pid_t child = child_create();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit((int)child_take_turns(x));
	}
	long errors = 0;
	check_begin("%s takes turns with a child: codes", name);
	for (int i = 0; i < 500; i++) {
		errors |= pthread_mutex_lock(&x->mutex);
		while (x->turn != 0)
			errors |= pthread_cond_wait(&x->cond, &x->mutex);
		x->turn = 1;
		x->counter++;
		errors |= pthread_cond_signal(&x->cond);
		errors |= pthread_mutex_unlock(&x->mutex);
	}
	check_end(errors, 0);
	int status = -1;
	check_begin("%s takes turns with a child: child's codes", name);
	status = await_child(child);
	check_end(status, 0);
	CHECK_VALUE(1000, x->counter, "%s takes turns with a child: count", name);
	if (robust == ROBUST) {
		CHECK_VALUE(0, in_child(child_lock_and_die, x), "%s child dies with the mutex",
			    name);
		CHECK(EOWNERDEAD, pthread_mutex_lock(&x->mutex), "%s parent gets EOWNERDEAD", name);
		CHECK(0, pthread_mutex_consistent(&x->mutex), "%s parent makes it consistent",
		      name);
		CHECK(0, pthread_mutex_unlock(&x->mutex), "%s parent unlocks it", name);
		CHECK(0, op_lock_unlock(&x->mutex), "%s works afterwards", name);
	}
	CHECK(0, pthread_mutex_destroy(&x->mutex), "%s destroy", name);
	CHECK(0, pthread_cond_destroy(&x->cond), "%s cond destroy", name);
	munmap(x, sizeof *x);
}

/* ---- priority protection --------------------------------------------------------------------- */

static void priority_protection(void)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t m, plain = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	int ceiling = -1, old = -1;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PROTECT);
	pthread_mutexattr_setprioceiling(&attr, sched_get_priority_min(SCHED_FIFO));
	CHECK(0, pthread_mutex_init(&m, &attr), "protect init");
	CHECK(0, pthread_mutex_getprioceiling(&m, &ceiling), "protect getprioceiling");
	CHECK_VALUE(sched_get_priority_min(SCHED_FIFO), ceiling,
		    "protect getprioceiling returns the value set");
	CHECK(EINVAL, pthread_mutex_getprioceiling(&plain, &ceiling),
	      "protect getprioceiling of another kind");
	CHECK(EINVAL, pthread_mutex_setprioceiling(&plain, 1, &old),
	      "protect setprioceiling of another kind");
	CHECK(EINVAL, pthread_mutex_setprioceiling(&m, 1000, &old),
	      "protect setprioceiling too high");
	/* From here on, the results depend on the thread's policy and privilege; the check is that
	 * both runs get the same. */
	check_begin("protect lock");
	int lock = pthread_mutex_lock(&m);
	check_record(lock);
	check_begin("protect trylock");
	int trylock = pthread_mutex_trylock(&m);
	check_record(trylock);
	struct timespec t = after_ms(CLOCK_REALTIME, 5);
	/* Without the privilege, glibc refuses lock and grants the second attempt, trylock. */
	if (lock == 0 || trylock == 0) {
		check_begin("protect timedwait");
		check_record(pthread_cond_timedwait(&c, &m, &t));
		check_begin("protect unlock");
		check_record(pthread_mutex_unlock(&m));
	}
	check_begin("protect setprioceiling");
	check_record(pthread_mutex_setprioceiling(&m, 2, &old));

	/* A real-time thread, if the process may create one. */
	struct sched_param parameter = { .sched_priority = sched_get_priority_min(SCHED_FIFO) };
	struct sched_param normal = { 0 };
	check_begin("protect real-time thread");
	int real_time = pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter);
	check_record(real_time);
	if (real_time == 0) {
		check_begin("protect real-time lock");
		lock = pthread_mutex_lock(&m);
		check_record(lock);
		if (lock == 0) {
			t = after_ms(CLOCK_REALTIME, 5);
			CHECK(ETIMEDOUT, pthread_cond_timedwait(&c, &m, &t),
			      "protect real-time timedwait");
			CHECK_VALUE(EBUSY, in_thread(op_trylock, &m) == 0 ? 0 : EBUSY,
				    "protect real-time held");
			CHECK(0, pthread_mutex_unlock(&m), "protect real-time unlock");
		}
		CHECK(0, pthread_mutex_setprioceiling(&m, 3, &old),
		      "protect real-time setprioceiling");
		pthread_setschedparam(pthread_self(), SCHED_OTHER, &normal);
	}
	check_begin("protect destroy");
	check_record(pthread_mutex_destroy(&m));
	pthread_mutexattr_destroy(&attr);
}

int main(void)
{
	check_start();
	flavours();
	cancellations();
	owner_death("robust death normal", PTHREAD_MUTEX_NORMAL, PRIVATE, NO_PROTOCOL);
	owner_death("robust death recursive", PTHREAD_MUTEX_RECURSIVE, PRIVATE, NO_PROTOCOL);
	owner_death("robust death errorcheck", PTHREAD_MUTEX_ERRORCHECK, PRIVATE, NO_PROTOCOL);
	owner_death("robust death shared", PTHREAD_MUTEX_NORMAL, SHARED, NO_PROTOCOL);
	owner_death("robust death inherit", PTHREAD_MUTEX_NORMAL, PRIVATE, INHERIT);
	death_with_a_waiter("robust", NO_PROTOCOL);
	death_with_a_waiter("robust inherit", INHERIT);
	for (int timed = 0; timed < 2; timed++)
		for (int shared = 0; shared < 2; shared++)
			owner_death_in_a_wait(timed, shared);
	lost_in_a_wait();
	between_processes("shared normal", PTHREAD_MUTEX_NORMAL, STALLED, NO_PROTOCOL);
	between_processes("shared recursive", PTHREAD_MUTEX_RECURSIVE, STALLED, NO_PROTOCOL);
	between_processes("shared robust", PTHREAD_MUTEX_NORMAL, ROBUST, NO_PROTOCOL);
	between_processes("shared inherit", PTHREAD_MUTEX_NORMAL, STALLED, INHERIT);
	between_processes("shared robust inherit", PTHREAD_MUTEX_NORMAL, ROBUST, INHERIT);
	priority_protection();
	return check_finish();
}
