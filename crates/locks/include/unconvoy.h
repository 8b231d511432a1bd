/* unconvoy: locks that keep their speed when threads outnumber processors. Link with libunconvoy.a -lpthread -ldl -lm. */

#ifndef UNCONVOY_H
#define UNCONVOY_H

/* Generated from crates/locks/src/capi.rs by `make header`; change that. */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* An unlocked mutex. */
#define UNCONVOY_MUTEX_INIT { { 0 } }
/* A free reader-writer lock. */
#define UNCONVOY_RWLOCK_INIT { { 0 } }


/*
 A mutex under load control. All zeroes is an unlocked one: `unconvoy_mutex_t lock =
 UNCONVOY_MUTEX_INIT;`, static memory, or `memset`. There is nothing to destroy. It may
 be unlocked by another thread than the one that locked it. It must not be moved while in use,
 nor shared between processes.
 */
typedef struct unconvoy_mutex_t {
  uint64_t words[3];
} unconvoy_mutex_t;

/*
 A reader-writer lock under load control. All zeroes is a free one. A thread may hold it for
 reading more than once.
 */
typedef struct unconvoy_rwlock_t {
  uint64_t words[2];
} unconvoy_rwlock_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Locks, waiting as long as it takes.

 `lock` points to a mutex.
 */
void unconvoy_mutex_lock(struct unconvoy_mutex_t *lock);

/*
 Locks if that is possible at once; whether it did.

 `lock` points to a mutex.
 */
bool unconvoy_mutex_trylock(struct unconvoy_mutex_t *lock);

/*
 Locks, waiting until `deadline_ns` on `CLOCK_MONOTONIC` at most; whether it did.

 `lock` points to a mutex.
 */
bool unconvoy_mutex_lock_until(struct unconvoy_mutex_t *lock, uint64_t deadline_ns);

/*
 Unlocks.

 `lock` points to a mutex that is locked, on behalf of the caller.
 */
void unconvoy_mutex_unlock(struct unconvoy_mutex_t *lock);

/*
 Locks for reading, together with other readers.

 `lock` points to a reader-writer lock.
 */
void unconvoy_rwlock_rdlock(struct unconvoy_rwlock_t *lock);

/*
 Locks for reading if that is possible at once; whether it did.

 `lock` points to a reader-writer lock.
 */
bool unconvoy_rwlock_tryrdlock(struct unconvoy_rwlock_t *lock);

/*
 Locks for writing, alone.

 `lock` points to a reader-writer lock.
 */
void unconvoy_rwlock_wrlock(struct unconvoy_rwlock_t *lock);

/*
 Locks for writing if that is possible at once; whether it did.

 `lock` points to a reader-writer lock.
 */
bool unconvoy_rwlock_trywrlock(struct unconvoy_rwlock_t *lock);

/*
 Unlocks what the caller holds, for reading or for writing.

 `lock` points to a reader-writer lock that the caller holds.
 */
void unconvoy_rwlock_unlock(struct unconvoy_rwlock_t *lock);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNCONVOY_H */
