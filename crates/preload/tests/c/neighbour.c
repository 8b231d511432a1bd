/* A neighbour on the machine: load from other processes during a test.
 *
 *   neighbour [--spin N] [--threads N] [--seconds S] [COMMAND [ARGUMENT ...]]
 *
 *   --spin N      run N busy loops
 *   --threads N   hold N sleeping threads in one process
 *   --seconds S   end after S seconds at the latest (default 14400)
 *
 * With a command, the neighbour starts its load, and then this process executes the command, so its
 * status is the command's. Without a command, the neighbour runs in the foreground. It ends with
 * its parent, which is the command if there is one.
 *
 * If the system lacks room for all threads, the neighbour prints what refused them, and keeps the
 * threads that it has. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "room.h"

enum { MAX_SPIN = 1024, MAX_THREADS = 4000000, DEFAULT_SECONDS = 4 * 3600 };

static long number(const char *option, const char *text, long low, long high)
{
	char *end;
	errno = 0;
	long value = text ? strtol(text, &end, 10) : 0;
	if (!text || *end || end == text || errno || value < low || value > high) {
		fprintf(stderr, "neighbour: %s takes a number from %ld to %ld\n", option, low,
			high);
		exit(2);
	}
	return value;
}

/* `parent` may have ended before prctl asked for the signal. */
static void end_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
}

static void spin(pid_t parent)
{
	end_with(parent);
	for (volatile unsigned long turn = 0;; turn++)
		;
}

static void *sleep_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* Starts up to `wanted` threads and returns their number. Each costs the smallest stack and about
 * 30 KiB of kernel memory. Without guards the stacks form one mapping; otherwise the limit on
 * mappings would apply. */
static long hold_threads(long wanted)
{
	pthread_attr_t attributes;
	long held = 0;
	int error = 0;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN));
	pthread_attr_setguardsize(&attributes, 0);
	while (held < wanted && !error) {
		pthread_t thread;
		error = pthread_create(&thread, &attributes, sleep_for_ever, NULL);
		held += !error;
	}
	pthread_attr_destroy(&attributes);
	if (error) {
		fprintf(stderr, "neighbour: %ld of %ld threads: %s\n", held, wanted,
			strerror(error));
		room_say();
	}
	return held;
}

/* Starts the load, writes one byte to `ready`, and stays for `seconds`. */
static void stay(long spins, long threads, unsigned seconds, int ready)
{
	pid_t self = getpid();
	/* The signal's default action ends all threads; the loops end with this process. */
	signal(SIGALRM, SIG_DFL);
	alarm(seconds);
	for (long i = 0; i < spins; i++) {
		pid_t child = fork();
		if (child == 0)
			spin(self);
		if (child < 0) {
			fprintf(stderr, "neighbour: %ld of %ld loops: %s\n", i, spins,
				strerror(errno));
			break;
		}
	}
	long held = hold_threads(threads);
	fprintf(stderr, "neighbour: %ld busy loops, %ld threads\n", spins, held);
	if (write(ready, "", 1) < 0)
		_exit(1);
	close(ready);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	long spins = 0, threads = 0, seconds = DEFAULT_SECONDS;
	int at = 1;
	for (; at < argc && argv[at][0] == '-'; at += 2) {
		if (strcmp(argv[at], "--spin") == 0)
			spins = number(argv[at], argv[at + 1], 0, MAX_SPIN);
		else if (strcmp(argv[at], "--threads") == 0)
			threads = number(argv[at], argv[at + 1], 0, MAX_THREADS);
		else if (strcmp(argv[at], "--seconds") == 0)
			seconds = number(argv[at], argv[at + 1], 1, INT_MAX);
		else {
			fprintf(stderr, "usage: neighbour [--spin N] [--threads N] [--seconds S] "
				"[COMMAND [ARGUMENT ...]]\n");
			return 2;
		}
	}
	int ready[2];
	pid_t parent = at < argc ? getpid() : getppid();
	if (pipe(ready) != 0) {
		perror("neighbour: pipe");
		return 1;
	}
	if (at == argc) {
		end_with(parent);
		stay(spins, threads, (unsigned)seconds, ready[1]);
	}
	pid_t child = fork();
	if (child == 0) {
		close(ready[0]);
		end_with(parent);
		stay(spins, threads, (unsigned)seconds, ready[1]);
	}
	char byte;
	close(ready[1]);
	if (child < 0 || read(ready[0], &byte, 1) != 1) {
		fprintf(stderr, "neighbour: the load did not start\n");
		return 1;
	}
	close(ready[0]);
	execvp(argv[at], argv + at);
	fprintf(stderr, "neighbour: %s: %s\n", argv[at], strerror(errno));
	return 127;
}
