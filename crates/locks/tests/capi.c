/* Every function of unconvoy.h, with more threads than a small machine has processors. */
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
			expect(shared_pair[0] == shared_pair[1], "a reader saw a writer at work");
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

	for (int i = 0; i < THREADS; i++)
		expect(pthread_create(&threads[i], NULL, worker, NULL) == 0, "pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	expect(count == (long)THREADS * ROUNDS, "the mutex excluded");
	expect(shared_pair[0] == (long)THREADS * ROUNDS / 50, "the writers excluded each other");

	expect(unconvoy_mutex_trylock(&mutex), "trylock of a free mutex");
	expect(!unconvoy_mutex_trylock(&mutex), "trylock of a held mutex");
	uint64_t deadline = now() + 20000000;
	expect(!unconvoy_mutex_lock_until(&mutex, deadline), "a held mutex times out");
	expect(now() >= deadline, "and not before its time");
	unconvoy_mutex_unlock(&mutex);
	expect(unconvoy_mutex_lock_until(&mutex, 0), "a free mutex needs no time");
	unconvoy_mutex_unlock(&mutex);

	expect(unconvoy_rwlock_tryrdlock(&rwlock) && unconvoy_rwlock_tryrdlock(&rwlock), "readers share");
	expect(!unconvoy_rwlock_trywrlock(&rwlock), "no writer among readers");
	unconvoy_rwlock_unlock(&rwlock);
	unconvoy_rwlock_unlock(&rwlock);
	expect(unconvoy_rwlock_trywrlock(&rwlock), "a writer alone");
	expect(!unconvoy_rwlock_tryrdlock(&rwlock), "no reader beside a writer");
	unconvoy_rwlock_unlock(&rwlock);
	return 0;
}
