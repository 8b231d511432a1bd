/* Four threads increment one counter. */
#include <pthread.h>
#include <stdio.h>

#include <unconvoy.h>

enum { THREADS = 4, INCREMENTS = 100000 };

static unconvoy_mutex_t lock = UNCONVOY_MUTEX_INIT;
static long counter;

static void *count(void *unused)
{
	for (int i = 0; i < INCREMENTS; i++) {
		unconvoy_mutex_lock(&lock);
		counter++;
		unconvoy_mutex_unlock(&lock);
	}
	return unused;
}

int main(void)
{
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, count, NULL) != 0)
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("counted %ld\n", counter);
	return counter != (long)THREADS * INCREMENTS;
}
