#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
enum { ROUNDS = 50 };
struct server { int jobs; pthread_mutex_t mu; };
pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static struct server *server;
static atomic_int held;
static long waited[2], delay[2];

static long now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Time that this thread was runnable without running (proc(5), schedstat). */
static long delayed(void)
{
	long time = 0;
	FILE *file = fopen("/proc/thread-self/schedstat", "r");
	if (file) {
		if (fscanf(file, "%*u %ld", &time) != 1)
			time = 0;
		fclose(file);
	}
	return time;
}

__attribute__((noinline)) void hold_here(pthread_mutex_t *lock, int round)
{
	pthread_mutex_lock(lock);
	atomic_store(&held, round);
	usleep(10000);
	pthread_mutex_unlock(lock);
	atomic_fetch_add(&server->jobs, 1);
}

__attribute__((noinline)) void wait_here(struct server *of)
{
	pthread_mutex_lock(&of->mu);
	of->jobs++;
	pthread_mutex_unlock(&of->mu);
}

__attribute__((noinline)) void wait_for_queue(void)
{
	pthread_mutex_lock(&queue_lock);
	server->jobs++;
	pthread_mutex_unlock(&queue_lock);
}

static void *hold(void *unused)
{
	for (int round = 1; round <= 2 * ROUNDS; round++) {
		while (atomic_load(&held) != -round)
			usleep(100);
		hold_here(round % 2 ? &queue_lock : &server->mu, round);
	}
	return unused;
}

int main(void)
{
	pthread_t holder;
	server = calloc(1, sizeof *server);
	pthread_mutex_init(&server->mu, NULL);
	if (getchar() == EOF)
		return 1;
	pthread_create(&holder, NULL, hold, NULL);
	for (int round = 1; round <= 2 * ROUNDS; round++) {
		atomic_store(&held, -round);
		while (atomic_load(&held) != round)
			usleep(100);
		long before = delayed(), begin = now();
		if (round % 2)
			wait_for_queue();
		else
			wait_here(server);
		waited[round % 2] += now() - begin;
		delay[round % 2] += delayed() - before;
	}
	pthread_join(holder, NULL);
	printf("%ld %ld %ld %ld\n", waited[1], waited[0], delay[1], delay[0]);
	return 0;
}
