/* Shared by the programs about destruction: the mutex under test, and threads that use it until
 * they are stopped. */
#ifndef DESTROY_H
#define DESTROY_H

#include "check.h"

#include <sched.h>

enum { PRIVATE = PTHREAD_PROCESS_PRIVATE, SHARED = PTHREAD_PROCESS_SHARED };
enum { STALLED = PTHREAD_MUTEX_STALLED, ROBUST = PTHREAD_MUTEX_ROBUST };
enum { NO_PROTOCOL = PTHREAD_PRIO_NONE, INHERIT = PTHREAD_PRIO_INHERIT,
      PROTECT = PTHREAD_PRIO_PROTECT };

struct flavour {
	const char *name;
	int shared, robust, protocol;
	bool is_static;
};

static const struct flavour FLAVOURS[] = {
	{ "static", PRIVATE, STALLED, NO_PROTOCOL, true },
	{ "private", PRIVATE, STALLED, NO_PROTOCOL, false },
	{ "shared", SHARED, STALLED, NO_PROTOCOL, false },
	{ "inherit", PRIVATE, STALLED, INHERIT, false },
	{ "inherit shared", SHARED, STALLED, INHERIT, false },
};

struct kind {
	const char *name;
	int type;
	pthread_mutex_t initialiser;
};

static const struct kind KINDS[] = {
	{ "normal", PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_INITIALIZER },
	{ "recursive", PTHREAD_MUTEX_RECURSIVE, PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP },
	{ "errorcheck", PTHREAD_MUTEX_ERRORCHECK, PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP },
	{ "adaptive", PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP },
};

/* The mutex under test, the prefix of its checks' names, and the threads that use it. */
static struct {
	char name[60];
	const struct flavour *flavour;
	const struct kind *kind;
	pthread_mutex_t mutex;
	struct puppet a, b;
} now;

static inline void choose(const struct flavour *flavour, const struct kind *kind)
{
	snprintf(now.name, sizeof now.name, "%s %s", flavour->name, kind->name);
	now.flavour = flavour;
	now.kind = kind;
}

static inline long make(pthread_mutex_t *m)
{
	pthread_mutexattr_t attr;
	if (now.flavour->is_static) {
		*m = now.kind->initialiser;
		return 0;
	}
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, now.kind->type);
	pthread_mutexattr_setpshared(&attr, now.flavour->shared);
	pthread_mutexattr_setrobust(&attr, now.flavour->robust);
	pthread_mutexattr_setprotocol(&attr, now.flavour->protocol);
	if (now.flavour->protocol == PROTECT)
		pthread_mutexattr_setprioceiling(&attr, sched_get_priority_min(SCHED_FIFO));
	long error = pthread_mutex_init(m, &attr);
	pthread_mutexattr_destroy(&attr);
	return error;
}

/* CHECK_DESTROY(expected, state): the result of destroy in that state. */
#define CHECK_DESTROY(expected, ...)                                                      \
	do {                                                                              \
		char state_[120];                                                         \
		snprintf(state_, sizeof state_, __VA_ARGS__);                             \
		CHECK(expected, pthread_mutex_destroy(&now.mutex), "destroy.%s %s", now.name, \
		      state_);                                                            \
	} while (0)

/* A thread's use of the mutex, until `leave` is posted. */
struct stay {
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	enum { WAIT, TIMEDWAIT, CLOCKWAIT } how;
	long timeout_ms;
	int depth;
	bool unlocks;
	atomic_int inside, tokens, result;
	sem_t holds, leave;
};

static inline void begin_stay(struct stay *s, pthread_cond_t *cond, int how, long timeout_ms)
{
	memset(s, 0, sizeof *s);
	s->mutex = &now.mutex;
	s->cond = cond;
	s->how = how;
	s->timeout_ms = timeout_ms;
	s->depth = 1;
	s->unlocks = true;
	sem_init(&s->holds, 0, 0);
	sem_init(&s->leave, 0, 0);
}

static inline void hold_until_released(void *stay)
{
	struct stay *s = stay;
	sem_post(&s->holds);
	puppet_wait_sem(&s->leave);
	for (int i = 0; i < s->depth && s->unlocks; i++)
		pthread_mutex_unlock(s->mutex);
}

static inline long op_hold(void *stay)
{
	int error = pthread_mutex_lock(((struct stay *)stay)->mutex);
	hold_until_released(stay);
	return error;
}

/* Waits until there is a token or the time-out expires. */
static inline int wait_for_token(struct stay *s)
{
	struct timespec t = after_ms(s->how == CLOCKWAIT ? CLOCK_MONOTONIC : CLOCK_REALTIME,
				     s->timeout_ms);
	int error = 0;
	atomic_fetch_add(&s->inside, 1);
	while (error == 0 && atomic_load(&s->tokens) == 0)
		error = s->how == WAIT	      ? pthread_cond_wait(s->cond, s->mutex)
			: s->how == TIMEDWAIT ? pthread_cond_timedwait(s->cond, s->mutex, &t)
					      : pthread_cond_clockwait(s->cond, s->mutex,
								       CLOCK_MONOTONIC, &t);
	if (error == 0)
		atomic_fetch_sub(&s->tokens, 1);
	return error;
}

/* A wait, after which the mutex is held until released; the handler of a cancelled wait does the
 * same. */
static inline long op_wait(void *stay)
{
	struct stay *s = stay;
	for (int i = 0; i < s->depth; i++)
		pthread_mutex_lock(s->mutex);
	pthread_cleanup_push(hold_until_released, s);
	atomic_store(&s->result, wait_for_token(s));
	pthread_cleanup_pop(1);
	return atomic_load(&s->result);
}

/* Returns with the mutex held, once `n` threads have released it to wait. */
static inline void until_waiting(struct stay *s, int n)
{
	pthread_mutex_lock(s->mutex);
	while (atomic_load(&s->inside) < n) {
		pthread_mutex_unlock(s->mutex);
		sleep_ms(1);
		pthread_mutex_lock(s->mutex);
	}
}

static inline void make_cond(pthread_cond_t *c, int shared)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setpshared(&attr, shared);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

#endif
