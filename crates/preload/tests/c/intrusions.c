/* What the library must leave alone in a process: descriptors, signals, errno, its parent's memory.
 *
 *   errno          prints errno at the start of main
 *   data DIR       makes DIR its root, opens DIR/data as descriptor 2, and contends between two
 *                  lines
 *   clone          a child by a bare clone installs a filter that kills for close_range, and
 *                  contends
 *   vfork          a child by vfork says that it will install a filter; then the parent contends
 *   address        locks through the address of pthread_mutex_lock in a constant
 *
 * Exits with 4 if the machine does not support the case. */
#define _GNU_SOURCE
#include "abort.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, HELD_US = 300, LONG_US = 200000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int is_over;

static double now_us(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

static void *wait_for_mutex(void *ignored)
{
	while (!atomic_load(&is_over)) {
		pthread_mutex_lock(&mutex);
		for (double end = now_us() + HELD_US; now_us() < end;)
			;
		pthread_mutex_unlock(&mutex);
	}
	return ignored;
}

/* Long enough for waits that start a controller. */
static void contend(void)
{
	pthread_t threads[THREADS];
	atomic_store(&is_over, 0);
	for (int index = 0; index < THREADS; index++)
		CHECK(pthread_create(&threads[index], NULL, wait_for_mutex, NULL) == 0);
	usleep(LONG_US);
	atomic_store(&is_over, 1);
	for (int index = 0; index < THREADS; index++)
		CHECK(pthread_join(threads[index], NULL) == 0);
}

static int status_of(pid_t child)
{
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int data(const char *directory)
{
	static const char lines[2][8] = { "first\n", "second\n" };
	if (chroot(directory) != 0 || chdir("/") != 0)
		return 4;
	for (int descriptor = 0; descriptor < 3; descriptor++)
		close(descriptor);
	for (int descriptor = 0; descriptor < 3; descriptor++)
		if (open("data", O_RDWR | O_CREAT, 0600) != descriptor)
			return 1;
	ssize_t written = write(2, lines[0], strlen(lines[0]));
	contend();
	written += write(2, lines[1], strlen(lines[1]));
	return written != 13;
}

static void confined_child(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
		_exit(4);
	contend();
	_exit(0);
}

static int forked_by_clone(void)
{
	contend();
	pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (child == 0)
		confined_child();
	return status_of(child);
}

static int forked_by_vfork(void)
{
	pid_t child = vfork();
	if (child == 0) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	int status = status_of(child);
	contend();
	return status;
}

struct functions {
	int (*lock)(pthread_mutex_t *);
	int (*unlock)(pthread_mutex_t *);
};

static int by_address(void)
{
	static const struct functions table = { pthread_mutex_lock, pthread_mutex_unlock };
	const struct functions *volatile functions = &table;
	for (int turn = 0; turn < 10; turn++)
		CHECK(functions->lock(&mutex) == 0 && functions->unlock(&mutex) == 0);
	return 0;
}

int main(int count, char **arguments)
{
	int before = errno;
	const char *name = count > 1 ? arguments[1] : "";
	if (strcmp(name, "errno") == 0)
		return printf("errno %d\n", before) < 0;
	if (strcmp(name, "data") == 0 && count > 2)
		return data(arguments[2]);
	if (strcmp(name, "clone") == 0)
		return forked_by_clone();
	if (strcmp(name, "vfork") == 0)
		return forked_by_vfork();
	if (strcmp(name, "address") == 0)
		return by_address();
	return 2;
}
