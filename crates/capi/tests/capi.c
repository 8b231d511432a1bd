/* Calls every function of unconvoy.h, with more threads than a small machine has processors. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "unconvoy.h"

enum { THREADS = 16, ROUNDS = 20000 };

static unconvoy_mutex_t mutex = UNCONVOY_MUTEX_INIT;
static unconvoy_rwlock_t rwlock = UNCONVOY_RWLOCK_INIT;
static long count, shared_pair[2];

static void expect(bool truth, const char *what)
{
	if (!truth) {
		printf("wrong: %s\n", what);
		exit(1);
	}
}

static void *worker(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		unconvoy_mutex_lock(&mutex);
		count++;
		unconvoy_mutex_unlock(&mutex);
		if (i % 50 == 0) {
			unconvoy_rwlock_wrlock(&rwlock);
			shared_pair[0]++;
			shared_pair[1]++;
			unconvoy_rwlock_unlock(&rwlock);
		} else {
			unconvoy_rwlock_rdlock(&rwlock);
			expect(shared_pair[0] == shared_pair[1], "a reader sees no write in progress");
			unconvoy_rwlock_unlock(&rwlock);
		}
	}
	return unused;
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(void)
{
	pthread_t threads[THREADS];

	/* After contention, the target falls at the controller's next interval. */
	expect(!unconvoy_checkpoint() && !unconvoy_checkpoint_if_loaded(),
	       "no checkpoint sleeps without load");
	for (int i = 0; i < THREADS; i++)
		expect(pthread_create(&threads[i], NULL, worker, NULL) == 0, "pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	expect(count == (long)THREADS * ROUNDS, "the mutex excludes");
	expect(shared_pair[0] == (long)THREADS * ROUNDS / 50, "writers exclude each other");

	expect(unconvoy_mutex_trylock(&mutex), "trylock on a free mutex succeeds");
	expect(!unconvoy_mutex_trylock(&mutex), "trylock on a held mutex fails");
	uint64_t deadline = now() + 20000000;
	expect(!unconvoy_mutex_lock_until(&mutex, deadline), "lock_until on a held mutex times out");
	expect(now() >= deadline, "lock_until returns no earlier than its deadline");
	unconvoy_mutex_unlock(&mutex);
	expect(unconvoy_mutex_lock_until(&mutex, 0), "lock_until on a free mutex succeeds");
	unconvoy_mutex_unlock(&mutex);

	expect(unconvoy_rwlock_tryrdlock(&rwlock) && unconvoy_rwlock_tryrdlock(&rwlock),
	       "readers share");
	expect(!unconvoy_rwlock_trywrlock(&rwlock), "trywrlock beside readers fails");
	unconvoy_rwlock_unlock(&rwlock);
	unconvoy_rwlock_unlock(&rwlock);
	expect(unconvoy_rwlock_trywrlock(&rwlock), "trywrlock on a free lock succeeds");
	expect(!unconvoy_rwlock_tryrdlock(&rwlock), "tryrdlock beside a writer fails");
	unconvoy_rwlock_unlock(&rwlock);
	return 0;
}
