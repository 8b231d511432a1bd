/* A program for tests that look at it from outside, one case per mode.
 *
 *   counts                 4 threads lock one mutex 1000 times each, others less; exit status 7
 *   loaded [PROGRAM ...]   prints the user and whether the library is loaded; executes PROGRAM
 *   tasks-uncontended      threads that never wait: prints the number of extra threads
 *   tasks-contended        threads that wait a lot: prints that number during contention and after
 *   fork-held              forks while threads hold locks and others wait for them
 *   exit-waiting           exits with status 5 while threads wait for every kind of lock
 *   long-contention        contends for a second and a half, and prints whether counts were lost
 *   thousand               1000 threads on the smallest stacks, with one mutex and one condition
 *   elides                 prints whether sections run as transactions: in a process with one
 *                          thread, after a second one has started, and in a child of a fork
 *   fork-counted           contends, locks a mutex 1000 times, and forks a child that locks it once
 *   fork-silent            a child without lock calls exits; the parent ends by _exit
 *   cleared                clears the environment, forks, and waits for a lock in both processes
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "room.h"

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static long counter;
static atomic_bool stop;
static sem_t finish;

static void sleep_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

static void start(pthread_t *thread, void *(*routine)(void *), void *argument)
{
	if (thread_create(thread, NULL, routine, argument) != 0) {
		fprintf(stderr, "behaviour: cannot create a thread\n");
		exit(99);
	}
}

/* ---- counts ---- */

static void *count(void *ignored)
{
	(void)ignored;
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&busy);
		counter++;
		pthread_mutex_unlock(&busy);
		if (i % 10 == 0) {
			pthread_mutex_lock(&other);
			pthread_mutex_unlock(&other);
		}
	}
	return NULL;
}

static int counts(void)
{
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		start(&t[i], count, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("counted %ld\n", counter);
	return 7;
}

/* ---- loaded ---- */

static int is_library(struct dl_phdr_info *info, size_t size, void *found)
{
	(void)size;
	if (strstr(info->dlpi_name, "libunconvoy"))
		*(bool *)found = true;
	return 0;
}

static int loaded(char **next)
{
	bool found = false;
	dl_iterate_phdr(is_library, &found);
	printf("library %s, user %d\n", found ? "loaded" : "absent", (int)geteuid());
	fflush(stdout);
	if (*next) {
		execv(*next, next);
		perror(*next);
		return 126;
	}
	return 0;
}

/* ---- tasks ---- */

static int tasks(void)
{
	DIR *dir = opendir("/proc/self/task");
	int n = 0;
	for (struct dirent *e; dir && (e = readdir(dir));)
		n += e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

static void *lock_own(void *ignored)
{
	(void)ignored;
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	pthread_rwlock_t own_rwlock = PTHREAD_RWLOCK_INITIALIZER;
	while (!atomic_load(&stop)) {
		pthread_mutex_lock(&own);
		pthread_mutex_unlock(&own);
		pthread_rwlock_rdlock(&own_rwlock);
		pthread_rwlock_unlock(&own_rwlock);
	}
	return NULL;
}

static int tasks_uncontended(void)
{
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		start(&t[i], lock_own, NULL);
	sleep_ms(200);
	printf("extra %d\n", tasks() - 5);
	atomic_store(&stop, true);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	return 0;
}

static void *contend(void *ignored)
{
	(void)ignored;
	while (!atomic_load(&stop)) {
		pthread_mutex_lock(&busy);
		counter++;
		pthread_mutex_unlock(&busy);
	}
	/* Stays alive, so that only the library's threads can end. */
	while (sem_wait(&finish) != 0)
		;
	return NULL;
}

static int tasks_contended(void)
{
	/* More threads than processors, so that a load manager has work. */
	int n = 4 * (int)sysconf(_SC_NPROCESSORS_ONLN), most = 0, left = 0;
	pthread_t t[n];
	sem_init(&finish, 0, 0);
	for (int i = 0; i < n; i++)
		start(&t[i], contend, NULL);
	for (int i = 0; i < 50; i++) {
		sleep_ms(10);
		int extra = tasks() - n - 1;
		most = extra > most ? extra : most;
	}
	atomic_store(&stop, true);
	/* The library promises 2 s after the contention; the rest allows for a loaded machine. */
	for (int i = 0; i < 250; i++) {
		sleep_ms(10);
		if ((left = tasks() - n - 1) == 0)
			break;
	}
	for (int i = 0; i < n; i++)
		sem_post(&finish);
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	printf("extra %d, afterwards %d\n", most, left);
	return 0;
}

/* ---- fork-held ---- */

static sem_t holding;

static void *hold_all(void *ignored)
{
	(void)ignored;
	pthread_mutex_lock(&other);
	pthread_rwlock_wrlock(&rwlock);
	sem_post(&holding);
	while (sem_wait(&finish) != 0)
		;
	pthread_rwlock_unlock(&rwlock);
	pthread_mutex_unlock(&other);
	return NULL;
}

static void *wait_for_other(void *ignored)
{
	(void)ignored;
	pthread_mutex_lock(&other);
	pthread_mutex_unlock(&other);
	return NULL;
}

static int child_of_holders(void)
{
	/* Locks held by the parent's other threads stay held forever; all others work, also under
	 * contention. */
	if (pthread_mutex_trylock(&other) != EBUSY || pthread_rwlock_tryrdlock(&rwlock) != EBUSY)
		return 1;
	pthread_t t[4];
	counter = 0;
	for (int i = 0; i < 4; i++)
		start(&t[i], contend, NULL);
	sleep_ms(50);
	atomic_store(&stop, true);
	for (int i = 0; i < 4; i++)
		sem_post(&finish);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	return counter > 0 ? 0 : 2;
}

static int fork_held(void)
{
	pthread_t holder, waiters[3];
	sem_init(&holding, 0, 0);
	sem_init(&finish, 0, 0);
	start(&holder, hold_all, NULL);
	while (sem_wait(&holding) != 0)
		;
	for (int i = 0; i < 3; i++)
		start(&waiters[i], wait_for_other, NULL);
	sleep_ms(20);
	for (int i = 0; i < 3; i++) {
		pid_t child = child_create();
		if (child == 0)
			_exit(child_of_holders());
		printf("child %d: %d\n", i, await_child(child));
	}
	sem_post(&finish);
	pthread_join(holder, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(waiters[i], NULL);
	printf("parent done\n");
	return 0;
}

/* ---- exit-waiting ---- */

static void *wait_mutex(void *ignored)
{
	(void)ignored;
	pthread_mutex_lock(&busy);
	return NULL;
}

static void *wait_read(void *ignored)
{
	(void)ignored;
	pthread_rwlock_rdlock(&rwlock);
	return NULL;
}

static void *wait_write(void *ignored)
{
	(void)ignored;
	pthread_rwlock_wrlock(&rwlock);
	return NULL;
}

static void *wait_spin(void *ignored)
{
	(void)ignored;
	pthread_spin_lock(&spin);
	return NULL;
}

static void *wait_cond(void *ignored)
{
	(void)ignored;
	pthread_mutex_lock(&other);
	for (;;)
		pthread_cond_wait(&cond, &other);
	return NULL;
}

static void at_exit(void)
{
	pthread_mutex_lock(&other);
	printf("exit handler\n");
	pthread_mutex_unlock(&other);
}

static int exit_waiting(void)
{
	static void *(*const WAITS[])(void *) = { wait_mutex, wait_read, wait_write, wait_spin,
						 wait_cond };
	pthread_t t;
	atexit(at_exit);
	pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_lock(&spin);
	pthread_mutex_lock(&busy);
	pthread_rwlock_wrlock(&rwlock);
	for (size_t i = 0; i < 2 * sizeof WAITS / sizeof WAITS[0]; i++)
		start(&t, WAITS[i / 2], NULL);
	sleep_ms(50);
	printf("exiting\n");
	return 5;
}

/* ---- long-contention ---- */

static atomic_long attempts;

static void *contend_counted(void *ignored)
{
	(void)ignored;
	long mine = 0;
	while (!atomic_load(&stop)) {
		pthread_mutex_lock(&busy);
		counter++;
		pthread_mutex_unlock(&busy);
		mine++;
	}
	atomic_fetch_add(&attempts, mine);
	return NULL;
}

static int long_contention(void)
{
	pthread_t t[6];
	printf("started\n");
	fflush(stdout);
	for (int i = 0; i < 6; i++)
		start(&t[i], contend_counted, NULL);
	sleep_ms(1500);
	atomic_store(&stop, true);
	for (int i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	printf("%s\n", counter == attempts ? "all counted" : "lost counts");
	return 0;
}

/* ---- thousand ---- */

enum { MANY = 1000 };
static int gathered, released;

static void *gather(void *ignored)
{
	(void)ignored;
	for (int i = 0; i < 10; i++) {
		pthread_mutex_lock(&busy);
		counter++;
		pthread_mutex_unlock(&busy);
	}
	pthread_mutex_lock(&other);
	gathered++;
	while (!released)
		pthread_cond_wait(&cond, &other);
	pthread_mutex_unlock(&other);
	return NULL;
}

static int thousand(void)
{
	static pthread_t t[MANY];
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, (size_t)sysconf(_SC_THREAD_STACK_MIN));
	pthread_mutex_lock(&busy);
	for (int i = 0; i < MANY; i++) {
		if (thread_create(&t[i], &attr, gather, NULL) != 0) {
			fprintf(stderr, "behaviour: cannot create a thread\n");
			return 99;
		}
	}
	pthread_mutex_unlock(&busy);
	for (int n = 0; n < MANY; sleep_ms(5)) {
		pthread_mutex_lock(&other);
		n = gathered;
		released = n == MANY;
		pthread_mutex_unlock(&other);
	}
	pthread_cond_broadcast(&cond);
	for (int i = 0; i < MANY; i++)
		pthread_join(t[i], NULL);
	printf("counted %ld by %d threads\n", counter, gathered);
	return 0;
}

/* ---- elides ---- */

static bool in_transaction(void)
{
	unsigned char inside = 0;
#ifdef __x86_64__
	__asm__ volatile("xtest; setnz %0" : "=r"(inside) : : "cc");
#endif
	return inside;
}

/* Whether most of these sections are elided; an interrupt aborts some. */
static const char *elided(void)
{
	int sections = 0;
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&busy);
		bool inside = in_transaction();
		pthread_mutex_unlock(&busy);
		sections += inside;
	}
	return sections == 0 ? "no" : sections > 500 ? "yes" : "seldom";
}

static int elides(void)
{
	pthread_t t;
	const char *alone = elided();
	/* Taken by a process with one thread, and released by one with two. */
	pthread_mutex_lock(&busy);
	start(&t, count, NULL);
	pthread_mutex_unlock(&busy);
	pthread_join(t, NULL);
	const char *beside = elided();
	printf("alone %s, beside %s\n", alone, beside);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		printf("child %s\n", elided());
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	printf("counted %ld\n", counter);
	return 0;
}

/* ---- fork-counted ---- */

static int fork_counted(void)
{
	long_contention();
	fflush(stdout);
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&other);
		pthread_mutex_unlock(&other);
	}
	pid_t child = child_create();
	if (child == 0) {
		pthread_mutex_lock(&other);
		pthread_mutex_unlock(&other);
		return 0;
	}
	int status = await_child(child);
	printf("child %d, status %d\n", (int)child, status);
	return 0;
}

/* ---- fork-silent ---- */

/* No fork handler runs, and the child makes no lock call. */
static int fork_silent(void)
{
	pid_t child = CHILD_BY("clone", (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
	if (child == 0)
		exit(0);
	_exit(await_child(child) == 0 ? 0 : 1);
}

/* ---- cleared ---- */

/* Whether another thread of the process sleeps: it waits for the caller. */
static bool other_thread_sleeps(void)
{
	char path[300], line[256];
	bool found = false;
	DIR *threads = opendir("/proc/self/task");
	for (struct dirent *thread; (thread = readdir(threads));) {
		int id = atoi(thread->d_name);
		snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread->d_name);
		FILE *file = id && id != (int)syscall(SYS_gettid) ? fopen(path, "r") : NULL;
		char *end = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
		found |= end && end[2] == 'S';
		if (file)
			fclose(file);
	}
	closedir(threads);
	return found;
}

static int cleared(void)
{
	pthread_t t;
	clearenv();
	pid_t child = child_create();
	pthread_mutex_lock(&other);
	start(&t, wait_for_other, NULL);
	for (int i = 0; i < 10000 && !other_thread_sleeps(); i++)
		sleep_ms(1);
	sleep_ms(20);
	pthread_mutex_unlock(&other);
	pthread_join(t, NULL);
	if (child == 0)
		return 0;
	int status = await_child(child);
	printf("child %d, status %d\n", (int)child, status);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	if (strcmp(mode, "counts") == 0)
		return counts();
	if (strcmp(mode, "loaded") == 0)
		return loaded(argv + 2);
	if (strcmp(mode, "tasks-uncontended") == 0)
		return tasks_uncontended();
	if (strcmp(mode, "tasks-contended") == 0)
		return tasks_contended();
	if (strcmp(mode, "fork-held") == 0)
		return fork_held();
	if (strcmp(mode, "exit-waiting") == 0)
		return exit_waiting();
	if (strcmp(mode, "long-contention") == 0)
		return long_contention();
	if (strcmp(mode, "thousand") == 0)
		return thousand();
	if (strcmp(mode, "elides") == 0)
		return elides();
	if (strcmp(mode, "fork-counted") == 0)
		return fork_counted();
	if (strcmp(mode, "fork-silent") == 0)
		return fork_silent();
	if (strcmp(mode, "cleared") == 0)
		return cleared();
	fprintf(stderr, "behaviour: no mode %s\n", mode);
	return 2;
}
