/* Edge cases of a process: limits, frequent signals, threads unknown to libc, children created
 * during contention, the ways to end. Few threads contend, and only briefly: strictly ordered locks
 * need a time slice per hand-over. */
#include "check.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t shelf = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static long counter;
static atomic_long attempts;
static atomic_bool stop;

/* ---- a crowd that contends until it is stopped ----------------------------------------------- */

enum { CROWD = 3 };

static long op_contend(void *ignored)
{
	(void)ignored;
	long errors = 0, mine = 0;
	while (!atomic_load(&stop)) {
		errors |= CALL(pthread_mutex_lock(&busy));
		counter++;
		mine++;
		if (mine % 4 == 0) {
			struct timespec soon = after_ms(CLOCK_MONOTONIC, 1);
			long code = CALL(pthread_cond_clockwait(&news, &busy, CLOCK_MONOTONIC,
								&soon));
			errors |= code == ETIMEDOUT ? 0 : code;
		}
		errors |= CALL(pthread_mutex_unlock(&busy));
		errors |= CALL(mine % 8 ? pthread_rwlock_rdlock(&shelf)
					: pthread_rwlock_wrlock(&shelf));
		errors |= CALL(pthread_rwlock_unlock(&shelf));
		errors |= CALL(pthread_cond_signal(&news));
	}
	atomic_fetch_add(&attempts, mine);
	return errors;
}

static void crowd_start(struct puppet p[CROWD])
{
	atomic_store(&stop, false);
	atomic_store(&attempts, 0);
	counter = 0;
	for (int i = 0; i < CROWD; i++) {
		puppet_start(&p[i]);
		puppet_send(&p[i], op_contend, NULL);
	}
}

/* Returns the errors of all calls, as codes and as changes of errno, or else the number of lost
 * counts. */
static long crowd_stop(struct puppet p[CROWD])
{
	long errors = 0;
	atomic_store(&stop, true);
	for (int i = 0; i < CROWD; i++) {
		/* Nothing in the crowd may change errno; its own clock reads do not. */
		errors |= puppet_result(&p[i]);
		puppet_end(&p[i]);
	}
	return errors ? errors : counter - atomic_load(&attempts);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* glibc counts the levels in 32 bits, at an offset that is part of its ABI. Four billion locks
 * would take too long, so the test sets the count. */
static void recursion_limit(void)
{
	pthread_mutex_t m = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	struct timespec later = after_ms(CLOCK_REALTIME, LATER_MS);
	pthread_mutex_lock(&m);
	unsigned first = m.__data.__count;
	m.__data.__count = UINT_MAX - 1;
	CHECK(0, pthread_mutex_lock(&m), "limit.recursive mutex has one level left");
	CHECK(EAGAIN, pthread_mutex_lock(&m), "limit.recursive mutex, lock");
	CHECK(EAGAIN, pthread_mutex_trylock(&m), "limit.recursive mutex, trylock");
	CHECK(EAGAIN, pthread_mutex_timedlock(&m, &later), "limit.recursive mutex, timedlock");
	CHECK(EAGAIN, pthread_mutex_clocklock(&m, CLOCK_REALTIME, &later),
	      "limit.recursive mutex, clocklock");
	CHECK(0, pthread_mutex_unlock(&m), "limit.recursive mutex unlocks one level");
	CHECK(0, pthread_mutex_trylock(&m), "limit.recursive mutex has a level again");
	m.__data.__count = first;
	CHECK_VALUE(EBUSY, in_thread(op_trylock, &m),
		    "limit.recursive mutex is held by its last level");
	CHECK(0, pthread_mutex_unlock(&m), "limit.recursive mutex unlocks");
	CHECK_VALUE(0, in_thread(op_trylock_unlock, &m), "limit.recursive mutex is free");
}

/* A deadline that no clock reaches must act as no deadline. */
struct far {
	pthread_mutex_t mutex;
	pthread_rwlock_t rwlock;
	pthread_cond_t cond;
	struct timespec deadline;
	bool released;
};

static long op_far_mutex(void *f)
{
	struct far *x = f;
	int error = pthread_mutex_timedlock(&x->mutex, &x->deadline);
	return error ? error : pthread_mutex_unlock(&x->mutex);
}

static long op_far_rwlock(void *f)
{
	struct far *x = f;
	int error = pthread_rwlock_clockrdlock(&x->rwlock, CLOCK_MONOTONIC, &x->deadline);
	return error ? error : pthread_rwlock_unlock(&x->rwlock);
}

static long op_far_cond(void *f)
{
	struct far *x = f;
	int error = pthread_mutex_lock(&x->mutex);
	while (!x->released && !error)
		error = pthread_cond_timedwait(&x->cond, &x->mutex, &x->deadline);
	return error | pthread_mutex_unlock(&x->mutex);
}

static void far_deadlines(void)
{
	static const struct { const char *name; time_t seconds; } FAR[] = {
		{ "year 2200", 7258118400 },
		/* Beyond the range of 64-bit nanoseconds, signed and unsigned. */
		{ "year 2300", 10413792000 },
		{ "year 2600", 19880899200 },
		{ "end of time", LONG_MAX },
	};
	struct puppet a, b;
	puppet_start(&a);
	puppet_start(&b);
	for (size_t i = 0; i < LENGTH(FAR); i++) {
		struct far x = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER,
				PTHREAD_COND_INITIALIZER,
				 { FAR[i].seconds, 999999999 }, false };
		pthread_mutex_lock(&x.mutex);
		pthread_rwlock_wrlock(&x.rwlock);
		puppet_send(&a, op_far_mutex, &x);
		puppet_send(&b, op_far_rwlock, &x);
		CHECK_VALUE(true, puppet_blocked(&a), "deadline.%s: mutex waits", FAR[i].name);
		CHECK_VALUE(true, puppet_blocked(&b), "deadline.%s: rwlock waits", FAR[i].name);
		pthread_mutex_unlock(&x.mutex);
		pthread_rwlock_unlock(&x.rwlock);
		CHECK_VALUE(0, puppet_result(&a), "deadline.%s: mutex", FAR[i].name);
		CHECK_VALUE(0, puppet_result(&b), "deadline.%s: rwlock", FAR[i].name);
		puppet_send(&a, op_far_cond, &x);
		CHECK_VALUE(true, puppet_blocked(&a), "deadline.%s: condition waits", FAR[i].name);
		pthread_mutex_lock(&x.mutex);
		x.released = true;
		pthread_cond_signal(&x.cond);
		pthread_mutex_unlock(&x.mutex);
		CHECK_VALUE(0, puppet_result(&a), "deadline.%s: condition", FAR[i].name);
	}
	puppet_end(&a);
	puppet_end(&b);
}

/* ---- signals --------------------------------------------------------------------------------- */

static atomic_long handled;

static void on_signal(int sig)
{
	(void)sig;
	atomic_fetch_add(&handled, 1);
}

/* The profiling timer, and signals to every waiter: no call may return EINTR, change errno or lose
 * its place. */
static void storm(int flags, const char *how)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { { 0, 0 }, { 0, 0 } };
	struct puppet p[CROWD];
	sigaction(SIGPROF, &action, NULL);
	sigaction(SIGUSR1, &action, NULL);
	atomic_store(&handled, 0);
	crowd_start(p);
	check_begin("signal.storm during contention %s", how);
	setitimer(ITIMER_PROF, &often, NULL);
	for (int i = 0; i < 60; i++) {
		struct timespec pause = { 0, 500000 };
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		pthread_kill(p[i % CROWD].thread, SIGUSR1);
	}
	setitimer(ITIMER_PROF, &never, NULL);
	check_end(crowd_stop(p), 0);
	CHECK_VALUE(true, atomic_load(&handled) > 0, "signal.handlers ran in the storm %s", how);
	signal(SIGPROF, SIG_DFL);
}

/* ---- threads unknown to libc ----------------------------------------------------------------- */

/* A thread made by a bare clone, with its creator's thread pointer, as small runtimes make them.
 * With glibc it may use locks that do not record an owner. Its creator only waits meanwhile,
 * because the two share errno. */
static atomic_int bare_tid;
static atomic_long bare_errors;

static int bare_main(void *ignored)
{
	(void)ignored;
	long errors = 0;
	for (int i = 0; i < 100; i++) {
		errors |= pthread_mutex_lock(&busy);
		counter++;
		errors |= pthread_mutex_unlock(&busy);
		errors |= pthread_rwlock_rdlock(&shelf);
		errors |= pthread_rwlock_unlock(&shelf);
		errors |= pthread_cond_broadcast(&news);
	}
	atomic_fetch_add(&attempts, 100);
	atomic_store(&bare_errors, errors);
	return 0;
}

static void bare_threads(void)
{
	const size_t size = 65536;
	char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
			  CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	struct puppet p[CROWD];
	long errors = 0;
	crowd_start(p);
	check_begin("thread.a bare clone contends");
	for (int i = 0; i < 3; i++) {
		if (CHILD_BY("clone", clone(bare_main, stack + size, flags, NULL, &bare_tid, NULL,
					    &bare_tid)) < 0)
			errors |= errno;
		while (atomic_load(&bare_tid))
			syscall(SYS_sched_yield);
		errors |= atomic_load(&bare_errors);
	}
	check_end(errors, 0);
	CHECK_VALUE(0, crowd_stop(p), "thread.a bare clone loses no counts");
	munmap(stack, size);
}

/* A holder is cancelled while others wait: its clean-up handler unlocks for them. */
static atomic_int holding;

static void unlock_busy(void *ignored)
{
	(void)ignored;
	pthread_mutex_unlock(&busy);
}

static void *hold_until_cancelled(void *ignored)
{
	(void)ignored;
	pthread_mutex_lock(&busy);
	pthread_cleanup_push(unlock_busy, NULL);
	atomic_store(&holding, 1);
	for (;;)
		pause();
	pthread_cleanup_pop(0);
	return NULL;
}

static void holder_cancelled(void)
{
	struct puppet a, b;
	pthread_t holder;
	void *result = NULL;
	puppet_start(&a);
	puppet_start(&b);
	thread_create(&holder, NULL, hold_until_cancelled, NULL);
	while (!atomic_load(&holding))
		sleep_ms(1);
	puppet_send(&a, op_lock_unlock, &busy);
	puppet_send(&b, op_lock_unlock, &busy);
	CHECK_VALUE(true, puppet_blocked(&a) && puppet_blocked(&b),
		    "thread.two wait for a holder that is cancelled");
	check_begin("thread.cancelled holder ends");
	pthread_cancel(holder);
	pthread_join(holder, &result);
	check_end(result == PTHREAD_CANCELED, true);
	CHECK_VALUE(0, puppet_result(&a) | puppet_result(&b),
		    "thread.its clean-up handler unlocks for them");
	puppet_end(&a);
	puppet_end(&b);
}

/* ---- children created during contention ------------------------------------------------------ */

static long child_of_contention(void *ignored)
{
	(void)ignored;
	/* The forking thread holds the mutex, whichever threads waited for it in the parent. The
	 * other locks are reinitialised: glibc's own may wait for threads that do not exist in the
	 * child. */
	static const pthread_rwlock_t new_shelf = PTHREAD_RWLOCK_INITIALIZER;
	static const pthread_cond_t no_news = PTHREAD_COND_INITIALIZER;
	shelf = new_shelf;
	news = no_news;
	if (pthread_mutex_unlock(&busy) != 0)
		return 101;
	struct puppet p[CROWD];
	crowd_start(p);
	sleep_ms(3);
	return crowd_stop(p) == 0 ? 0 : 102;
}

/* The fork finds other threads at any step of a lock call. The child holds the lock, and its own
 * threads contend for it. */
static void forks_in_contention(void)
{
	struct puppet p[CROWD];
	long errors = 0;
	int killed = 0;
	crowd_start(p);
	check_begin("fork.child uses the lock that the parent's threads wait for");
	for (int i = 0; i < 12; i++) {
		pthread_mutex_lock(&busy);
		for (volatile int k = 0; k < i * 997; k++)
			;
		long result = in_child(child_of_contention, NULL);
		killed += result < 0;
		errors |= result;
		pthread_mutex_unlock(&busy);
	}
	check_end(killed ? -1 : errors, 0);
	CHECK_VALUE(0, crowd_stop(p), "fork.parent's threads continue");
}

/* posix_spawn and vfork share the parent's memory, and with it the locks. */
static void spawns_in_contention(void)
{
	char *const arguments[] = { "/bin/sh", "-c", "cat; exit 5", NULL };
	struct puppet p[CROWD];
	posix_spawn_file_actions_t actions;
	int in[2], out[2], status = -1;
	pid_t child = -1;
	char got[8] = "";
	crowd_start(p);
	check_begin("spawn.posix_spawn with file actions during contention");
	int error = pipe(in) | pipe(out);
	error |= posix_spawn_file_actions_init(&actions);
	error |= posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
	error |= posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
	error |= posix_spawn_file_actions_addclose(&actions, in[1]);
	error |= posix_spawn_file_actions_addclose(&actions, out[0]);
	error |= child_spawn(&child, arguments[0], &actions, arguments);
	error |= write(in[1], "hello", 5) != 5;
	close(in[1]);
	close(out[1]);
	error |= read(out[0], got, sizeof got - 1) != 5;
	status = await_child(child);
	check_end(error ? -1 : WEXITSTATUS(status), 5);
	CHECK_VALUE(0, strcmp(got, "hello"), "spawn.the program gets the descriptors");
	close(in[0]);
	close(out[0]);
	posix_spawn_file_actions_destroy(&actions);

	static char *const true_arguments[] = { "/bin/true", NULL };
	static int error_of_child;
	check_begin("spawn.vfork child locks, then executes another program");
	pid_t other = CHILD_BY("vfork", vfork());
	if (other == 0) {
		error_of_child = pthread_mutex_lock(&busy);
		error_of_child |= pthread_mutex_unlock(&busy);
		execv(true_arguments[0], true_arguments);
		_exit(127);
	}
	status = await_child(other);
	check_end(error_of_child ? error_of_child : status, 0);
	CHECK_VALUE(0, crowd_stop(p), "spawn.contention continues");
}

/* ---- what a daemon does to its process ------------------------------------------------------- */

static void descriptors_closed(void)
{
	struct puppet p[CROWD];
	crowd_start(p);
	sleep_ms(30);
	/* glibc has the function since 2.34, and SYS_close_range since 2.32. */
	CHECK_VALUE(0, syscall(__NR_close_range, 3, ~0U, 0),
		    "process.all descriptors closed during contention");
	sleep_ms(30);
	/* Programs rely on getting the lowest free descriptor. */
	CHECK_VALUE(3, open("/dev/null", O_RDONLY), "process.next descriptor");
	CHECK_VALUE(0, close(3), "process.it was open");
	CHECK_VALUE(0, crowd_stop(p), "process.contention continues");
}

/* ---- the end of the process ------------------------------------------------------------------ */

static struct puppet last_crowd[CROWD];

/* A child's wait status: the signal that killed it, or its exit status. */
static int status_of(void (*run)(void))
{
	fflush(stdout);
	pid_t child = child_create();
	if (child == 0) {
		struct rlimit none = { 0, 0 };
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setrlimit(RLIMIT_CORE, &none);
		crowd_start(last_crowd);
		sleep_ms(15);
		run();
		_exit(99);
	}
	return await_child(child);
}

static void end_exec(void) { execl("/bin/sh", "sh", "-c", "exit 21", (char *)NULL); }
static void end_underscore(void) { _exit(22); }
static void end_quick(void) { quick_exit(23); }
static void end_plain(void) { exit(24); }

static void *exec_thread(void *ignored)
{
	(void)ignored;
	end_exec();
	return NULL;
}

static void end_exec_in_thread(void)
{
	pthread_t t;
	thread_create(&t, NULL, exec_thread, NULL);
	pthread_join(t, NULL);
}

static void *stop_later(void *ignored)
{
	(void)ignored;
	sleep_ms(15);
	atomic_store(&stop, true);
	for (int i = 0; i < CROWD; i++)
		puppet_end(&last_crowd[i]);
	return NULL;
}

/* The initial thread ends first; the process ends, with 0, when the last thread does. A thread of
 * the library must not keep it alive. */
static void end_with_the_last_thread(void)
{
	pthread_t t;
	thread_create(&t, NULL, stop_later, NULL);
	pthread_exit(NULL);
}

static void at_quick_exit_lock(void)
{
	pthread_mutex_lock(&busy);
	pthread_mutex_unlock(&busy);
}

static void ends(void)
{
	at_quick_exit(at_quick_exit_lock);
	CHECK_VALUE(W_EXITCODE(21, 0), status_of(end_exec), "end.exec during contention");
	CHECK_VALUE(W_EXITCODE(21, 0), status_of(end_exec_in_thread),
		    "end.exec by a thread during contention");
	CHECK_VALUE(W_EXITCODE(22, 0), status_of(end_underscore), "end._exit during contention");
	CHECK_VALUE(W_EXITCODE(23, 0), status_of(end_quick),
		    "end.quick_exit during contention, with a handler that locks");
	CHECK_VALUE(W_EXITCODE(24, 0), status_of(end_plain), "end.exit during contention");
	CHECK_VALUE(SIGABRT, status_of(abort), "end.abort during contention");
	CHECK_VALUE(0, status_of(end_with_the_last_thread),
		    "end.of the last thread, after the initial thread");
}

/* ---- conditions: destroyed as early as allowed ----------------------------------------------- */

struct single {
	pthread_mutex_t mutex;
	pthread_cond_t *cond;
	bool waiting, released;
};

static long op_wait_single(void *s)
{
	struct single *x = s;
	int error = pthread_mutex_lock(&x->mutex);
	x->waiting = true;
	while (!x->released)
		error |= pthread_cond_wait(x->cond, &x->mutex);
	return error | pthread_mutex_unlock(&x->mutex);
}

/* A signal to the only waiter is as good as a broadcast: no thread is blocked after it. */
static void destroyed_after_signal(void)
{
	struct puppet waiter;
	long errors = 0;
	puppet_start(&waiter);
	check_begin("cond.destroyed and unmapped right after the signal to its only waiter");
	for (int i = 0; i < 100; i++) {
		struct single x = { .mutex = PTHREAD_MUTEX_INITIALIZER };
		x.cond = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			      0);
		pthread_cond_init(x.cond, NULL);
		puppet_send(&waiter, op_wait_single, &x);
		for (bool listed = false; !listed; sched_yield()) {
			pthread_mutex_lock(&x.mutex);
			listed = x.waiting;
			if (listed) {
				x.released = true;
				if (i % 2)
					errors |= pthread_cond_signal(x.cond);
			}
			pthread_mutex_unlock(&x.mutex);
		}
		if (i % 2 == 0)
			errors |= pthread_cond_signal(x.cond);
		errors |= pthread_cond_destroy(x.cond);
		munmap(x.cond, 4096);
		errors |= puppet_result(&waiter) % ERRNO_CHANGED;
	}
	check_end(errors, 0);
	puppet_end(&waiter);
}

/* ---- C11 locks beside ------------------------------------------------------------------------ */

static mtx_t c11_mutex;
static cnd_t c11_cond;
static long c11_counter;

static long op_c11(void *rounds)
{
	long errors = 0;
	for (int i = 0; i < *(int *)rounds; i++) {
		errors |= mtx_lock(&c11_mutex) != thrd_success;
		c11_counter++;
		struct timespec soon = after_ms(CLOCK_REALTIME, 1);
		if (i % 50 == 0) {
			int code = cnd_timedwait(&c11_cond, &c11_mutex, &soon);
			errors |= code != thrd_success && code != thrd_timedout;
		}
		errors |= mtx_unlock(&c11_mutex) != thrd_success;
		errors |= cnd_signal(&c11_cond) != thrd_success;
	}
	return errors;
}

static void c11_beside(void)
{
	struct puppet p[CROWD], c[2];
	int rounds = 500;
	long errors = 0;
	mtx_init(&c11_mutex, mtx_timed);
	cnd_init(&c11_cond);
	crowd_start(p);
	check_begin("c11.locks beside contention for the library's");
	for (int i = 0; i < 2; i++) {
		puppet_start(&c[i]);
		puppet_send(&c[i], op_c11, &rounds);
	}
	for (int i = 0; i < 2; i++) {
		errors |= puppet_result(&c[i]) % ERRNO_CHANGED;
		puppet_end(&c[i]);
	}
	check_end(errors ? -1 : c11_counter, 2 * rounds);
	CHECK_VALUE(0, crowd_stop(p), "c11.no counts of the library's locks are lost");
	cnd_destroy(&c11_cond);
	mtx_destroy(&c11_mutex);
}

int main(void)
{
	check_start();
	recursion_limit();
	far_deadlines();
	storm(0, "without SA_RESTART");
	storm(SA_RESTART, "with SA_RESTART");
	bare_threads();
	holder_cancelled();
	forks_in_contention();
	spawns_in_contention();
	descriptors_closed();
	ends();
	destroyed_after_signal();
	c11_beside();
	return check_finish();
}
