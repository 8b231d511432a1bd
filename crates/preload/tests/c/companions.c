/* A program to be run together with other libraries that replace parts of libc.
 *
 *   heap    short-lived threads that pass memory to each other and fork, under contended locks
 *   count   threads and contended locks only
 *   brief   like count, for tools that slow programs down a lot
 *   clocks  timed waits on conditions with both clocks: whether each lasted as long as it should,
 *           by the true clock
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "room.h"

enum { THREADS = 8, PLACES = 64 };

static atomic_int failures;

#define MUST(expression)                                                                    \
	do {                                                                                \
		int code_ = (expression);                                                   \
		if (code_ != 0 && atomic_fetch_add(&failures, 1) < 10)                      \
			fprintf(stderr, "%s: %s\n", #expression, strerror(code_));          \
	} while (0)

static void together(void *(*body)(void *))
{
	pthread_t threads[THREADS];
	for (long i = 0; i < THREADS; i++)
		MUST(thread_create(&threads[i], NULL, body, (void *)i));
	for (int i = 0; i < THREADS; i++)
		MUST(pthread_join(threads[i], NULL));
}

/* ---- count ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static long counted, written, turn;
static int rounds = 2000;

static void *count(void *number)
{
	for (int i = 0; i < rounds; i++) {
		MUST(pthread_mutex_lock(&mutex));
		if (i % 64 == 0)
			sched_yield();
		counted++;
		MUST(pthread_mutex_unlock(&mutex));
		MUST(pthread_mutex_lock(&recursive));
		MUST(pthread_mutex_lock(&recursive));
		MUST(pthread_mutex_unlock(&recursive));
		MUST(pthread_mutex_unlock(&recursive));
		if (i % 8 == 0) {
			MUST(pthread_rwlock_wrlock(&rwlock));
			written++;
		} else {
			MUST(pthread_rwlock_rdlock(&rwlock));
		}
		MUST(pthread_rwlock_unlock(&rwlock));
	}
	for (int i = 0; i < 50; i++) {
		MUST(pthread_mutex_lock(&mutex));
		while (turn % THREADS != (long)number)
			MUST(pthread_cond_wait(&turned, &mutex));
		turn++;
		MUST(pthread_cond_broadcast(&turned));
		MUST(pthread_mutex_unlock(&mutex));
	}
	return NULL;
}

/* ---- heap ---- */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t put, taken;
	unsigned char *place[PLACES];
	int used;
} shelf = { .mutex = PTHREAD_MUTEX_INITIALIZER, .put = PTHREAD_COND_INITIALIZER,
	   .taken = PTHREAD_COND_INITIALIZER };

static long bytes_passed;

static unsigned char *filled(size_t size)
{
	unsigned char *memory = malloc(size + 2);
	if (!memory)
		MUST(ENOMEM);
	memory[0] = (unsigned char)(size >> 8);
	memory[1] = (unsigned char)size;
	memset(memory + 2, memory[0] ^ memory[1] ^ 0x5a, size);
	return memory;
}

/* One thread fills the memory; another checks and frees it. */
static long emptied(unsigned char *memory)
{
	size_t size = (size_t)memory[0] << 8 | memory[1];
	for (size_t i = 0; i < size; i++)
		if (memory[i + 2] != (unsigned char)(memory[0] ^ memory[1] ^ 0x5a))
			MUST(EILSEQ);
	free(memory);
	return (long)size;
}

static void *churned(void *memory)
{
	unsigned char *again = realloc(memory, 5000);
	free(again);
	return filled(100);
}

static void child(void)
{
	long sum = 0;
	alarm(20);
	for (int i = 0; i < 50; i++)
		sum += emptied(filled((size_t)i * 17));
	MUST(pthread_mutex_lock(&recursive));
	MUST(pthread_mutex_unlock(&recursive));
	_exit(sum == 50 * 49 / 2 * 17 && atomic_load(&failures) == 0 ? 0 : 1);
}

static void *pass(void *number)
{
	for (int i = 0; i < 3000; i++) {
		unsigned char *memory = (long)number % 2 ? NULL : filled((size_t)(i * 37 % 3000));
		MUST(pthread_mutex_lock(&shelf.mutex));
		if (memory) {
			while (shelf.used == PLACES)
				MUST(pthread_cond_wait(&shelf.taken, &shelf.mutex));
			shelf.place[shelf.used++] = memory;
			MUST(pthread_cond_signal(&shelf.put));
		} else {
			while (shelf.used == 0)
				MUST(pthread_cond_wait(&shelf.put, &shelf.mutex));
			memory = shelf.place[--shelf.used];
			MUST(pthread_cond_signal(&shelf.taken));
			bytes_passed += (long)memory[0] << 8 | memory[1];
			/* With the lock held, so that the allocator's locks nest in this one. */
			emptied(memory);
		}
		MUST(pthread_mutex_unlock(&shelf.mutex));
		if (i % 100 == 50) {
			pthread_t thread;
			void *back;
			MUST(thread_create(&thread, NULL, churned, malloc(64)));
			MUST(pthread_join(thread, &back));
			emptied(back);
		}
		if (i % 1000 == 500) {
			pid_t process = child_create();
			if (process == 0)
				child();
			if (process < 0 || await_child(process) != 0)
				MUST(ECHILD);
		}
	}
	return NULL;
}

/* ---- clocks ---- */

/* By the system call, so that no library can fake it. */
static long true_ms(void)
{
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

enum { WAIT_MS = 300 };

static struct timespec soon(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	t.tv_nsec += WAIT_MS * 1000000L;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

/* A clock that runs faster ends a wait early. A busy machine may prolong a wait. A wait with a
 * deadline from another clock lasts for days, and the caller ends it. */
static void report(const char *what, int code, long since)
{
	long took = true_ms() - since;
	const char *when = took < WAIT_MS / 4   ? "at once"
			   : took < WAIT_MS - 5 ? "early"
						: "in time";
	printf("%s: %s, %s\n", what, code == ETIMEDOUT ? "timed out" : strerror(code), when);
	fflush(stdout);
}

static void clocks(void)
{
	static const struct { clockid_t clock; const char *name; } CLOCKS[] = { { CLOCK_REALTIME,
										 "realtime" },
										{ CLOCK_MONOTONIC,
										 "monotonic" } };
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	MUST(pthread_mutex_lock(&own));
	for (int i = 0; i < 2; i++) {
		char name[60];
		pthread_cond_t cond;
		pthread_condattr_t attributes;
		pthread_condattr_init(&attributes);
		MUST(pthread_condattr_setclock(&attributes, CLOCKS[i].clock));
		MUST(pthread_cond_init(&cond, &attributes));
		/* In this order, a delay between the two calls makes the wait look longer, not
		 * shorter. */
		long since = true_ms();
		struct timespec until = soon(CLOCKS[i].clock);
		int code;
		do
			code = pthread_cond_timedwait(&cond, &own, &until);
		while (code == 0);
		snprintf(name, sizeof name, "condition, %s", CLOCKS[i].name);
		report(name, code, since);
		MUST(pthread_cond_destroy(&cond));
	}
	MUST(pthread_mutex_unlock(&own));
}

int main(int argc, char **argv)
{
	const char *mode = argc == 2 ? argv[1] : "";
	if (strcmp(mode, "brief") == 0)
		rounds = 100;
	if (strcmp(mode, "count") == 0 || strcmp(mode, "brief") == 0) {
		together(count);
		printf("counted %ld, wrote %ld, %ld turns\n", counted, written, turn);
	} else if (strcmp(mode, "heap") == 0) {
		together(pass);
		printf("passed %ld bytes, %d left\n", bytes_passed, shelf.used);
	} else if (strcmp(mode, "clocks") == 0) {
		clocks();
	} else {
		return 2;
	}
	return atomic_load(&failures) ? 1 : 0;
}
