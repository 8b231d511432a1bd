/*
 * Known numbers of operations on known objects, for tracers that count them. Prints the objects'
 * addresses: of a mutex, a mutex that a thread waits for, a reader-writer lock, a condition
 * variable and its mutex.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define TIMES(n) for (int i_ = 0; i_ < (n); i_++)

static pthread_mutex_t taken, waited = PTHREAD_MUTEX_INITIALIZER, of_cond;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond;

static void check(int result)
{
	if (result)
		abort();
}

static void *wait_for_it(void *unused)
{
	check(pthread_mutex_lock(&waited));
	check(pthread_mutex_unlock(&waited));
	return unused;
}

int main(void)
{
	const struct timespec past = { 0, 0 };
	pthread_t thread;

	printf("%ld %ld %ld %ld %ld\n", (long)&taken, (long)&waited, (long)&lock, (long)&cond,
	       (long)&of_cond);
	check(pthread_mutex_init(&taken, NULL));
	TIMES(12345) {
		check(pthread_mutex_lock(&taken));
		check(pthread_mutex_unlock(&taken));
	}
	TIMES(7) {
		check(pthread_mutex_trylock(&taken));
		check(pthread_mutex_unlock(&taken));
	}
	TIMES(5) {
		check(pthread_mutex_timedlock(&taken, &past));
		check(pthread_mutex_unlock(&taken));
	}
	check(pthread_mutex_destroy(&taken));

	TIMES(11) {
		check(pthread_rwlock_rdlock(&lock));
		check(pthread_rwlock_unlock(&lock));
	}
	TIMES(13) {
		check(pthread_rwlock_wrlock(&lock));
		check(pthread_rwlock_unlock(&lock));
	}
	check(pthread_rwlock_destroy(&lock));

	/* Each of these waits releases and takes the mutex inside the library. */
	check(pthread_cond_init(&cond, NULL));
	check(pthread_mutex_lock(&of_cond));
	TIMES(17) {
		if (pthread_cond_timedwait(&cond, &of_cond, &past) != ETIMEDOUT)
			abort();
	}
	check(pthread_mutex_unlock(&of_cond));
	TIMES(3)
		check(pthread_cond_signal(&cond));
	TIMES(2)
		check(pthread_cond_broadcast(&cond));
	check(pthread_cond_destroy(&cond));

	/* The other thread sleeps, however busy the machine is. */
	check(pthread_mutex_lock(&waited));
	check(pthread_create(&thread, NULL, wait_for_it, NULL));
	sleep(2);
	check(pthread_mutex_unlock(&waited));
	check(pthread_join(thread, NULL));
	return 0;
}
