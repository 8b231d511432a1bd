/* A shared object whose constructor waits for a thread that uses locks, while the dynamic linker
 * holds its own lock. */
#define _GNU_SOURCE
#include <pthread.h>

#include "room.h"

static void *use_locks(void *ignored)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&mutex, &attr);
	pthread_cond_init(&cond, NULL);
	pthread_mutex_lock(&mutex);
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&mutex);
	pthread_cond_destroy(&cond);
	pthread_mutex_destroy(&mutex);
	return ignored;
}

__attribute__((constructor)) static void begin(void)
{
	pthread_t thread;
	thread_create(&thread, NULL, use_locks, NULL);
	pthread_join(thread, NULL);
}
