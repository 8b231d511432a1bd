#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t second = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t idle = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static void *take_first(void *unused)
{
	pthread_mutex_lock(&first);
	pthread_barrier_wait(&both);
	pthread_mutex_lock(&second);
	return unused;
}
static void *take_second(void *unused)
{
	pthread_mutex_lock(&second);
	pthread_barrier_wait(&both);
	pthread_mutex_lock(&first);
	return unused;
}
static void *sleep_here(void *unused)
{
	pthread_mutex_lock(&idle);
	pthread_cond_wait(&work, &idle);
	return unused;
}
int main(void)
{
	pthread_t threads[3];
	pthread_barrier_init(&both, NULL, 2);
	pthread_create(&threads[0], NULL, take_first, NULL);
	pthread_create(&threads[1], NULL, take_second, NULL);
	pthread_create(&threads[2], NULL, sleep_here, NULL);
	return getchar() == EOF;
}
