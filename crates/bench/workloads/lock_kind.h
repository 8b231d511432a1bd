/*
 * The pthread locks of a workload's --kind, behind one pair of functions.
 *
 * `kind` should be a constant at the call. with_lock_kind() below turns a run-time kind into one,
 * so that the measured loop calls one pthread function and has no branch on the kind.
 */
#ifndef UNCONVOY_LOCK_KIND_H
#define UNCONVOY_LOCK_KIND_H

#include "measure.h"

enum lock_kind {
	KIND_NORMAL,
	KIND_ADAPTIVE,
	KIND_RECURSIVE,
	KIND_ERRORCHECK,
	KIND_SPIN,
	KIND_RWLOCK_WRITE,
	KIND_RWLOCK_READ,
	KIND_COUNT
};

static const char *const lock_kind_names[KIND_COUNT] = {
	"normal", "adaptive", "recursive", "errorcheck", "spin", "rwlock-write", "rwlock-read",
};

#define LOCK_KIND_HELP "normal, adaptive, recursive, errorcheck, spin, rwlock-write or rwlock-read"

union any_lock {
	pthread_mutex_t mutex;
	pthread_spinlock_t spin;
	pthread_rwlock_t rwlock;
};

static inline void any_lock_init(union any_lock *lock, enum lock_kind kind)
{
	/* Indexed by kind. The first is DEFAULT instead of NORMAL, as in a program without
	 * attributes. */
	static const int types[] = { PTHREAD_MUTEX_DEFAULT, PTHREAD_MUTEX_ADAPTIVE_NP,
				     PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK };
	pthread_mutexattr_t attributes;

	switch (kind) {
	case KIND_SPIN:
		pthread_spin_init(&lock->spin, PTHREAD_PROCESS_PRIVATE);
		break;
	case KIND_RWLOCK_WRITE:
	case KIND_RWLOCK_READ:
		pthread_rwlock_init(&lock->rwlock, NULL);
		break;
	default:
		pthread_mutexattr_init(&attributes);
		pthread_mutexattr_settype(&attributes, types[kind]);
		pthread_mutex_init(&lock->mutex, &attributes);
		pthread_mutexattr_destroy(&attributes);
	}
}

__attribute__((always_inline)) static inline void
any_lock_acquire(union any_lock *lock, enum lock_kind kind)
{
	int error;

	if (kind == KIND_SPIN)
		error = pthread_spin_lock(&lock->spin);
	else if (kind == KIND_RWLOCK_WRITE)
		error = pthread_rwlock_wrlock(&lock->rwlock);
	else if (kind == KIND_RWLOCK_READ)
		error = pthread_rwlock_rdlock(&lock->rwlock);
	else
		error = pthread_mutex_lock(&lock->mutex);
	if (__builtin_expect(error != 0, 0))
		die_inconsistent("lock: %s", strerror(error));
}

__attribute__((always_inline)) static inline void
any_lock_release(union any_lock *lock, enum lock_kind kind)
{
	int error;

	if (kind == KIND_SPIN)
		error = pthread_spin_unlock(&lock->spin);
	else if (kind == KIND_RWLOCK_WRITE || kind == KIND_RWLOCK_READ)
		error = pthread_rwlock_unlock(&lock->rwlock);
	else
		error = pthread_mutex_unlock(&lock->mutex);
	if (__builtin_expect(error != 0, 0))
		die_inconsistent("unlock: %s", strerror(error));
}

/* Calls `loop(kind, ...)`, an always-inline function, with a constant kind. All kinds of mutexes
 * share one constant. */
#define with_lock_kind(kind, loop, ...)                        \
	do {                                                   \
		switch (kind) {                                \
		case KIND_SPIN:                                \
			loop(KIND_SPIN, __VA_ARGS__);          \
			break;                                 \
		case KIND_RWLOCK_WRITE:                        \
			loop(KIND_RWLOCK_WRITE, __VA_ARGS__);  \
			break;                                 \
		case KIND_RWLOCK_READ:                         \
			loop(KIND_RWLOCK_READ, __VA_ARGS__);   \
			break;                                 \
		default:                                       \
			loop(KIND_NORMAL, __VA_ARGS__);        \
		}                                              \
	} while (0)

#endif
