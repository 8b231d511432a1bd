/* Waits and holds of known length at known places. A holder takes the lock, lets the waiter begin,
 * and holds the lock for some milliseconds. The program measures both and prints the sums:
 *
 *	NAME waits NANOSECONDS COUNT
 *	NAME longest NANOSECONDS 0
 *	NAME shortest_hold NANOSECONDS 0
 *	NAME longest_hold NANOSECONDS 0
 *	NAME PLACE NANOSECONDS COUNT
 *
 * Usage: profile [ROUNDS] [kill|fork]. With `kill` or `fork` the program does only its first part;
 * `fork` does it in a child, too. */

#define _GNU_SOURCE
#include "abort.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PLACE __attribute__((noinline, noclone))

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void sleep_ms(int ms)
{
	struct timespec time = { 0, ms * 1000000L };
	nanosleep(&time, NULL);
}

static sem_t is_held, begun;

/* The lock of the present part. */
static struct {
	const char *name;
	int (*lock)(void *);
	int (*read)(void *);
	int (*unlock)(void *);
	void *object;
	int64_t waited, longest, shortest_hold, longest_hold, waited_rarely, held_briefly;
	int waits;
} part;

static void begin_part(const char *name, void *object, int (*lock)(void *), int (*read)(void *),
		       int (*unlock)(void *))
{
	memset(&part, 0, sizeof part);
	part.name = name;
	part.object = object;
	part.lock = lock;
	part.read = read;
	part.unlock = unlock;
	part.shortest_hold = INT64_MAX;
}

static void end_part(void)
{
	printf("%s waits %lld %d\n", part.name, (long long)part.waited, part.waits);
	printf("%s longest %lld 0\n", part.name, (long long)part.longest);
	printf("%s shortest_hold %lld 0\n", part.name, (long long)part.shortest_hold);
	printf("%s longest_hold %lld 0\n", part.name, (long long)part.longest_hold);
	printf("%s wait_rarely %lld 0\n", part.name, (long long)part.waited_rarely);
	printf("%s hold_briefly %lld 0\n", part.name, (long long)part.held_briefly);
}

static void hold(int ms)
{
	sem_wait(&begun);
	part.lock(part.object);
	sem_post(&is_held);
	sleep_ms(ms);
	part.unlock(part.object);
}

PLACE void hold_long(void)
{
	hold(20);
	__asm__ volatile("");
}

PLACE void hold_briefly(void)
{
	hold(5);
	__asm__ volatile("");
}

static int round_of_waiter;

static bool is_rare(int round)
{
	return round % 4 == 0;
}

static bool is_brief(int round)
{
	return round % 4 == 3;
}

static void wait_for(int (*lock)(void *))
{
	int64_t begin, end, waited, held;
	sem_post(&begun);
	sem_wait(&is_held);
	begin = now();
	lock(part.object);
	end = now();
	waited = end - begin;
	part.waited += waited;
	part.waits++;
	part.longest = waited > part.longest ? waited : part.longest;
	part.waited_rarely += is_rare(round_of_waiter) && !part.read ? waited : 0;
	part.held_briefly += is_brief(round_of_waiter) ? waited : 0;
	begin = now();
	sleep_ms(3);
	held = now() - begin;
	part.shortest_hold = held < part.shortest_hold ? held : part.shortest_hold;
	part.longest_hold = held > part.longest_hold ? held : part.longest_hold;
	part.unlock(part.object);
}

PLACE void wait_often(void)
{
	wait_for(part.lock);
	__asm__ volatile("");
}

PLACE void wait_rarely(void)
{
	wait_for(part.lock);
	__asm__ volatile("");
}

PLACE void wait_to_read(void)
{
	wait_for(part.read);
	__asm__ volatile("");
}

static int rounds = 8;

static void *holder(void *unused)
{
	for (int round = 0; round < rounds; round++)
		is_brief(round) ? hold_briefly() : hold_long();
	return unused;
}

static void contend(void)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, holder, NULL) == 0);
	for (round_of_waiter = 0; round_of_waiter < rounds; round_of_waiter++) {
		if (part.read)
			wait_to_read();
		else if (is_rare(round_of_waiter))
			wait_rarely();
		else
			wait_often();
	}
	CHECK(pthread_join(thread, NULL) == 0);
	end_part();
}

#define FUNCTION(name, type) \
	static int name(void *object) { return pthread_##name((type *)object); }
FUNCTION(mutex_lock, pthread_mutex_t)
FUNCTION(mutex_unlock, pthread_mutex_t)
FUNCTION(rwlock_rdlock, pthread_rwlock_t)
FUNCTION(rwlock_wrlock, pthread_rwlock_t)
FUNCTION(rwlock_unlock, pthread_rwlock_t)
static int spin_lock(void *object) { return pthread_spin_lock(object); }
static int spin_unlock(void *object) { return pthread_spin_unlock(object); }

pthread_mutex_t static_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t recursive_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
pthread_mutex_t checking_mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
pthread_mutex_t adaptive_mutex = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
pthread_mutex_t robust_mutex;
pthread_mutex_t uncontended = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t static_rwlock = PTHREAD_RWLOCK_INITIALIZER;
pthread_spinlock_t static_spin;
pthread_cond_t static_cond = PTHREAD_COND_INITIALIZER;

PLACE pthread_mutex_t *new_mutex(int type)
{
	pthread_mutexattr_t attributes;
	pthread_mutex_t *mutex = malloc(sizeof *mutex);
	CHECK(pthread_mutexattr_init(&attributes) == 0);
	CHECK(pthread_mutexattr_setprotocol(&attributes, type) == 0);
	CHECK(pthread_mutex_init(mutex, &attributes) == 0);
	return mutex;
}

static void init_robust(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attributes;
	CHECK(pthread_mutexattr_init(&attributes) == 0);
	CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
	CHECK(pthread_mutex_init(mutex, &attributes) == 0);
}

static int is_signalled;

static void *signaller(void *unused)
{
	sleep_ms(20);
	CHECK(pthread_mutex_lock(&uncontended) == 0);
	is_signalled = 1;
	CHECK(pthread_cond_signal(&static_cond) == 0);
	CHECK(pthread_mutex_unlock(&uncontended) == 0);
	return unused;
}

PLACE void wait_for_signal(void)
{
	int64_t begin = now();
	CHECK(pthread_mutex_lock(&uncontended) == 0);
	while (!is_signalled)
		CHECK(pthread_cond_wait(&static_cond, &uncontended) == 0);
	CHECK(pthread_mutex_unlock(&uncontended) == 0);
	printf("static_cond waits %lld 1\n", (long long)(now() - begin));
}

static void *time_out(void *unused)
{
	struct timespec until;
	int64_t begin = now();
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 30000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	CHECK(pthread_mutex_timedlock(&static_mutex, &until) == ETIMEDOUT);
	printf("timed_out waits %lld 1\n", (long long)(now() - begin));
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	if (argc > 1)
		rounds = atoi(argv[1]);
	if (argc > 2 && strcmp(argv[2], "fork") == 0)
		fork();
	CHECK(sem_init(&is_held, 0, 0) == 0 && sem_init(&begun, 0, 0) == 0);
	CHECK(pthread_spin_init(&static_spin, PTHREAD_PROCESS_PRIVATE) == 0);

	for (int turn = 0; turn < 100000; turn++) {
		CHECK(pthread_mutex_lock(&uncontended) == 0);
		CHECK(pthread_mutex_unlock(&uncontended) == 0);
	}
	begin_part("static_mutex", &static_mutex, mutex_lock, NULL, mutex_unlock);
	contend();
	if (argc > 2 && strcmp(argv[2], "kill") == 0) {
		fflush(stdout);
		raise(SIGKILL);
	}
	if (argc > 2) {
		while (wait(NULL) > 0)
			;
		return 0;
	}
	begin_part("recursive_mutex", &recursive_mutex, mutex_lock, NULL, mutex_unlock);
	contend();
	begin_part("checking_mutex", &checking_mutex, mutex_lock, NULL, mutex_unlock);
	contend();
	begin_part("adaptive_mutex", &adaptive_mutex, mutex_lock, NULL, mutex_unlock);
	contend();
	init_robust(&robust_mutex);
	begin_part("robust_mutex", &robust_mutex, mutex_lock, NULL, mutex_unlock);
	contend();
	begin_part("inheriting_mutex", new_mutex(PTHREAD_PRIO_INHERIT), mutex_lock, NULL,
		   mutex_unlock);
	contend();
	begin_part("heap_mutex", new_mutex(PTHREAD_PRIO_NONE), mutex_lock, NULL, mutex_unlock);
	contend();
	begin_part("written_rwlock", &static_rwlock, rwlock_wrlock, NULL, rwlock_unlock);
	contend();
	begin_part("read_rwlock", &static_rwlock, rwlock_wrlock, rwlock_rdlock, rwlock_unlock);
	contend();
	begin_part("static_spin", (void *)&static_spin, spin_lock, NULL, spin_unlock);
	contend();

	CHECK(pthread_create(&thread, NULL, signaller, NULL) == 0);
	wait_for_signal();
	CHECK(pthread_join(thread, NULL) == 0);

	CHECK(pthread_mutex_lock(&static_mutex) == 0);
	CHECK(pthread_create(&thread, NULL, time_out, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(pthread_mutex_unlock(&static_mutex) == 0);
	return 0;
}
