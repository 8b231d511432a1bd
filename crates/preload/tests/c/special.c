/* Threads under a special set of cores: special MODE
 *
 *   masks       contends until a thread is confined, reads masks through the library, and waits for
 *               the set to end
 *   children    a confined thread starts threads and programs in every way; each reports whether
 *               its mask is the user's
 *   exec        a confined thread executes another program
 *   own         a confined thread sets its own mask, and the first thread sets another thread's
 *   pinned      every thread sets its own mask at its start
 *   come-and-go threads that contend and live for some milliseconds
 *   contend     contends for a second
 *   forbid MODE another mode under a system-call filter that forbids setting masks
 *   mask COUNT  reports whether the mask has COUNT processors; started by the other modes
 *
 * Masks are read by direct system calls, without the library. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "room.h"

/* Longer than any wait takes, even on a busy machine: exceeding it means a hang. */
enum { THREADS = 6, LIMIT_S = 400 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stop, leave, rest;
static atomic_int ids[THREADS];
static pthread_t threads[THREADS];
static int all; /* number of processors in the user's mask */
static char **self;
static char count_text[16];
extern char **environ;

static int raw_count(pid_t thread)
{
	unsigned long words[128] = { 0 };
	int count = 0;
	if (syscall(SYS_sched_getaffinity, thread, sizeof words, words) < 0)
		return -1;
	for (size_t i = 0; i < 128; i++)
		count += __builtin_popcountl(words[i]);
	return count;
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
}

static void expect(int is_so, const char *what)
{
	if (!is_so) {
		printf("failed: %s\n", what);
		fflush(stdout);
		_exit(6);
	}
}

/* One critical section, long enough that a time slice sometimes ends in it. */
static void section(void)
{
	pthread_mutex_lock(&mutex);
	for (volatile int turn = 0; turn < 3000; turn++)
		;
	pthread_mutex_unlock(&mutex);
}

static void *contend(void *place)
{
	ids[(long)place] = (int)syscall(SYS_gettid);
	while (!stop) {
		if (rest)
			nap();
		else
			section();
	}
	while (!leave)
		nap();
	return NULL;
}

static void start(int from)
{
	for (long i = from; i < THREADS; i++) {
		expect(thread_create(&threads[i], NULL, contend, (void *)i) == 0,
		       "a thread starts");
		while (!ids[i])
			nap();
	}
}

static void finish(int from)
{
	stop = leave = 1;
	for (int i = from; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* Seconds of contention before the set is made to end and start again. On a quiet machine a set
 * soon grows to all processors, and a short time is best; beside other processes a set takes longer
 * to form. So the times are 1, 2, 1, 4, 1, 2, 1, 8, ... halves of a second, and each recurs. */
static double contention_s = 0.5;

/* The program's own threads, without the library's. */
static int own_tasks(void)
{
	int count = 1;
	for (int i = 0; i < THREADS; i++)
		count += ids[i] != 0;
	return count;
}

/* Whether the library's controller runs, or a thread that the program has started but not yet
 * counted. */
static int has_controller(void)
{
	struct stat tasks;
	return stat("/proc/self/task", &tasks) == 0 && (int)tasks.st_nlink - 2 > own_tasks();
}

/* The set may have grown to all processors. It ends with the controller, after a time without
 * contention, and then starts again with one processor. */
static void let_it_end(void)
{
	static unsigned sets;
	sets = (sets + 1) % 16;
	contention_s = 0.5 * (double)(sets ? sets & -sets : 1);
	rest = 1;
	for (double end = seconds() + LIMIT_S; has_controller() && seconds() < end;)
		nap();
	rest = 0;
}

/* Contends until the calling thread is confined. */
static void until_confined(void)
{
	double begin = seconds(), since = begin;

	while (raw_count(0) == all) {
		expect(seconds() < begin + LIMIT_S, "the caller gets confined");
		section();
		if (seconds() - since > contention_s) {
			let_it_end();
			since = seconds();
		}
	}
}

/* Waits until some thread is confined; returns its index. */
static int confined(void)
{
	double begin = seconds(), since = begin;

	while (seconds() < begin + LIMIT_S) {
		for (int i = 0; i < THREADS; i++)
			if (ids[i] && raw_count(ids[i]) < all)
				return i;
		nap();
		if (seconds() - since > contention_s) {
			let_it_end();
			since = seconds();
		}
	}
	expect(0, "some thread gets confined");
	return -1;
}

static void masks(void)
{
	cpu_set_t set;
	start(0);
	for (int looks = 0; looks < 20; looks++, nap()) {
		int i = confined();
		expect(sched_getaffinity(ids[i], sizeof set, &set) == 0 && CPU_COUNT(&set) == all,
		       "the program sees its own mask");
		memset(&set, 0xff, sizeof set);
		expect(pthread_getaffinity_np(threads[i], sizeof set, &set) == 0 &&
		       CPU_COUNT(&set) == all, "the program sees its own mask by handle");
	}
	puts("confined");
	stop = 1;
	for (double end = seconds() + LIMIT_S; seconds() < end; nap()) {
		int restored = 0;
		for (int i = 0; i < THREADS; i++)
			restored += raw_count(ids[i]) == all;
		if (restored == THREADS) {
			puts("restored");
			break;
		}
	}
	finish(0);
	/* Complete masks do not prove that the set has ended: a set of all processors has them
	 * too. The set ends with the controller's thread. */
	struct stat tasks;
	for (double end = seconds() + LIMIT_S; stat("/proc/self/task", &tasks) == 0 &&
	     tasks.st_nlink > 3; nap())
		expect(seconds() < end, "the controller ends");
}

static void report(const char *who)
{
	printf("%s %s\n", who, raw_count(0) == all ? "has the user's" : "is confined");
	fflush(stdout);
}

static void wait_for(pid_t child)
{
	int status = await_child(child);
	expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child succeeds");
}

static void *thread_reports(void *unused)
{
	report("thread");
	return unused;
}

static void children(void)
{
	pid_t child;
	pthread_t thread;
	char command[4096], line[256];
	snprintf(command, sizeof command, "%s mask %s", self[0], count_text);

	start(1);
	until_confined();
	if ((child = child_create()) == 0) {
		report("fork");
		_exit(0);
	}
	wait_for(child);
	until_confined();
	if ((child = child_create()) == 0) {
		if (child_create() == 0) {
			report("fork of a fork");
			_exit(0);
		}
		wait(NULL);
		execl(self[0], self[0], "mask", count_text, (char *)NULL);
		_exit(1);
	}
	wait_for(child);
	until_confined();
	if ((child = CHILD_BY("vfork", vfork())) == 0) {
		execl(self[0], self[0], "mask", count_text, (char *)NULL);
		_exit(1);
	}
	wait_for(child);
	until_confined();
	if ((child = CHILD_BY("vfork", vfork())) == 0) {
		execle(self[0], self[0], "mask", count_text, (char *)NULL, environ);
		_exit(1);
	}
	wait_for(child);
	until_confined();
	if ((child = CHILD_BY("clone", (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))) == 0) {
		execlp(self[0], self[0], "mask", count_text, (char *)NULL);
		_exit(1);
	}
	wait_for(child);
	char *arguments[] = { self[0], "mask", count_text, NULL };
	until_confined();
	expect(child_spawn(&child, self[0], NULL, arguments) == 0, "posix_spawn");
	wait_for(child);
	until_confined();
	expect(WITH_ROOM("posix_spawnp", ROOM_CODE,
			 posix_spawnp(&child, self[0], NULL, NULL, arguments, environ)) == 0,
	       "posix_spawnp");
	wait_for(child);
	until_confined();
	expect(CHILD_BY("system", system(command)) == 0, "system");
	until_confined();
	FILE *pipe = WITH_ROOM("popen", ROOM_POINTER, popen(command, "r"));
	expect(pipe && fgets(line, sizeof line, pipe), "popen");
	pclose(pipe);
	fputs(line, stdout);
	until_confined();
	expect(thread_create(&thread, NULL, thread_reports, NULL) == 0, "pthread_create");
	pthread_join(thread, NULL);
	/* After a failed exec the thread continues. */
	until_confined();
	expect(execv("/nonexistent", arguments) == -1 && errno == ENOENT,
	       "execv fails with ENOENT");
	report("after exec");
	until_confined();
	puts("confined again");
	finish(1);
}

static void *execute_program(void *unused)
{
	ids[0] = (int)syscall(SYS_gettid); /* counts as the program's own for has_controller */
	until_confined();
	execl(self[0], self[0], "mask", count_text, (char *)NULL);
	return unused;
}

static void own(void)
{
	cpu_set_t mine, before;
	expect(sched_getaffinity(0, sizeof before, &before) == 0, "read the mask");
	CPU_ZERO(&mine);
	for (int cpu = CPU_SETSIZE - 1; CPU_COUNT(&mine) == 0; cpu--)
		if (CPU_ISSET(cpu, &before))
			CPU_SET(cpu, &mine);

	start(1);
	until_confined();
	expect(sched_setaffinity(0, sizeof before, &before) == 0, "set all processors again");
	expect(raw_count(0) == all, "the caller has the mask that it set");
	int other = 1 + (confined() + THREADS - 1) % THREADS;
	if (other >= THREADS)
		other = 1;
	expect(pthread_setaffinity_np(threads[other], sizeof mine, &mine) == 0,
	       "set another thread's mask");
	for (double end = seconds() + 1; seconds() < end;) {
		cpu_set_t seen;
		expect(raw_count(0) == all, "the caller keeps its mask");
		section();
		expect(raw_count(ids[other]) == 1, "the other thread keeps its mask");
		expect(sched_getaffinity(ids[other], sizeof seen, &seen) == 0 &&
		       CPU_EQUAL(&seen, &mine), "the program sees the other thread's mask");
	}
	puts("kept");
	finish(1);
}

static void *pinned(void *place)
{
	cpu_set_t set, mine;
	int skip = (int)((long)place % all);
	sched_getaffinity(0, sizeof set, &set);
	CPU_ZERO(&mine);
	for (int cpu = 0; CPU_COUNT(&mine) == 0; cpu++)
		if (CPU_ISSET(cpu, &set) && skip-- == 0)
			CPU_SET(cpu, &mine);
	expect(sched_setaffinity(0, sizeof mine, &mine) == 0, "set a mask");
	for (double end = seconds() + 1; seconds() < end;) {
		unsigned long seen[128] = { 0 };
		section();
		expect(syscall(SYS_sched_getaffinity, 0, sizeof seen, seen) > 0, "read the mask");
		expect(memcmp(seen, &mine, sizeof mine) == 0, "the thread keeps its mask");
	}
	return NULL;
}

static void all_pinned(void)
{
	for (long i = 0; i < THREADS; i++)
		expect(thread_create(&threads[i], NULL, pinned, (void *)i) == 0, "a thread starts");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	puts("kept");
}

static void *live_briefly(void *unused)
{
	for (int i = 0; i < 300; i++)
		section();
	return unused;
}

static void come_and_go(void)
{
	for (int generation = 0; generation < 60; generation++) {
		for (int i = 0; i < THREADS; i++)
			expect(thread_create(&threads[i], NULL, live_briefly, NULL) == 0,
			       "a thread starts");
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
	}
	expect(raw_count(0) == all, "the first thread has the user's mask");
	puts("all came and went");
}

static void contend_for_a_second(void)
{
	start(0);
	nanosleep(&(struct timespec){ 1, 0 }, NULL);
	finish(0);
	puts("done");
}

static void forbid(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof filter / sizeof *filter, .filter = filter };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
		printf("cannot install a filter: %s\n", strerror(errno));
		exit(4);
	}
	self[1] = self[0];
	execv(self[0], self + 1);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	self = argv;
	all = raw_count(0);
	snprintf(count_text, sizeof count_text, "%d", all);
	if (!strcmp(mode, "mask") && argc > 2) {
		all = atoi(argv[2]);
		report("program");
		return 0;
	}
	if (!strcmp(mode, "masks"))
		masks();
	else if (!strcmp(mode, "children"))
		children();
	else if (!strcmp(mode, "exec")) {
		pthread_t thread;
		start(1);
		thread_create(&thread, NULL, execute_program, NULL);
		pthread_join(thread, NULL);
		return 7;
	} else if (!strcmp(mode, "own"))
		own();
	else if (!strcmp(mode, "pinned"))
		all_pinned();
	else if (!strcmp(mode, "come-and-go"))
		come_and_go();
	else if (!strcmp(mode, "contend"))
		contend_for_a_second();
	else if (!strcmp(mode, "forbid") && argc > 2)
		forbid();
	else
		return 2;
	return 0;
}
