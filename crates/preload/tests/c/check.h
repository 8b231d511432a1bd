/* Shared by the conformance programs: checks with a watchdog, puppet threads, deadlines.
 *
 * Each check prints one line, in an order that does not depend on the scheduler, so that the
 * outputs of a run without the library and of a run with it can be compared line by line. This
 * header uses only semaphores, signals and clocks, no lock under test. So a broken lock fails its
 * own check and not the harness. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hang.h"
#include "room.h"

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

/* ---- checks ---------------------------------------------------------------------------------- */

/* The watchdog ends hangs. It does not time checks, which other processes may delay arbitrarily. So
 * it uses two clocks. A check that spins without end uses up processor time, which grows only while
 * this process runs. A check that sleeps without end uses none; its limit is wall-clock time,
 * longer than a child waits for room (room.h). */
#ifndef WATCHDOG_SECONDS
#define WATCHDOG_SECONDS 120
#define WATCHDOG_CPU_SECONDS 10 /* per processor */
#endif
/* Later than the watchdog: the deadline of a wait that must not time out. */
#define LATER_MS 90000
/* A value that no function sets: shows whether a call wrote errno. */
#define ERRNO_MARK 7777
/* Added to the result of a call that changed errno, so that the check fails and says why. */
#define ERRNO_CHANGED 100000

static char check_name[160] = "(start)";
static int check_count, check_failures;
static timer_t check_timer;
static bool check_has_timer;

static inline void check_hangs(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	hang(check_name, info->si_code == SI_TIMER ? "used up its processor time"
						   : "did not finish in time");
}

/* Restarts the watchdog's limits. */
static inline void check_watch(void)
{
	struct itimerspec limit = {
		.it_value.tv_sec = WATCHDOG_CPU_SECONDS * sysconf(_SC_NPROCESSORS_ONLN),
	};
	alarm(WATCHDOG_SECONDS);
	if (check_has_timer)
		timer_settime(check_timer, 0, &limit, NULL);
}

static inline void check_unwatch(void)
{
	struct itimerspec never = { .it_value.tv_sec = 0 };
	alarm(0);
	if (check_has_timer)
		timer_settime(check_timer, 0, &never, NULL);
}

static inline const char *check_code(long value, char *buffer, size_t size)
{
	const char *name = NULL;
	switch (value % ERRNO_CHANGED) {
	case EPERM: name = "EPERM"; break;
	case EINTR: name = "EINTR"; break;
	case EAGAIN: name = "EAGAIN"; break;
	case EBUSY: name = "EBUSY"; break;
	case EINVAL: name = "EINVAL"; break;
	case EDEADLK: name = "EDEADLK"; break;
	case ENOTSUP: name = "ENOTSUP"; break;
	case ETIMEDOUT: name = "ETIMEDOUT"; break;
	case EOWNERDEAD: name = "EOWNERDEAD"; break;
	case ENOTRECOVERABLE: name = "ENOTRECOVERABLE"; break;
	}
	const char *suffix = value >= ERRNO_CHANGED ? ", and errno changed" : "";
	if (name)
		snprintf(buffer, size, "%ld (%s)%s", value % ERRNO_CHANGED, name, suffix);
	else
		snprintf(buffer, size, "%ld%s", value % ERRNO_CHANGED, suffix);
	return buffer;
}

__attribute__((format(printf, 1, 2))) static inline void check_begin(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(check_name, sizeof check_name, format, args);
	va_end(args);
	check_watch();
}

static inline void check_end(long got, long expected)
{
	char a[64], b[64];
	check_count++;
	if (got == expected) {
		printf("ok %s\n", check_name);
	} else {
		check_failures++;
		printf("not ok %s: got %s, expected %s\n", check_name,
		       check_code(got, a, sizeof a), check_code(expected, b, sizeof b));
	}
	/* The watchdog also covers the set-up before the next check. */
	check_watch();
}

/* For results that depend on the machine (privilege, kernel). The value becomes part of the line,
 * and comparing the two runs is the check. */
static inline void check_record(long got)
{
	char a[64];
	check_count++;
	printf("ok %s = %s\n", check_name, check_code(got, a, sizeof a));
	check_watch();
}

/* The result of one call, which must leave errno unchanged. */
#define CALL(expression)                                                          \
	__extension__({                                                           \
		errno = ERRNO_MARK;                                               \
		long call_ = (long)(expression);                                  \
		errno == ERRNO_MARK ? call_ : call_ + ERRNO_CHANGED;              \
	})

/* CHECK(expected, expression, printf-style name): the expression is one lock function. */
#define CHECK(expected, expression, ...)                  \
	do {                                              \
		check_begin(__VA_ARGS__);                 \
		long got_ = CALL(expression);             \
		check_end(got_, expected);                \
	} while (0)

/* Like CHECK, for an expression that may change errno (sleeps, system calls). */
#define CHECK_VALUE(expected, expression, ...)            \
	do {                                              \
		check_begin(__VA_ARGS__);                 \
		long got_ = (long)(expression);           \
		check_end(got_, expected);                \
	} while (0)

#define RECORD(expression, ...)                           \
	do {                                              \
		check_begin(__VA_ARGS__);                 \
		long got_ = CALL(expression);             \
		check_record(got_);                       \
	} while (0)

static inline void check_start(void)
{
	struct sigaction action = { .sa_sigaction = check_hangs, .sa_flags = SA_SIGINFO };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	sigaction(SIGALRM, &action, NULL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	check_has_timer = timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &check_timer) == 0;
	room_stops_alarm = true;
	check_watch();
}

static inline int check_finish(void)
{
	check_unwatch();
	printf("%d checks, %d failed\n", check_count, check_failures);
	return check_failures ? 1 : 0;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Long enough for another thread to reach its next call. A check that requires the thread to have
 * reached it polls instead. So on a slow machine a check becomes weaker, but never wrong. */
#define SETTLE_MS 5

static inline void sleep_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

static inline struct timespec after_ms(clockid_t clock, long ms)
{
	struct timespec t;
	clock_gettime(clock, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

/* Whether `deadline` has passed on `clock`: a wait must never time out early. */
static inline bool reached(clockid_t clock, struct timespec deadline)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec > deadline.tv_sec ||
	       (t.tv_sec == deadline.tv_sec && t.tv_nsec >= deadline.tv_nsec);
}

/* Loops under contention end after a number of rounds or this long, whichever comes first: a lock
 * with strict hand-over needs a time slice per round if threads outnumber processors. */
#define ROUNDS_MS 250

/* Invalid deadlines, and deadlines in the past. */
static const struct timespec NSEC_TOO_BIG = { 1, 1000000000 };
static const struct timespec NSEC_NEGATIVE = { 1, -1 };
static const struct timespec LONG_AGO = { 1, 0 };
static const struct timespec SEC_NEGATIVE = { -1, 0 };

/* ---- puppets: threads that make one call at a time, on command ------------------------------- */

struct puppet {
	pthread_t thread;
	sem_t go, done;
	long (*act)(void *);
	void *argument;
	long result;
	atomic_int tid;
	atomic_bool begun; /* whether the thread is about to make the call */
};

static inline void puppet_wait_sem(sem_t *sem)
{
	while (sem_wait(sem) != 0)
		;
}

static inline void *puppet_main(void *self)
{
	struct puppet *p = self;
	atomic_store(&p->tid, gettid());
	for (;;) {
		puppet_wait_sem(&p->go);
		if (!p->act)
			return NULL;
		atomic_store(&p->begun, true);
		p->result = CALL(p->act(p->argument));
		sem_post(&p->done);
	}
}

static inline void puppet_start(struct puppet *p)
{
	memset(p, 0, sizeof *p);
	sem_init(&p->go, 0, 0);
	sem_init(&p->done, 0, 0);
	int error = thread_create(&p->thread, NULL, puppet_main, p);
	if (error) {
		fprintf(stderr, "pthread_create: %s\n", strerror(error));
		exit(2);
	}
}

/* Starts a call without waiting for its end. */
static inline void puppet_send(struct puppet *p, long (*act)(void *), void *argument)
{
	p->act = act;
	p->argument = argument;
	atomic_store(&p->begun, false);
	sem_post(&p->go);
}

static inline long puppet_result(struct puppet *p)
{
	puppet_wait_sem(&p->done);
	return p->result;
}

static inline long puppet_call(struct puppet *p, long (*act)(void *), void *argument)
{
	puppet_send(p, act, argument);
	return puppet_result(p);
}

/* Whether the current call still blocks, after enough time to reach its wait. A thread may need
 * some time slices to begin the call. */
static inline bool puppet_blocked(struct puppet *p)
{
	while (!atomic_load(&p->begun))
		sleep_ms(1);
	sleep_ms(SETTLE_MS);
	int done = 0;
	sem_getvalue(&p->done, &done);
	return done == 0;
}

static inline void puppet_end(struct puppet *p)
{
	p->act = NULL;
	sem_post(&p->go);
	pthread_join(p->thread, NULL);
}

/* Waits until the kernel reports that thread `tid` sleeps, or gives up after a while, since a lock
 * may wait without sleeping. Used where behaviour is defined only once a wait has begun. */
static inline void until_asleep(int tid)
{
	char path[64], text[256];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	for (int i = 0, asleep = 0; i < 100 && asleep < 3; i++) {
		FILE *f = fopen(path, "r");
		char *end = f && fgets(text, sizeof text, f) ? strrchr(text, ')') : NULL;
		asleep = end && end[2] == 'S' ? asleep + 1 : 0;
		if (f)
			fclose(f);
		sleep_ms(2);
	}
}

/* One call in a new thread, which has ended when this returns. */
struct once {
	long (*act)(void *);
	void *argument;
	long result;
};

static inline void *once_main(void *self)
{
	struct once *o = self;
	o->result = CALL(o->act(o->argument));
	return NULL;
}

static inline long in_thread(long (*act)(void *), void *argument)
{
	struct once o = { act, argument, -1 };
	pthread_t thread;
	if (thread_create(&thread, NULL, once_main, &o) != 0)
		return -2;
	pthread_join(thread, NULL);
	return o.result;
}

/* One call in a forked child; the result must fit an exit status. -1 if the child was killed. */
static inline long in_child(long (*act)(void *), void *argument)
{
	fflush(stdout);
	pid_t child = child_create();
	if (child == 0) {
		/* A hanging child must not outlive the check that waits for it. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit((int)act(argument));
	}
	int status = await_child(child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Memory shared with forked children. */
static inline void *shared_memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return p;
}

/* ---- one-argument forms of lock calls, for puppets ------------------------------------------- */

static inline long op_lock(void *m) { return pthread_mutex_lock(m); }
static inline long op_trylock(void *m) { return pthread_mutex_trylock(m); }
static inline long op_unlock(void *m) { return pthread_mutex_unlock(m); }
static inline long op_lock_unlock(void *m)
{
	int error = pthread_mutex_lock(m);
	return error ? error : pthread_mutex_unlock(m);
}
static inline long op_trylock_unlock(void *m)
{
	int error = pthread_mutex_trylock(m);
	return error ? error : pthread_mutex_unlock(m);
}

static inline long op_rdlock(void *l) { return pthread_rwlock_rdlock(l); }
static inline long op_tryrdlock(void *l) { return pthread_rwlock_tryrdlock(l); }
static inline long op_wrlock(void *l) { return pthread_rwlock_wrlock(l); }
static inline long op_trywrlock(void *l) { return pthread_rwlock_trywrlock(l); }
static inline long op_rwunlock(void *l) { return pthread_rwlock_unlock(l); }
static inline long op_read_once(void *l)
{
	int error = pthread_rwlock_rdlock(l);
	return error ? error : pthread_rwlock_unlock(l);
}
static inline long op_write_once(void *l)
{
	int error = pthread_rwlock_wrlock(l);
	return error ? error : pthread_rwlock_unlock(l);
}

#endif
