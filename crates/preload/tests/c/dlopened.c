/* Code that is loaded and unloaded with dlopen. Its static mutexes did not exist when the library
 * was loaded. */
#define _GNU_SOURCE
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long counter;

int dlopened_add(int rounds)
{
	int errors = 0;
	for (int i = 0; i < rounds; i++) {
		errors |= pthread_mutex_lock(&mutex);
		counter++;
		errors |= pthread_cond_signal(&cond);
		errors |= pthread_mutex_unlock(&mutex);
	}
	return errors;
}

int dlopened_await(long value)
{
	int errors = pthread_mutex_lock(&mutex);
	while (counter < value)
		errors |= pthread_cond_wait(&cond, &mutex);
	return errors | pthread_mutex_unlock(&mutex);
}

int dlopened_others(void)
{
	int errors = pthread_mutex_lock(&recursive);
	errors |= pthread_mutex_lock(&recursive);
	errors |= pthread_mutex_unlock(&recursive);
	errors |= pthread_mutex_unlock(&recursive);
	errors |= pthread_rwlock_rdlock(&rwlock);
	errors |= pthread_rwlock_unlock(&rwlock);
	return errors;
}
