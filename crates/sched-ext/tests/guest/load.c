/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Loads for the guest. Statically linked: the guest has only the scheduler's libraries.
 *
 *   load files|mmap|spin THREADS SECONDS [MASK]
 *       threads that contend for a spin lock of the kernel (files), for mmap_lock (mmap), or for
 *       nothing (spin), on the processors in the hexadecimal MASK; SIGTERM ends them early
 *   load fork COUNT
 *       COUNT children, one after another, that end at once
 *   load breed PROCESSES COUNT
 *       processes that contend for a spin lock and have COUNT children each that do the same
 *   load shells PROCESSES COUNT MS
 *       processes that only create COUNT children each, one after another; all children contend
 *       for one spin lock for MS milliseconds
 *   load exec COUNT
 *       COUNT children, one after another, that execute a program which ends at once
 *   load pipe COUNT
 *       COUNT round trips of a byte between two processes
 *
 * The first form prints its name, the number of operations, the smallest number of operations of a
 * thread, and the thread ids. The last two print the elapsed nanoseconds; instructions.c counts
 * their instructions.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST 64

struct worker {
	pthread_t thread;
	unsigned long operations;
	long id;
	char apart[64];
};

static struct worker workers[MOST];
static volatile int is_over;
static void (*operation)(void);

/* Takes the spin lock of the process's file table twice. */
static void files(void)
{
	close(dup(0));
}

static void map(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		exit(1);
	*(volatile char *)page = 1;
	munmap(page, 4096);
}

static void spin(void)
{
	for (volatile int i = 0; i < 1000; i++)
		;
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	worker->id = syscall(SYS_gettid);
	while (!is_over) {
		operation();
		worker->operations++;
	}
	return NULL;
}

static int have_threads_work(const char *name, int threads, int seconds, const char *mask)
{
	unsigned long sum = 0, least = -1UL;
	const struct timespec time = { .tv_sec = seconds };
	sigset_t end;

	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	/* The threads inherit this mask; only this thread waits for the signal. */
	sigprocmask(SIG_BLOCK, &end, NULL);
	operation = !strcmp(name, "files") ? files : !strcmp(name, "mmap") ? map : spin;
	if (mask) {
		cpu_set_t set;
		unsigned long bits = strtoul(mask, NULL, 16);

		CPU_ZERO(&set);
		for (int cpu = 0; cpu < 64; cpu++)
			if (bits >> cpu & 1)
				CPU_SET(cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set))
			return 1;
	}
	for (int i = 0; i < threads; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			return 1;
	sigtimedwait(&end, NULL, &time);
	is_over = 1;
	for (int i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		sum += workers[i].operations;
		if (workers[i].operations < least)
			least = workers[i].operations;
	}
	printf("%s %lu %lu", name, sum, least);
	for (int i = 0; i < threads; i++)
		printf(" %ld", workers[i].id);
	printf("\n");
	return 0;
}

static int have_children(int count, int execute)
{
	for (int i = 0; i < count; i++) {
		pid_t child = fork();

		if (child < 0)
			return 1;
		if (!child) {
			if (execute)
				execl("/proc/self/exe", "load", "nothing", NULL);
			_exit(execute);
		}
		waitpid(child, NULL, 0);
	}
	return 0;
}

static void contend(double seconds)
{
	struct timespec now, start;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		for (int i = 0; i < 100; i++)
			files();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) / 1e9 < seconds);
}

/* A fork that shares the file table, and so its spin lock. */
static pid_t fork_with_files(void)
{
	return syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
}

/*
 * Starts processes that contend for `own` seconds and then create `count` children each, one after
 * another, that contend for `seconds`.
 */
static int have_parents(pid_t (*begin)(void), int processes, double own, int count, double seconds)
{
	for (int i = 0; i < processes; i++) {
		if (begin())
			continue;
		if (own > 0)
			contend(own);
		for (int child = 0; child < count; child++) {
			pid_t id = begin();

			if (!id) {
				contend(seconds);
				_exit(0);
			}
			if (id > 0)
				waitpid(id, NULL, 0);
		}
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
	return 0;
}

static int play_ping_pong(int count)
{
	int there[2], back[2];
	char byte = 0;

	if (pipe(there) || pipe(back))
		return 1;
	if (!fork()) {
		while (count-- && read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
			;
		_exit(0);
	}
	while (count-- && write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1)
		;
	wait(NULL);
	return 0;
}

static int have_timed(const char *name, int count)
{
	struct timespec start, end;
	int failed;

	clock_gettime(CLOCK_MONOTONIC, &start);
	/* nopl BEGIN(%rax) and nopl END(%rax): see instructions.c. */
	asm volatile(".ascii \"\\x0f\\x1f\\x80vncb\"" ::: "memory");
	failed = !strcmp(name, "exec") ? have_children(count, 1) : play_ping_pong(count);
	asm volatile(".ascii \"\\x0f\\x1f\\x80vnce\"" ::: "memory");
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%lld\n", (end.tv_sec - start.tv_sec) * 1000000000LL + end.tv_nsec - start.tv_nsec);
	return failed;
}

int main(int count, char **arguments)
{
	if (count == 2 && !strcmp(arguments[1], "nothing"))
		return 0;
	if (count == 3 && !strcmp(arguments[1], "fork"))
		return have_children(atoi(arguments[2]), 0);
	if (count == 4 && !strcmp(arguments[1], "breed"))
		return have_parents(fork, atoi(arguments[2]), 2, atoi(arguments[3]), 0.0001);
	if (count == 5 && !strcmp(arguments[1], "shells"))
		return have_parents(fork_with_files, atoi(arguments[2]), 0,
				    atoi(arguments[3]), atoi(arguments[4]) / 1e3);
	if (count == 3 && (!strcmp(arguments[1], "exec") || !strcmp(arguments[1], "pipe")))
		return have_timed(arguments[1], atoi(arguments[2]));
	if (count < 4 || atoi(arguments[2]) > MOST)
		return 2;
	return have_threads_work(arguments[1], atoi(arguments[2]), atoi(arguments[3]),
				 arguments[4]);
}
