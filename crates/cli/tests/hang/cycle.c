/* Threads that wait for each other in a circle, or for one that holds a lock for long.
 *
 * argv: "mutex" or "rwlock" for a circle, "shared" for a lock of the main thread, "often" for
 * a lock that changes hands, "ended" for one whose holder has ended, "unnamed" for one whose
 * writer has not named itself; the number of threads; "secret" to be not dumpable, or "leave"
 * to end the main thread once the others have their first locks. Prints "ready" when the
 * threads have their first locks, and "alive" for each line of its input. With "shared" and
 * "ended", each line lets another thread arrive at the lock. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct account {
	long money;
	pthread_mutex_t guard;
	pthread_rwlock_t table;
};

static struct account accounts[8];
static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;
static sem_t turns[8];
static int count;

static __attribute__((noinline)) void take_first(int own)
{
	pthread_mutex_lock(&accounts[own].guard);
}

static __attribute__((noinline)) void take_second(int next)
{
	pthread_mutex_lock(&accounts[next].guard);
}

static void *lock_mutexes(void *argument)
{
	int own = (int)(long)argument;

	take_first(own);
	pthread_barrier_wait(&all);
	take_second((own + 1) % count);
	return argument;
}

static __attribute__((noinline)) void read_table(int own)
{
	pthread_rwlock_rdlock(&accounts[own].table);
}

static __attribute__((noinline)) void write_table(int next)
{
	pthread_rwlock_wrlock(&accounts[next].table);
}

static void *lock_tables(void *argument)
{
	int own = (int)(long)argument;

	read_table(own);
	pthread_barrier_wait(&all);
	write_table((own + 1) % count);
	return argument;
}

/* Waits for a lock that the main thread holds. */
static void *write_first(void *argument)
{
	pthread_barrier_wait(&all);
	write_table(0);
	return argument;
}

static __attribute__((noinline)) void pass_shared(void)
{
	pthread_mutex_lock(&shared);
	pthread_mutex_unlock(&shared);
}

/* Waits for the shared lock once the main thread lets it. */
static void *arrive(void *argument)
{
	pthread_barrier_wait(&all);
	sem_wait(&turns[(long)argument]);
	pass_shared();
	return argument;
}

/* Takes and releases the shared lock, which is held most of the time. */
static void *pass_often(void *argument)
{
	pthread_barrier_wait(&all);
	for (;;) {
		pthread_mutex_lock(&shared);
		usleep(30000);
		pthread_mutex_unlock(&shared);
	}
	return argument;
}

static void *hold_and_end(void *argument)
{
	pthread_mutex_lock(&shared);
	return argument;
}

int main(int argc, char **argv)
{
	void *(*body)(void *) = lock_mutexes;
	const char *what = argc > 1 ? argv[1] : "mutex";
	int arrived = 0;

	count = argc > 2 ? atoi(argv[2]) : 2;
	if (argc > 3 && !strcmp(argv[3], "secret"))
		prctl(PR_SET_DUMPABLE, 0);
	if (!strcmp(what, "rwlock"))
		body = lock_tables;
	if (!strcmp(what, "unnamed"))
		body = write_first;
	if (!strcmp(what, "shared") || !strcmp(what, "ended"))
		body = arrive;
	if (!strcmp(what, "often"))
		body = pass_often;
	pthread_barrier_init(&all, NULL, (unsigned)(count + 1));
	for (long i = 0; i < count; i++) {
		pthread_t thread;
		char name[32];

		pthread_mutex_init(&accounts[i].guard, NULL);
		pthread_rwlock_init(&accounts[i].table, NULL);
		sem_init(&turns[i], 0, 0);
		pthread_create(&thread, NULL, body, (void *)i);
		snprintf(name, sizeof name, "worker-%ld", i);
		pthread_setname_np(thread, name);
	}
	if (!strcmp(what, "ended")) {
		pthread_t holder;

		pthread_create(&holder, NULL, hold_and_end, NULL);
		pthread_join(holder, NULL);
	} else if (body == arrive) {
		pthread_mutex_lock(&shared);
	} else if (body == write_first) {
		/* The state between the two steps of an acquisition: the owner follows the lock. */
		pthread_rwlock_wrlock(&accounts[0].table);
		memset((char *)&accounts[0].table + 24, 0, 4);
	}
	pthread_barrier_wait(&all);
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	if (argc > 3 && !strcmp(argv[3], "leave"))
		pthread_exit(NULL);
	for (int byte = getchar(); byte != EOF; byte = getchar()) {
		if (byte != '\n')
			continue;
		if (body == arrive && arrived < count)
			sem_post(&turns[arrived++]);
		puts("alive");
	}
	return 0;
}
