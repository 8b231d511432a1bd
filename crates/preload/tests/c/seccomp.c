/* Contention under a seccomp filter, as programs install on themselves after start-up.
 *
 *   errno           calls off the list fail with EPERM
 *   strict          calls off the list kill the process
 *   sandbox         like a browser's renderer: file calls fail with EPERM; other calls off the list
 *                   raise SIGSYS, and its handler ends the process
 *   no-close-range  file calls are on the list too, except a system call of 2020; calls off the
 *                   list kill the process
 *
 * With a second argument "late", the filter is installed after a period of contention, and on all
 * threads at once (SECCOMP_FILTER_FLAG_TSYNC), including any that the program did not start.
 *
 * With a second argument PATH, a thread waits for a lock, which makes the library create the file
 * PATH.PID, and the filter is installed once that file exists.
 *
 * The list has the calls that glibc makes for a program with threads and pthread locks. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "room.h"

static const int THREADS_LIST[] = {
	__NR_futex, __NR_exit, __NR_exit_group, __NR_mmap, __NR_munmap, __NR_mprotect, __NR_mremap,
	__NR_madvise, __NR_brk, __NR_set_robust_list, __NR_rseq, __NR_rt_sigaction,
	__NR_rt_sigprocmask, __NR_rt_sigreturn, __NR_sched_yield, __NR_gettid, __NR_getpid,
	__NR_nanosleep, __NR_clock_nanosleep, __NR_clock_gettime, __NR_restart_syscall,
	__NR_getrandom, __NR_read, __NR_write,
};

static const int FILES_LIST[] = {
	__NR_openat, __NR_close, __NR_fstat, __NR_newfstatat, __NR_lseek, __NR_pread64,
	__NR_getdents64, __NR_faccessat, __NR_sched_getaffinity,
#ifdef __NR_access
	__NR_access, __NR_open, __NR_stat, __NR_readlink,
#endif
	__NR_readlinkat, __NR_statx,
};

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))
/* The flags that pthread_create passes to clone. clone3 has its flags in memory, where a filter
 * cannot read them. */
#define THREAD_FLAGS                                                                   \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | \
	 CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

static struct sock_filter filter[2 * (LENGTH(THREADS_LIST) + LENGTH(FILES_LIST)) + 16];
static unsigned short filter_length;

static void add(struct sock_filter instruction)
{
	if (filter_length == LENGTH(filter))
		abort();
	filter[filter_length++] = instruction;
}

static void add_answer(int number, unsigned answer)
{
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1));
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer));
}

static void build(unsigned files, unsigned rest)
{
	add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					 offsetof(struct seccomp_data, nr)));
	for (size_t i = 0; i < LENGTH(THREADS_LIST); i++)
		add_answer(THREADS_LIST[i], SECCOMP_RET_ALLOW);
	for (size_t i = 0; i < LENGTH(FILES_LIST); i++)
		add_answer(FILES_LIST[i], files);
	add_answer(__NR_clone3, SECCOMP_RET_ERRNO | ENOSYS);
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone, 0, 4));
	add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					 offsetof(struct seccomp_data, args[0])));
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THREAD_FLAGS, 0, 1));
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, rest));
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, rest));
}

static void on_trap(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	char line[] = "system call 000 is not on the list\n";
	for (int number = info->si_syscall, place = 14; place > 11; number /= 10)
		line[place--] = (char)('0' + number % 10);
	ssize_t ignored = write(STDERR_FILENO, line, sizeof line - 1);
	(void)ignored;
	_exit(9);
}

static void confine(const char *mode)
{
	if (strcmp(mode, "errno") == 0)
		build(SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ERRNO | EPERM);
	else if (strcmp(mode, "strict") == 0)
		build(SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_PROCESS);
	else if (strcmp(mode, "sandbox") == 0)
		build(SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_TRAP);
	else if (strcmp(mode, "no-close-range") == 0)
		build(SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
	else
		exit(2);
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	sigaction(SIGSYS, &action, NULL);
	struct sock_fprog program = { .len = filter_length, .filter = filter };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
		    &program) != 0) {
		printf("cannot install a filter: %s\n", strerror(errno));
		exit(4);
	}
}

enum { WORKERS = 8, ROUNDS = 400 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long counted, written, arrived;
static atomic_int errors;

/* Work, with an occasional sleep while the lock is held, for long waits. */
static void hold(int round)
{
	struct timespec nap = { 0, 200000 };
	if (round % 16 == 0)
		nanosleep(&nap, NULL);
	for (volatile int i = 0; i < 500; i++)
		;
}

static void *work(void *ignored)
{
	(void)ignored;
	int failed = 0;
	for (int round = 0; round < ROUNDS; round++) {
		failed |= pthread_mutex_lock(&mutex);
		hold(round);
		counted++;
		failed |= pthread_mutex_unlock(&mutex);
		failed |= pthread_mutex_lock(&recursive);
		failed |= pthread_mutex_lock(&recursive);
		failed |= pthread_mutex_unlock(&recursive);
		failed |= pthread_mutex_unlock(&recursive);
		failed |= round % 4 ? pthread_rwlock_rdlock(&rwlock)
				    : pthread_rwlock_wrlock(&rwlock);
		written += round % 4 == 0;
		failed |= pthread_rwlock_unlock(&rwlock);
	}
	failed |= pthread_mutex_lock(&mutex);
	if (++arrived % WORKERS == 0)
		failed |= pthread_cond_broadcast(&cond);
	for (long all = (arrived + WORKERS - 1) / WORKERS * WORKERS; arrived < all;)
		failed |= pthread_cond_wait(&cond, &mutex);
	failed |= pthread_mutex_unlock(&mutex);
	if (failed)
		atomic_fetch_add(&errors, 1);
	return NULL;
}

static void contend(void)
{
	pthread_t threads[WORKERS];
	for (int i = 0; i < WORKERS; i++)
		if (thread_create(&threads[i], NULL, work, NULL) != 0) {
			printf("cannot create a thread\n");
			exit(5);
		}
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	printf("counted %ld, wrote %ld, %d errors\n", counted, written, atomic_load(&errors));
}

static void *wait_for_mutex(void *ignored)
{
	(void)ignored;
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static void begin_wait(const char *path)
{
	char file[4096];
	pthread_t thread;
	snprintf(file, sizeof file, "%s.%d", path, getpid());
	pthread_mutex_lock(&mutex);
	if (thread_create(&thread, NULL, wait_for_mutex, NULL) != 0)
		exit(5);
	while (access(file, F_OK) != 0)
		;
	pthread_mutex_unlock(&mutex);
}

int main(int argc, char **argv)
{
	/* stdio must allocate its buffer and query its file before the filter is installed. */
	static char buffer[4096];
	setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
	if (argc < 2)
		return 2;
	printf("%s\n", argv[1]);
	if (argc > 2 && strcmp(argv[2], "late") == 0)
		contend();
	else if (argc > 2)
		begin_wait(argv[2]);
	confine(argv[1]);
	contend();
	contend();
	return 0;
}
