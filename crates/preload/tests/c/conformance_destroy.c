/* Destruction and initialisation of every object in every possible state;
 * conformance_destroy_waits.c covers mutexes in condition waits.
 *
 * Mutexes: glibc 2.36 counts the users of a mutex in `__nusers`. A lock increments the count and an
 * unlock decrements it. A condition wait leaves it raised: `__pthread_cond_wait_common` unlocks by
 * `__pthread_mutex_unlock_usercnt (mutex, 0)` and locks by `__pthread_mutex_cond_lock`, which is
 * compiled with NO_INCR; the clean-up of a cancelled wait does the same. `__pthread_mutex_destroy`
 * returns EBUSY if the count is not 0, unless the robust bit of `__kind` is set. Otherwise it sets
 * `__kind` to -1, which has the robust bit, and which every other function rejects as an unknown
 * type (EINVAL). `__pthread_mutex_init` clears the object without reading it.
 *
 * Condition variables: `__pthread_cond_destroy` waits until `__wrefs >> 3`, the number of waiters
 * that may still access the object, is 0. A waiter decrements it before it takes its mutex. The
 * function changes nothing that later calls read. Reader-writer locks and spin locks:
 * `__pthread_rwlock_destroy` and `__pthread_spin_destroy` return 0, and neither read nor change
 * anything. The init functions clear the object. */
#include "destroy.h"

static const struct flavour ROBUST_FLAVOURS[] = {
	{ "robust", PRIVATE, ROBUST, NO_PROTOCOL, false },
	{ "robust shared", SHARED, ROBUST, NO_PROTOCOL, false },
	{ "inherit robust", PRIVATE, ROBUST, INHERIT, false },
};

static long op_destroy(void *m) { return pthread_mutex_destroy(m); }

/* ---- held, and waited for -------------------------------------------------------------------- */

static void unused(void)
{
	static const char *const CALLS[] = { "lock", "trylock", "timedlock", "unlock", "wait" };
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	pthread_mutex_t *m = &now.mutex;
	memset(m, 0xa5, sizeof *m);
	CHECK(0, make(m), "destroy.%s init over garbage", now.name);
	CHECK_DESTROY(0, "never locked");
	CHECK_DESTROY(0, "destroyed before");
	for (size_t i = 0; i < LENGTH(CALLS); i++) {
		check_begin("destroy.%s destroyed: %s", now.name, CALLS[i]);
		long error = i == 0   ? pthread_mutex_lock(m)
			     : i == 1 ? pthread_mutex_trylock(m)
			     : i == 2 ? pthread_mutex_timedlock(m, &LONG_AGO)
			     : i == 3 ? pthread_mutex_unlock(m)
				      : pthread_cond_wait(&c, m);
		check_end(error, EINVAL);
	}
	CHECK_DESTROY(0, "destroyed and used");
	CHECK(0, pthread_cond_destroy(&c), "destroy.%s condition of a refused wait", now.name);
	CHECK(0, make(m), "destroy.%s init after destroy", now.name);
	CHECK(0, op_lock_unlock(m), "destroy.%s reinitialised: used", now.name);
	CHECK_DESTROY(0, "reinitialised and used");
}

static void held(void)
{
	pthread_mutex_t *m = &now.mutex;
	make(m);
	int depth = now.kind->type == PTHREAD_MUTEX_RECURSIVE ? 3 : 1;
	for (int i = 1; i <= depth; i++) {
		pthread_mutex_lock(m);
		CHECK_DESTROY(EBUSY, "locked %d times", i);
	}
	CHECK_VALUE(EBUSY, in_child(op_destroy, m), "destroy.%s locked by the parent", now.name);
	CHECK_VALUE(EBUSY, puppet_call(&now.a, op_trylock, m), "destroy.%s still locked", now.name);
	for (int i = depth; i > 1; i--) {
		pthread_mutex_unlock(m);
		CHECK_DESTROY(EBUSY, "still locked %d times", i - 1);
	}
	CHECK(0, pthread_mutex_unlock(m), "destroy.%s unlock at depth 1", now.name);
	CHECK_DESTROY(0, "unlocked");
	make(m);
	in_thread(op_lock, m);
	CHECK_DESTROY(EBUSY, "locked by an ended thread");
}

static void held_by_another(void)
{
	struct stay s;
	pthread_mutex_t *m = &now.mutex;
	make(m);
	begin_stay(&s, NULL, WAIT, 0);
	pthread_mutex_lock(m);
	puppet_send(&now.a, op_hold, &s);
	CHECK_VALUE(true, puppet_blocked(&now.a), "destroy.%s a lock waits", now.name);
	CHECK_DESTROY(EBUSY, "locked, with a waiter");
	pthread_mutex_unlock(m);
	puppet_wait_sem(&s.holds);
	CHECK_DESTROY(EBUSY, "locked by another");
	CHECK_VALUE(EBUSY, in_child(op_destroy, m), "destroy.%s locked by a thread of the parent",
		    now.name);
	CHECK(EBUSY, pthread_mutex_trylock(m), "destroy.%s still locked by another", now.name);
	sem_post(&s.leave);
	puppet_result(&now.a);
	CHECK_DESTROY(0, "unlocked by another");
}

static long op_timedlock_10(void *m)
{
	struct timespec t = after_ms(CLOCK_REALTIME, 10);
	return pthread_mutex_timedlock(m, &t);
}

static void given_up(void)
{
	pthread_mutex_t *m = &now.mutex;
	make(m);
	pthread_mutex_lock(m);
	puppet_send(&now.a, op_timedlock_10, m);
	puppet_send(&now.b, op_timedlock_10, m);
	CHECK_DESTROY(EBUSY, "locked, with timed waiters");
	/* Reading a clock may set errno. */
	long first = puppet_result(&now.a) % ERRNO_CHANGED;
	long second = puppet_result(&now.b) % ERRNO_CHANGED;
	CHECK_VALUE(true, first == ETIMEDOUT && second == ETIMEDOUT, "destroy.%s both time out",
		    now.name);
	CHECK_DESTROY(EBUSY, "locked, after waiters gave up");
	pthread_mutex_unlock(m);
	CHECK_DESTROY(0, "unlocked, after waiters gave up");
}

/* POSIX leaves this undefined. glibc clears the object, so it is free. */
static void initialised_again(void)
{
	pthread_mutex_t *m = &now.mutex;
	int depth = now.kind->type == PTHREAD_MUTEX_RECURSIVE ? 3 : 1;
	for (int another = 0; another < 2; another++) {
		const char *whose = another ? "another" : "the caller";
		make(m);
		for (int i = 0; i < depth; i++)
			another ? puppet_call(&now.a, op_lock, m) : pthread_mutex_lock(m);
		CHECK(0, make(m), "destroy.%s init of a mutex that %s holds", now.name, whose);
		CHECK_VALUE(0, puppet_call(&now.b, op_trylock_unlock, m),
			    "destroy.%s free after init", now.name);
		CHECK(0, op_lock_unlock(m), "destroy.%s free for the caller after init", now.name);
		CHECK_VALUE(0, puppet_call(&now.a, op_lock_unlock, m),
			    "destroy.%s free for the other thread after init", now.name);
		CHECK_DESTROY(0, "reinitialised while %s held it", whose);
	}
}

/* The codes of init, and of functions for some kinds only. */
static void initialised(void)
{
	pthread_mutex_t m;
	int ceiling, old;
	for (int i = 0; i < 3 * 2 * 2; i++) {
		const int protocols[] = { NO_PROTOCOL, INHERIT, PROTECT };
		struct flavour f = { "", i % 2 ? SHARED : PRIVATE, i / 2 % 2 ? ROBUST : STALLED,
				    protocols[i / 4], false };
		now.flavour = &f;
		for (size_t k = 0; k < LENGTH(KINDS); k++) {
			char name[60];
			now.kind = &KINDS[k];
			snprintf(name, sizeof name, "%s, protocol %d%s%s", KINDS[k].name,
				 f.protocol,
				 f.robust == ROBUST ? ", robust" : "",
				 f.shared == SHARED ? ", shared" : "");
			RECORD(make(&m), "init.%s", name);
			RECORD(pthread_mutex_consistent(&m), "init.%s consistent", name);
			RECORD(pthread_mutex_getprioceiling(&m, &ceiling), "init.%s getprioceiling",
			       name);
			if (f.protocol != PROTECT)
				CHECK(EINVAL, pthread_mutex_setprioceiling(&m, 1, &old),
				      "init.%s setprioceiling", name);
			CHECK(0, pthread_mutex_destroy(&m), "init.%s destroy", name);
			CHECK(EINVAL, pthread_mutex_consistent(&m), "init.%s destroyed: consistent",
			      name);
		}
	}
}

/* ---- robust mutexes: destroy does not check their state -------------------------------------- */

static const char *const ROBUST_STATES[] = {
	"locked", "locked by another", "locked, with a waiter", "in a condition wait",
	"its owner died", "acquired after the owner's death", "lost",
};

/* In a child, which ends before any thread uses the destroyed mutex. */
static long op_destroy_robust(void *state)
{
	struct puppet p;
	struct stay s;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	puppet_start(&p);
	begin_stay(&s, &c, WAIT, 0);
	switch (*(const int *)state) {
	case 0:
		pthread_mutex_lock(&now.mutex);
		break;
	case 1:
		puppet_send(&p, op_hold, &s);
		puppet_wait_sem(&s.holds);
		break;
	case 2:
		pthread_mutex_lock(&now.mutex);
		puppet_send(&p, op_hold, &s);
		puppet_blocked(&p);
		break;
	case 3:
		puppet_send(&p, op_wait, &s);
		until_waiting(&s, 1);
		pthread_mutex_unlock(&now.mutex);
		break;
	case 4:
		in_thread(op_lock, &now.mutex);
		break;
	default:
		in_thread(op_lock, &now.mutex);
		if (pthread_mutex_lock(&now.mutex) != EOWNERDEAD)
			return 100;
		if (*(const int *)state == 6)
			pthread_mutex_unlock(&now.mutex);
	}
	return pthread_mutex_destroy(&now.mutex);
}

static void robust(void)
{
	for (int state = 0; state < (int)LENGTH(ROBUST_STATES); state++) {
		make(&now.mutex);
		CHECK_VALUE(0, in_child(op_destroy_robust, &state), "destroy.%s %s", now.name,
			    ROBUST_STATES[state]);
	}
}

static void every_mutex(void)
{
	puppet_start(&now.a);
	puppet_start(&now.b);
	for (size_t k = 0; k < LENGTH(KINDS); k++) {
		for (size_t f = 0; f < LENGTH(FLAVOURS); f++) {
			choose(&FLAVOURS[f], &KINDS[k]);
			unused();
			held();
			held_by_another();
			given_up();
			initialised_again();
		}
		for (size_t f = 0; f < LENGTH(ROBUST_FLAVOURS); f++) {
			choose(&ROBUST_FLAVOURS[f], &KINDS[k]);
			unused();
			robust();
		}
	}
	puppet_end(&now.a);
	puppet_end(&now.b);
}

/* ---- condition variables --------------------------------------------------------------------- */

static void conditions(int shared)
{
	const char *name = shared == SHARED ? "shared" : "private";
	pthread_mutex_t *m = &now.mutex;
	pthread_cond_t c;
	struct stay s;
	choose(&FLAVOURS[shared == SHARED ? 2 : 1], &KINDS[0]);
	make(m);
	memset(&c, 0xa5, sizeof c);
	make_cond(&c, shared);
	puppet_start(&now.a);
	CHECK(0, pthread_cond_destroy(&c), "cond.%s destroy, never used", name);
	CHECK(0, pthread_cond_destroy(&c), "cond.%s destroy twice", name);
	CHECK(0, pthread_cond_signal(&c), "cond.%s destroyed: signal", name);
	CHECK(0, pthread_cond_broadcast(&c), "cond.%s destroyed: broadcast", name);
	pthread_mutex_lock(m);
	CHECK(ETIMEDOUT, pthread_cond_timedwait(&c, m, &LONG_AGO), "cond.%s destroyed: wait", name);
	pthread_mutex_unlock(m);
	CHECK(0, pthread_cond_destroy(&c), "cond.%s destroy after use", name);
	for (int broadcast = 0; broadcast < 2; broadcast++) {
		const char *call = broadcast ? "broadcast" : "signal";
		make_cond(&c, shared);
		begin_stay(&s, &c, WAIT, 0);
		puppet_send(&now.a, op_wait, &s);
		until_waiting(&s, 1);
		atomic_fetch_add(&s.tokens, 1);
		CHECK(0, broadcast ? pthread_cond_broadcast(&c) : pthread_cond_signal(&c),
		      "cond.%s %s", name, call);
		CHECK(0, pthread_cond_destroy(&c), "cond.%s destroy after %s, mutex held", name,
		      call);
		memset(&c, 0xa5, sizeof c);
		pthread_mutex_unlock(m);
		puppet_wait_sem(&s.holds);
		sem_post(&s.leave);
		CHECK_VALUE(0, puppet_result(&now.a) % ERRNO_CHANGED, "cond.%s waiter after %s",
			    name, call);
	}
	make_cond(&c, shared);
	begin_stay(&s, &c, CLOCKWAIT, 20);
	sem_post(&s.leave);
	struct timespec soonest = after_ms(CLOCK_MONOTONIC, 20);
	puppet_send(&now.a, op_wait, &s);
	until_waiting(&s, 1);
	pthread_mutex_unlock(m);
	CHECK(0, pthread_cond_destroy(&c), "cond.%s destroy during a wait", name);
	CHECK_VALUE(true, reached(CLOCK_MONOTONIC, soonest),
		    "cond.%s destroy waits for the time-out", name);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&now.a) % ERRNO_CHANGED, "cond.%s the wait times out",
		    name);
	puppet_end(&now.a);
}

/* ---- reader-writer locks --------------------------------------------------------------------- */

static long op_rw_unlock(void *l) { return pthread_rwlock_unlock(l); }
static long op_read(void *l) { return pthread_rwlock_rdlock(l) | pthread_rwlock_unlock(l); }
static long op_write(void *l) { return pthread_rwlock_wrlock(l) | pthread_rwlock_unlock(l); }

#define CHECK_RW(...)                                                                              \
	do {                                                                                       \
		char state_[120];                                                                  \
		snprintf(state_, sizeof state_, __VA_ARGS__);                                      \
		CHECK(0, pthread_rwlock_destroy(l), "rwlock.%s destroy %s", name, state_);         \
	} while (0)

static void rwlocks(const char *name, pthread_rwlock_t *l, const pthread_rwlockattr_t *attr)
{
	struct puppet *a = &now.a, *b = &now.b;
	memset(l, 0xa5, sizeof *l);
	CHECK(0, pthread_rwlock_init(l, attr), "rwlock.%s init over garbage", name);
	CHECK_RW("never locked");
	CHECK_RW("twice");
	CHECK(0, pthread_rwlock_rdlock(l), "rwlock.%s destroyed: rdlock", name);
	CHECK_RW("read");
	CHECK_VALUE(0, puppet_call(a, op_tryrdlock, l), "rwlock.%s a second reader", name);
	CHECK_RW("read by two");
	CHECK_VALUE(EBUSY, puppet_call(b, op_trywrlock, l), "rwlock.%s still read", name);
	CHECK_VALUE(0, puppet_call(a, op_rw_unlock, l), "rwlock.%s unlock by the second reader",
		    name);
	CHECK_VALUE(EBUSY, puppet_call(b, op_trywrlock, l), "rwlock.%s still read by one", name);
	puppet_send(b, op_write, l);
	CHECK_VALUE(true, puppet_blocked(b), "rwlock.%s a writer waits", name);
	CHECK_RW("read, and a writer waits");
	CHECK_VALUE(true, puppet_blocked(b), "rwlock.%s the writer still waits", name);
	CHECK(0, pthread_rwlock_unlock(l), "rwlock.%s unlock by the reader", name);
	CHECK_VALUE(0, puppet_result(b), "rwlock.%s the writer", name);
	CHECK(0, pthread_rwlock_wrlock(l), "rwlock.%s wrlock", name);
	CHECK_RW("written");
	CHECK_VALUE(EBUSY, puppet_call(a, op_tryrdlock, l), "rwlock.%s still written", name);
	puppet_send(a, op_read, l);
	puppet_send(b, op_write, l);
	CHECK_VALUE(true, puppet_blocked(a) && puppet_blocked(b), "rwlock.%s both wait", name);
	CHECK_RW("written, and both wait");
	CHECK_VALUE(true, puppet_blocked(a) && puppet_blocked(b), "rwlock.%s both still wait",
		    name);
	CHECK(0, pthread_rwlock_unlock(l), "rwlock.%s unlock by the writer", name);
	CHECK_VALUE(0, puppet_result(a) | puppet_result(b), "rwlock.%s reader and writer", name);
	CHECK_RW("used");
	pthread_rwlock_wrlock(l);
	CHECK(0, pthread_rwlock_init(l, attr), "rwlock.%s init when written", name);
	CHECK_VALUE(0, puppet_call(a, op_write, l), "rwlock.%s free after init", name);
	puppet_call(a, op_rdlock, l);
	puppet_call(a, op_rdlock, l);
	CHECK(0, pthread_rwlock_init(l, attr), "rwlock.%s init when read twice", name);
	CHECK_VALUE(0, puppet_call(b, op_write, l), "rwlock.%s free for a writer after init", name);
	CHECK_RW("reinitialised");
}

static void every_rwlock(void)
{
	static const char *const PREFERENCES[] = { "readers", "writers", "writers, nonrecursive" };
	puppet_start(&now.a);
	puppet_start(&now.b);
	for (int i = 0; i < 2 * (int)LENGTH(PREFERENCES); i++) {
		char name[60];
		pthread_rwlock_t l;
		pthread_rwlockattr_t attr;
		pthread_rwlockattr_init(&attr);
		pthread_rwlockattr_setkind_np(&attr, i / 2);
		pthread_rwlockattr_setpshared(&attr, i % 2 ? SHARED : PRIVATE);
		snprintf(name, sizeof name, "%s%s", PREFERENCES[i / 2], i % 2 ? ", shared" : "");
		rwlocks(name, &l, &attr);
		pthread_rwlockattr_destroy(&attr);
	}
	puppet_end(&now.a);
	puppet_end(&now.b);
}

/* ---- spin locks ------------------------------------------------------------------------------ */

static long op_spin(void *l) { return pthread_spin_lock(l) | pthread_spin_unlock(l); }
static long op_spin_try(void *l) { return pthread_spin_trylock(l); }

static void spins(int shared)
{
	const char *name = shared == SHARED ? "shared" : "private";
	int spin = 0x5a5a5a5a;
	void *l = &spin;
	struct puppet *a = &now.a;
	puppet_start(a);
	CHECK(0, pthread_spin_init(l, shared), "spin.%s init over garbage", name);
	CHECK(0, pthread_spin_destroy(l), "spin.%s destroy, never locked", name);
	CHECK(0, pthread_spin_lock(l), "spin.%s destroyed: lock", name);
	CHECK(0, pthread_spin_destroy(l), "spin.%s destroy when held", name);
	CHECK_VALUE(EBUSY, puppet_call(a, op_spin_try, l), "spin.%s still held", name);
	puppet_send(a, op_spin, l);
	CHECK_VALUE(true, puppet_blocked(a), "spin.%s waiter", name);
	CHECK(0, pthread_spin_destroy(l), "spin.%s destroy when waited for", name);
	CHECK_VALUE(true, puppet_blocked(a), "spin.%s still waits", name);
	CHECK(0, pthread_spin_unlock(l), "spin.%s unlock", name);
	CHECK_VALUE(0, puppet_result(a), "spin.%s the waiter gets the lock", name);
	pthread_spin_lock(l);
	CHECK(0, pthread_spin_init(l, shared), "spin.%s init when held", name);
	CHECK_VALUE(0, puppet_call(a, op_spin, l), "spin.%s free after init", name);
	CHECK(0, pthread_spin_destroy(l), "spin.%s destroy", name);
	puppet_end(a);
}

int main(void)
{
	check_start();
	initialised();
	every_mutex();
	conditions(PRIVATE);
	conditions(SHARED);
	every_rwlock();
	spins(PRIVATE);
	spins(SHARED);
	return check_finish();
}
