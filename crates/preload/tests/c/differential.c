/* Executes calls on behalf of the differential test (differential/): reads one command per line,
 * hands it to a thread, and reports what the call returned.
 *
 * A command is `THREAD OPERATION A B C`, in numbers except for the operation, a letter. Thread 0 is
 * the one that reads commands; it also creates, cancels, signals and joins the others. A report is
 * `THREAD CODE` in two 32-bit numbers; a code of BEGUN precedes every call of threads 1 and up.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "room.h"

enum {
	THREADS = 5,
	MUTEXES = 4,
	CONDS = 2,
	RWLOCKS = 2,
	SPINS = 1,
	REPORTS = 1,
	BEGUN = -1,
	CANCELLED = -2,
	/* A new thread reports this, less its number in the kernel. */
	STARTED = -1000,
};

struct command {
	char operation;
	int a, b, c;
};

struct report {
	int32_t thread, code;
};

static pthread_mutex_t mutexes[MUTEXES];
static pthread_cond_t conds[CONDS];
static pthread_rwlock_t rwlocks[RWLOCKS];
static pthread_spinlock_t spins[SPINS];

/* Whether trylock claims to acquire a mutex that is held: a fault for the test to find. */
static int has_fault;

static pthread_t threads[THREADS + 1];
static int inboxes[THREADS + 1][2];

static void report(int thread, int code)
{
	struct report r = { thread, code };
	if (write(REPORTS, &r, sizeof r) != sizeof r)
		_exit(2);
}

__attribute__((noreturn)) static void broken(const char *what, int code)
{
	fprintf(stderr, "differential: %s: %s\n", what, strerror(code));
	_exit(2);
}

#define MUST(call)                             \
	do {                                   \
		int code_ = (call);            \
		if (code_ != 0)                \
			broken(#call, code_);  \
	} while (0)

/* ---- kinds (model.rs has the same bits) ------------------------------------------------------ */

static int init_mutex(pthread_mutex_t *mutex, int kind, int is_static)
{
	static const pthread_mutex_t INITIALIZERS[] = {
		PTHREAD_MUTEX_INITIALIZER,
		PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
		PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
		PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
	};
	static const int TYPES[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE,
				     PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP };
	if (is_static) {
		memcpy(mutex, &INITIALIZERS[kind & 3], sizeof *mutex);
		return 0;
	}
	pthread_mutexattr_t attr;
	MUST(pthread_mutexattr_init(&attr));
	MUST(pthread_mutexattr_settype(&attr, TYPES[kind & 3]));
	MUST(pthread_mutexattr_setrobust(&attr, kind & 4 ? PTHREAD_MUTEX_ROBUST
							 : PTHREAD_MUTEX_STALLED));
	MUST(pthread_mutexattr_setpshared(&attr, kind & 8 ? PTHREAD_PROCESS_SHARED
							  : PTHREAD_PROCESS_PRIVATE));
	MUST(pthread_mutexattr_setprotocol(&attr,
					   kind & 16 ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE));
	int code = pthread_mutex_init(mutex, &attr);
	MUST(pthread_mutexattr_destroy(&attr));
	return code;
}

static int init_cond(pthread_cond_t *cond, int kind)
{
	pthread_condattr_t attr;
	MUST(pthread_condattr_init(&attr));
	MUST(pthread_condattr_setclock(&attr, kind & 1 ? CLOCK_MONOTONIC : CLOCK_REALTIME));
	MUST(pthread_condattr_setpshared(&attr, kind & 2 ? PTHREAD_PROCESS_SHARED
							 : PTHREAD_PROCESS_PRIVATE));
	int code = pthread_cond_init(cond, &attr);
	MUST(pthread_condattr_destroy(&attr));
	return code;
}

static int init_rwlock(pthread_rwlock_t *lock, int kind)
{
	static const int PREFERENCES[] = { PTHREAD_RWLOCK_PREFER_READER_NP,
					   PTHREAD_RWLOCK_PREFER_WRITER_NP,
					   PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP };
	pthread_rwlockattr_t attr;
	MUST(pthread_rwlockattr_init(&attr));
	MUST(pthread_rwlockattr_setkind_np(&attr, PREFERENCES[kind & 3]));
	MUST(pthread_rwlockattr_setpshared(&attr, kind & 8 ? PTHREAD_PROCESS_SHARED
							   : PTHREAD_PROCESS_PRIVATE));
	int code = pthread_rwlock_init(lock, &attr);
	MUST(pthread_rwlockattr_destroy(&attr));
	return code;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static struct timespec in(clockid_t clock, int milliseconds)
{
	struct timespec t;
	clock_gettime(clock, &t);
	long long ns = t.tv_nsec + milliseconds * 1000000LL;
	t.tv_sec += (time_t)(ns / 1000000000);
	t.tv_nsec = (long)(ns % 1000000000);
	if (t.tv_nsec < 0) {
		t.tv_nsec += 1000000000;
		t.tv_sec--;
	}
	return t;
}

/* The ways to give a deadline: a function of an absolute real time, and two clocks. */
#define TIMED(function, clocked, object, milliseconds, how)                          \
	__extension__({                                                              \
		clockid_t clock_ = (how) == 1 ? CLOCK_MONOTONIC : CLOCK_REALTIME;    \
		struct timespec t_ = in(clock_, milliseconds);                       \
		(how) == 0 ? function(object, &t_) : clocked(object, clock_, &t_);   \
	})

static void unlock_after_cancel(void *mutex)
{
	int code = pthread_mutex_unlock(mutex);
	/* A robust mutex that cannot be recovered is not held. */
	if (code && code != EPERM)
		broken("pthread_mutex_unlock", code);
}

static int wait_on(int cond, int mutex, int timed, int milliseconds)
{
	int code, old;
	pthread_cleanup_push(unlock_after_cancel, &mutexes[mutex]);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
	if (!timed) {
		code = pthread_cond_wait(&conds[cond], &mutexes[mutex]);
	} else {
		struct timespec t = in(CLOCK_MONOTONIC, milliseconds);
		code = pthread_cond_clockwait(&conds[cond], &mutexes[mutex], CLOCK_MONOTONIC, &t);
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	pthread_cleanup_pop(0);
	return code;
}

/* What a child does with one object, by the parent's state of it (subject.rs). */
enum { SKIP, FREE, HELD, BUSY };

#define CHECK(condition)                  \
	do {                              \
		if (!(condition))         \
			_exit(__LINE__ % 200 + 1); \
	} while (0)

static void use_in_child(int states)
{
	for (int i = 0; i < MUTEXES; i++, states /= 4) {
		pthread_mutex_t *mutex = &mutexes[i];
		int state = states % 4;
		if (state == BUSY)
			CHECK(pthread_mutex_trylock(mutex) == EBUSY);
		if (state == HELD)
			CHECK(pthread_mutex_unlock(mutex) == 0);
		if (state == HELD || state == FREE) {
			CHECK(pthread_mutex_lock(mutex) == 0);
			CHECK(pthread_mutex_unlock(mutex) == 0);
		}
	}
	for (int i = 0; i < RWLOCKS; i++, states /= 4) {
		if (states % 4 != FREE)
			continue;
		CHECK(pthread_rwlock_wrlock(&rwlocks[i]) == 0);
		CHECK(pthread_rwlock_unlock(&rwlocks[i]) == 0);
		CHECK(pthread_rwlock_rdlock(&rwlocks[i]) == 0);
		CHECK(pthread_rwlock_unlock(&rwlocks[i]) == 0);
	}
}

static int fork_and_use(int states, int spawns)
{
	char *const arguments[] = { "/bin/true", NULL };
	pid_t child;
	if (spawns) {
		MUST(child_spawn(&child, arguments[0], NULL, arguments));
	} else {
		child = child_create();
		if (child < 0)
			broken("fork", errno);
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			alarm(20);
			use_in_child(states);
			_exit(0);
		}
	}
	int status;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			broken("waitpid", errno);
	return status;
}

static int call(const struct command *it)
{
	int a = it->a, b = it->b, c = it->c, code;
	switch (it->operation) {
	case 'l': return pthread_mutex_lock(&mutexes[a]);
	case 't':
		code = pthread_mutex_trylock(&mutexes[a]);
		return has_fault && code == EBUSY ? 0 : code;
	case 'T': return TIMED(pthread_mutex_timedlock, pthread_mutex_clocklock, &mutexes[a], b, c);
	case 'u': return pthread_mutex_unlock(&mutexes[a]);
	case 'c': return pthread_mutex_consistent(&mutexes[a]);
	case 'i':
		code = pthread_mutex_destroy(&mutexes[a]);
		return code ? code : init_mutex(&mutexes[a], b, c);
	case 'w': return wait_on(a, b, 0, 0);
	case 'W': return wait_on(a, b, 1, c);
	case 's': return pthread_cond_signal(&conds[a]);
	case 'b': return pthread_cond_broadcast(&conds[a]);
	case 'I':
		code = pthread_cond_destroy(&conds[a]);
		return code ? code : init_cond(&conds[a], b);
	case 'r': return pthread_rwlock_rdlock(&rwlocks[a]);
	case 'R': return pthread_rwlock_tryrdlock(&rwlocks[a]);
	case 'q':
		return TIMED(pthread_rwlock_timedrdlock, pthread_rwlock_clockrdlock, &rwlocks[a], b,
			     c);
	case 'x': return pthread_rwlock_wrlock(&rwlocks[a]);
	case 'X': return pthread_rwlock_trywrlock(&rwlocks[a]);
	case 'y':
		return TIMED(pthread_rwlock_timedwrlock, pthread_rwlock_clockwrlock, &rwlocks[a], b,
			     c);
	case 'U': return pthread_rwlock_unlock(&rwlocks[a]);
	case 'k':
		code = pthread_rwlock_destroy(&rwlocks[a]);
		return code ? code : init_rwlock(&rwlocks[a], b);
	case 'p': return pthread_spin_lock(&spins[a]);
	case 'P': return pthread_spin_trylock(&spins[a]);
	case 'o': return pthread_spin_unlock(&spins[a]);
	case 'f': return fork_and_use(a, b);
	case 'e': pthread_exit(NULL);
	default: broken("unknown operation", 0);
	}
}

/* ---- threads --------------------------------------------------------------------------------- */

static void report_cancellation(void *thread) { report((int)(intptr_t)thread, CANCELLED); }

static void *run(void *argument)
{
	int thread = (int)(intptr_t)argument, old;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	report(thread, STARTED - (int)syscall(SYS_gettid));
	struct command command;
	for (;;) {
		ssize_t length = read(inboxes[thread][0], &command, sizeof command);
		if (length < 0 && errno == EINTR)
			continue;
		if (length != sizeof command)
			return NULL;
		report(thread, BEGUN);
		int code;
		/* An exit is reported by the main thread, after the join. */
		if (command.operation == 'e') {
			call(&command);
			return NULL;
		}
		pthread_cleanup_push(report_cancellation, argument);
		code = call(&command);
		pthread_cleanup_pop(0);
		report(thread, code);
	}
}

static void start(int thread)
{
	MUST(thread_create(&threads[thread], NULL, run, (void *)(intptr_t)thread));
}

static void on_signal(int signal) { (void)signal; }

int main(int argc, char **argv)
{
	has_fault = argc > 1 && strcmp(argv[1], "--fault") == 0;
	struct sigaction action = { .sa_handler = on_signal };
	sigaction(SIGUSR1, &action, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < SPINS; i++)
		MUST(pthread_spin_init(&spins[i], PTHREAD_PROCESS_PRIVATE));
	for (int i = 1; i <= THREADS; i++) {
		if (pipe(inboxes[i]) != 0)
			broken("pipe", errno);
		start(i);
	}
	int thread;
	struct command command;
	while (scanf("%d %c %d %d %d", &thread, &command.operation, &command.a, &command.b,
		     &command.c) == 5) {
		int target = command.a;
		switch (command.operation) {
		case 'C': report(0, pthread_cancel(threads[target])); continue;
		case 'K': report(0, pthread_kill(threads[target], SIGUSR1)); continue;
		case 'j':
			MUST(pthread_join(threads[target], NULL));
			start(target);
			report(0, 0);
			continue;
		}
		if (write(inboxes[thread][1], &command, sizeof command) != sizeof command)
			broken("write", errno);
		if (command.operation == 'e') {
			MUST(pthread_join(threads[thread], NULL));
			start(thread);
			report(thread, 0);
		}
	}
	_exit(0);
}
