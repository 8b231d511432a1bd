/* Waits that a profile once recorded wrongly. Each case prints what the profile must have.
 *
 *   recursive    a hold of at least 20 ms, most of it after the inner unlock
 *   twice        the same, most of it in a wait for a signal that leaves the mutex locked
 *   deadline     the same, after a wait for a signal that has an invalid deadline
 *   fork|_Fork   one wait that times out, during which a signal handler forks
 *   timeouts     thousands of waits that time out, and then some with a known holder
 *   busy         contends until it is killed */
#define _GNU_SOURCE
#include "abort.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PLACE __attribute__((noinline, noclone))

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static struct timespec after_ms(int ms)
{
	struct timespec time;
	clock_gettime(CLOCK_REALTIME, &time);
	time.tv_nsec += ms * 1000000L;
	time.tv_sec += time.tv_nsec / 1000000000;
	time.tv_nsec %= 1000000000;
	return time;
}

static atomic_bool is_held, is_wanted;

/* Whether the main thread sleeps. */
static bool main_sleeps(void)
{
	char path[64], state = 0;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", getpid());
	FILE *file = fopen(path, "r");
	CHECK(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
	CHECK(fclose(file) == 0);
	return state == 'S';
}

/* Holds the object until the main thread sleeps in its wait, and for 10 ms more. */
static void *hold(void *object)
{
	CHECK(pthread_mutex_lock(object) == 0);
	atomic_store(&is_held, true);
	while (!atomic_load(&is_wanted) || !main_sleeps())
		usleep(1000);
	usleep(10000);
	return (void *)(long)pthread_mutex_unlock(object);
}

/* The main thread waits for an object that another thread holds, and returns with it locked. */
static void wait_while_held(pthread_mutex_t *object)
{
	while (!atomic_load(&is_held))
		usleep(100);
	atomic_store(&is_wanted, true);
	CHECK(pthread_mutex_lock(object) == 0);
}

static void start(pthread_t *thread, void *(*holder)(void *), void *object)
{
	atomic_store(&is_held, false);
	atomic_store(&is_wanted, false);
	CHECK(pthread_create(thread, NULL, holder, object) == 0);
}

static void wait_for(pthread_mutex_t *object)
{
	pthread_t thread;
	start(&thread, hold, object);
	wait_while_held(object);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void in_recursion(bool waits)
{
	struct timespec until;
	wait_for(&recursive);
	CHECK(pthread_mutex_lock(&recursive) == 0);
	if (waits) {
		until = after_ms(20);
		CHECK(pthread_cond_timedwait(&cond, &recursive, &until) == ETIMEDOUT);
	}
	CHECK(pthread_mutex_unlock(&recursive) == 0);
	if (!waits)
		usleep(20000);
	CHECK(pthread_mutex_unlock(&recursive) == 0);
}

static void with_invalid_deadline(void)
{
	struct timespec never = { 0, -1 };
	wait_for(&mutex);
	CHECK(pthread_cond_timedwait(&cond, &mutex, &never) == EINVAL);
	usleep(20000);
	CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static pid_t (*make_child)(void);
static _Atomic pid_t child;
static pid_t parent;

static void handler(int signal)
{
	(void)signal;
	pid_t made = make_child();
	CHECK(made >= 0);
	if (made > 0)
		atomic_store(&child, made);
}

static void *time_out(void *unused)
{
	struct timespec until = after_ms(300);
	CHECK(pthread_mutex_timedlock(&mutex, &until) == ETIMEDOUT);
	if (getpid() != parent)
		_exit(0);
	return unused;
}

static void in_handler(pid_t (*fork)(void))
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	pthread_t thread;
	int status;
	make_child = fork;
	parent = getpid();
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_mutex_lock(&mutex) == 0);
	CHECK(pthread_create(&thread, NULL, time_out, NULL) == 0);
	usleep(100000);
	CHECK(pthread_kill(thread, SIGUSR1) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(waitpid(atomic_load(&child), &status, 0) > 0 && status == 0);
	CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void *time_out_often(void *unused)
{
	for (int turn = 0; turn < 1500; turn++) {
		struct timespec now = after_ms(0), until = now;
		until.tv_nsec += 20000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		CHECK(pthread_mutex_timedlock(&mutex, &until) == ETIMEDOUT);
	}
	return unused;
}

PLACE void *hold_other(void *unused)
{
	hold(&other);
	__asm__ volatile("");
	return unused;
}

static void after_time_outs(void)
{
	pthread_t threads[2];
	CHECK(pthread_mutex_lock(&mutex) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, time_out_often, NULL) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int round = 0; round < 8; round++) {
		start(&threads[0], hold_other, NULL);
		wait_while_held(&other);
		CHECK(pthread_mutex_unlock(&other) == 0);
		CHECK(pthread_join(threads[0], NULL) == 0);
	}
	CHECK(pthread_mutex_unlock(&mutex) == 0);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	if (strcmp(name, "recursive") == 0)
		in_recursion(false);
	else if (strcmp(name, "twice") == 0)
		in_recursion(true);
	else if (strcmp(name, "deadline") == 0)
		with_invalid_deadline();
	else if (strcmp(name, "fork") == 0)
		in_handler(fork);
#if __GLIBC_PREREQ(2, 34)
	else if (strcmp(name, "_Fork") == 0)
		in_handler(_Fork);
#endif
	else if (strcmp(name, "timeouts") == 0)
		after_time_outs();
	else if (strcmp(name, "busy") == 0)
		for (;;) {
			wait_for(&mutex);
			CHECK(pthread_mutex_unlock(&mutex) == 0);
		}
	else
		return 4;
	return 0;
}
