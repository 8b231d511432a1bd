/* Checkpoints of a program that links without the library, one case per mode.
 *
 *   idle    a single thread: prints how often it slept
 *   load    threads contend and pass checkpoints until one of them has slept there
 *   held    same, and others pass checkpoints with locks of every kind held; prints their sleeps
 *   reads   same as load; each thread also reads under a lock that many readers have held before
 *   fork    same as load, and children pass checkpoints; prints their sleeps
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unconvoy.h"

enum { MOST = 256, TIMES = 2000, CHILDREN = 5 };

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static atomic_long slept, slept_with_lock;
static atomic_int holders;
static atomic_bool stop;
static volatile long counter;
static pthread_rwlock_t catalogue = PTHREAD_RWLOCK_INITIALIZER;
static bool reads;
static atomic_int have_read;
static atomic_bool counts;

static void read_often(void)
{
	for (int i = 0; i < 50000; i++) {
		pthread_rwlock_rdlock(&catalogue);
		pthread_rwlock_unlock(&catalogue);
	}
	atomic_fetch_add(&have_read, 1);
	while (!atomic_load(&counts))
		usleep(1000);
}

/* Works ten times longer outside the lock than inside: parked waiters would not overload the
 * machine. A holder that is preempted lets the others wait long enough to start the controller. */
static void *contend(void *ignored)
{
	volatile long own = 0;
	if (reads)
		read_often();
	while (!atomic_load(&stop)) {
		pthread_mutex_lock(&busy);
		for (int i = 0; i < 500; i++)
			counter++;
		pthread_mutex_unlock(&busy);
		for (int i = 0; i < 5000; i++)
			own++;
		if (reads) {
			pthread_rwlock_rdlock(&catalogue);
			pthread_rwlock_unlock(&catalogue);
		}
		slept += unconvoy_checkpoint_if_loaded();
	}
	return ignored;
}

static int one_sleep(long number)
{
	long before = atomic_load(&slept_with_lock);
	slept_with_lock += unconvoy_checkpoint_if_loaded();
	if (atomic_load(&slept_with_lock) != before)
		fprintf(stderr, "slept with lock %ld held\n", number);
	return 0;
}

/* Locks in every way, one after the other, with a checkpoint in each section. */
static void *hold(void *ignored)
{
	pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_t nested = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
	pthread_spinlock_t spin;
	struct timespec never = { 4000000000, 0 };

	pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
	unconvoy_checkpoint_if_loaded(); /* from now on, the library counts */
	while (!atomic_load(&stop)) {
		pthread_mutex_lock(&plain), one_sleep(0), pthread_mutex_unlock(&plain);
		pthread_mutex_trylock(&plain), one_sleep(1), pthread_mutex_unlock(&plain);
		pthread_mutex_timedlock(&plain, &never), one_sleep(2), pthread_mutex_unlock(&plain);
		pthread_mutex_lock(&nested), pthread_mutex_lock(&nested), pthread_mutex_unlock(&nested);
		one_sleep(3), pthread_mutex_unlock(&nested);
		pthread_rwlock_rdlock(&rwlock), one_sleep(4), pthread_rwlock_unlock(&rwlock);
		pthread_rwlock_wrlock(&rwlock), one_sleep(5), pthread_rwlock_unlock(&rwlock);
		pthread_spin_lock(&spin), one_sleep(6), pthread_spin_unlock(&spin);
		pthread_mutex_lock(&busy), one_sleep(7), pthread_mutex_unlock(&busy);
		atomic_fetch_add(&holders, 1);
	}
	return ignored;
}

static int child(void)
{
	int times = 0;
	for (int i = 0; i < TIMES; i++)
		times += unconvoy_checkpoint_if_loaded();
	return times;
}

static int in_children(void)
{
	int times = 0, status;
	for (int i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(child() != 0);
		waitpid(pid, &status, 0);
		times += status != 0;
	}
	return times;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	if (strcmp(mode, "idle") == 0) {
		printf("slept %d times\n", child());
		return 0;
	}

	static pthread_t threads[MOST];
	long count = 4 * sysconf(_SC_NPROCESSORS_ONLN) + 4;
	int started = 0;
	reads = strcmp(mode, "reads") == 0;
	/* Locked on the fast path and released while the library counts. */
	pthread_mutex_lock(&busy);
	if (!reads)
		unconvoy_checkpoint_if_loaded();
	pthread_mutex_unlock(&busy);
	for (long i = 0; i < count && started < MOST - 2; i++)
		started += pthread_create(&threads[started], NULL, contend, NULL) == 0;
	while (reads && atomic_load(&have_read) < started)
		usleep(1000);
	if (reads)
		unconvoy_checkpoint_if_loaded();
	atomic_store(&counts, true);
	for (int i = 0; i < 2 && strcmp(mode, "held") == 0; i++)
		started += pthread_create(&threads[started], NULL, hold, NULL) == 0;
	while (atomic_load(&slept) < 10 || (strcmp(mode, "held") == 0 && atomic_load(&holders) < 100))
		usleep(1000);
	int children = strcmp(mode, "fork") == 0 ? in_children() : 0;
	atomic_store(&stop, true);
	for (int i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	printf("%ld sleeps with a lock, %d in children\n", atomic_load(&slept_with_lock), children);
	return 0;
}
