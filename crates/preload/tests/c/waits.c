/* Waits on condition variables that poll, and waits that must not poll.
 *
 *   silent-signals   signals to a waiter that has just begun to wait: counts those without a call
 *                    of futex
 *   free-mutex       a signal without the mutex: the waiter's unlock makes no call of futex
 *   cancelled        cancellation of a thread whose waits are all short
 *   timed-out        time-outs of some microseconds, after short waits
 *   long-waits       processor time of threads whose waits are long
 *   failed-calls     a futex call that wakes or requeues a sleeping thread fails
 *   real-time        a waiter times out while it has preempted a signaller of lower priority
 *   real-time-writer a release wakes a writer, and a reader that may not pass it
 *   place            a thread that waits for a mutex until a time on the realtime clock keeps its
 *                    place in the queue for longer than a second
 *   timed-turns        a thread whose timed locks follow each other leaves another one its turn
 */
#include "check.h"

#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>

/* ---- calls of futex by one thread ----------------------------------------------------------- */

/* Marks the handler's own calls, in an argument that neither a wake-up nor a requeueing reads. */
enum { COUNTED = 0x5ca1ab1e };

/* No operation. */
enum { NONE = -1 };

static atomic_int futex_calls;
/* The next call with this operation fails. */
static atomic_int failing_operation = NONE;

static void on_futex(int sig, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	int saved = errno, operation = registers[REG_RSI] & FUTEX_CMD_MASK;
	(void)sig;
	(void)info;
	atomic_fetch_add(&futex_calls, 1);
	if (atomic_compare_exchange_strong(&failing_operation, &operation, NONE)) {
		registers[REG_RAX] = -EINTR;
		return;
	}
	long result = syscall(SYS_futex, registers[REG_RDI], registers[REG_RSI],
			      registers[REG_RDX], registers[REG_R10], registers[REG_R8], COUNTED);
	registers[REG_RAX] = result < 0 ? -errno : result;
	errno = saved;
}

/* Counts the wake-ups and requeueings of the calling thread from now on. */
static bool count_futex_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		/* Calls other than futex go to the last line. */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, COUNTED, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = LENGTH(filter), .filter = filter };
	struct sigaction action = { .sa_sigaction = on_futex, .sa_flags = SA_SIGINFO };
	sigaction(SIGSYS, &action, NULL);
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

/* ---- one waiter, one signaller -------------------------------------------------------------- */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	/* The mutex protects these fields, except where a check reads them from outside. */
	atomic_int waits, tokens, taken;
	atomic_bool end;
} desk = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, false };

static void *take_tokens(void *ignored)
{
	pthread_mutex_lock(&desk.mutex);
	while (!atomic_load(&desk.end)) {
		atomic_fetch_add(&desk.waits, 1);
		while (atomic_load(&desk.tokens) == 0)
			pthread_cond_wait(&desk.cond, &desk.mutex);
		atomic_fetch_sub(&desk.tokens, 1);
		atomic_fetch_add(&desk.taken, 1);
	}
	pthread_mutex_unlock(&desk.mutex);
	return ignored;
}

static void lock_desk(void)
{
	while (pthread_mutex_trylock(&desk.mutex) != 0)
		sched_yield();
}

enum { SIGNALS = 4000 };

static void silent_signals(void)
{
	pthread_t waiter;
	int silent = 0;
	thread_create(&waiter, NULL, take_tokens, NULL);
	if (!count_futex_calls()) {
		printf("skipped: no filter can be installed\n");
		exit(0);
	}
	for (int i = 1; i <= SIGNALS; i++) {
		check_begin("signal %d", i);
		while (atomic_load(&desk.waits) < i)
			sched_yield();
		lock_desk();
		/* This thread has the mutex, so the waiter is in its wait. */
		atomic_store(&desk.end, i == SIGNALS);
		atomic_fetch_add(&desk.tokens, 1);
		int before = atomic_load(&futex_calls);
		pthread_cond_signal(&desk.cond);
		silent += atomic_load(&futex_calls) == before;
		pthread_mutex_unlock(&desk.mutex);
	}
	pthread_join(waiter, NULL);
	check_begin("all signals arrive");
	check_end(atomic_load(&desk.taken), SIGNALS);
	printf("silent %d of %d\n", silent, SIGNALS);
}

/* ---- free-mutex ----------------------------------------------------------------------------- */

static void *wait_and_count(void *result)
{
	pthread_mutex_lock(&desk.mutex);
	atomic_fetch_add(&desk.waits, 1);
	while (atomic_load(&desk.tokens) == 0)
		pthread_cond_wait(&desk.cond, &desk.mutex);
	atomic_fetch_sub(&desk.tokens, 1);
	atomic_store(&futex_calls, 0);
	bool counts = count_futex_calls();
	pthread_mutex_unlock(&desk.mutex);
	*(int *)result = counts ? atomic_load(&futex_calls) : 0;
	return NULL;
}

static void free_mutex(void)
{
	for (int i = 0; i < 20; i++) {
		pthread_t waiter;
		int calls = -1;
		atomic_store(&desk.waits, 0);
		thread_create(&waiter, NULL, wait_and_count, &calls);
		while (atomic_load(&desk.waits) == 0)
			sched_yield();
		sleep_ms(5);
		lock_desk();
		atomic_fetch_add(&desk.tokens, 1);
		pthread_mutex_unlock(&desk.mutex);
		pthread_cond_signal(&desk.cond);
		pthread_join(waiter, NULL);
		CHECK_VALUE(0, calls, "futex calls by the unlock after a signal without the mutex");
	}
}

/* ---- cancelled ------------------------------------------------------------------------------ */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t cond[2];
	int turn;
	atomic_long trips;
	atomic_bool end;
	int unlocked;
} court;

static void leave_court(void *ignored)
{
	(void)ignored;
	court.unlocked = pthread_mutex_unlock(&court.mutex);
}

static void *play_for_ever(void *ignored)
{
	pthread_mutex_lock(&court.mutex);
	pthread_cleanup_push(leave_court, NULL);
	for (;;) {
		while (court.turn != 1)
			pthread_cond_wait(&court.cond[1], &court.mutex);
		court.turn = 0;
		atomic_fetch_add(&court.trips, 1);
		pthread_cond_signal(&court.cond[0]);
	}
	pthread_cleanup_pop(1);
	return ignored;
}

static void *play_until_end(void *ignored)
{
	pthread_mutex_lock(&court.mutex);
	while (!atomic_load(&court.end)) {
		/* The other thread may have ended, on its turn or not. */
		struct timespec t = after_ms(CLOCK_REALTIME, 20);
		court.turn = 1;
		pthread_cond_signal(&court.cond[1]);
		while (court.turn != 0)
			if (pthread_cond_timedwait(&court.cond[0], &court.mutex, &t) != 0)
				break;
	}
	pthread_mutex_unlock(&court.mutex);
	return ignored;
}

static void cancelled(void)
{
	for (int i = 0; i < 200; i++) {
		pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
		pthread_t victim, partner;
		void *result = NULL;
		court.mutex = errorcheck;
		court.turn = 0;
		court.unlocked = -1;
		atomic_store(&court.trips, 0);
		atomic_store(&court.end, false);
		pthread_cond_init(&court.cond[0], NULL);
		pthread_cond_init(&court.cond[1], NULL);
		thread_create(&victim, NULL, play_for_ever, NULL);
		thread_create(&partner, NULL, play_until_end, NULL);
		check_begin("cancellation %d of a thread whose waits are short", i);
		while (atomic_load(&court.trips) < 1 + i * 10)
			sched_yield();
		pthread_cancel(victim);
		pthread_join(victim, &result);
		atomic_store(&court.end, true);
		pthread_join(partner, NULL);
		check_end(result == PTHREAD_CANCELED, true);
		CHECK_VALUE(0, court.unlocked, "its clean-up handler held the mutex");
		CHECK(0, pthread_cond_destroy(&court.cond[1]), "its condition variable is unused");
	}
}

/* ---- timed-out ------------------------------------------------------------------------------ */

static void timed_out(void)
{
	static const struct { const char *name; clockid_t clock; } CLOCKS[] = {
		{ "realtime", CLOCK_REALTIME }, { "monotonic", CLOCK_MONOTONIC },
	};
	pthread_t waiter;
	thread_create(&waiter, NULL, take_tokens, NULL);
	for (int i = 1; i <= 1000; i++) {
		while (atomic_load(&desk.waits) < i)
			sched_yield();
		lock_desk();
		atomic_store(&desk.end, i == 1000);
		atomic_fetch_add(&desk.tokens, 1);
		pthread_cond_signal(&desk.cond);
		pthread_mutex_unlock(&desk.mutex);
	}
	pthread_join(waiter, NULL);
	for (size_t c = 0; c < LENGTH(CLOCKS); c++) {
		long early = 0, others = 0;
		check_begin("time-outs of 0 to 60 us, %s", CLOCKS[c].name);
		pthread_mutex_lock(&desk.mutex);
		for (int i = 0; i < 600; i++) {
			struct timespec t = after_ms(CLOCKS[c].clock, 0);
			t.tv_nsec += i % 61 * 1000;
			t.tv_sec += t.tv_nsec / 1000000000;
			t.tv_nsec %= 1000000000;
			others += pthread_cond_clockwait(&desk.cond, &desk.mutex, CLOCKS[c].clock,
							 &t) != ETIMEDOUT;
			early += !reached(CLOCKS[c].clock, t);
		}
		pthread_mutex_unlock(&desk.mutex);
		check_end(others, 0);
		CHECK_VALUE(0, early, "none is early, %s", CLOCKS[c].name);
	}
	CHECK(0, pthread_cond_destroy(&desk.cond), "no waiter is left");
}

/* ---- long-waits ----------------------------------------------------------------------------- */

enum { POOL = 8, TASKS = 400 };

static double seconds(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void long_waits(void)
{
	pthread_t pool[POOL];
	double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
	for (int i = 0; i < POOL; i++)
		thread_create(&pool[i], NULL, take_tokens, NULL);
	for (int i = 0; i < TASKS; i++) {
		sleep_ms(2);
		pthread_mutex_lock(&desk.mutex);
		atomic_fetch_add(&desk.tokens, 1);
		pthread_cond_signal(&desk.cond);
		pthread_mutex_unlock(&desk.mutex);
	}
	wall = seconds(CLOCK_MONOTONIC) - wall;
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	pthread_mutex_lock(&desk.mutex);
	atomic_store(&desk.end, true);
	atomic_fetch_add(&desk.tokens, POOL);
	pthread_cond_broadcast(&desk.cond);
	pthread_mutex_unlock(&desk.mutex);
	for (int i = 0; i < POOL; i++)
		pthread_join(pool[i], NULL);
	/* One thread that polled all the time would take all of one processor. */
	printf("processor time %.4f of %.4f s: %s\n", cpu, wall,
	       cpu < wall / 4 ? "idle" : "busy");
}

/* ---- failed-calls --------------------------------------------------------------------------- */

static long take_token(void *ignored)
{
	(void)ignored;
	pthread_mutex_lock(&desk.mutex);
	while (atomic_load(&desk.tokens) == 0)
		pthread_cond_wait(&desk.cond, &desk.mutex);
	atomic_fetch_sub(&desk.tokens, 1);
	return pthread_mutex_unlock(&desk.mutex);
}

enum { TRIES = 20 };

/* A sleeper's call returns, although the call of futex that ends its sleep fails. The calling
 * thread holds the mutex of the desk from `begin` to `end`. If the sleeper was not asleep in time,
 * no call was made, and all is tried again. */
static void check_failure(struct puppet *sleeper, int operation, long (*act)(void *),
			  void (*begin)(void), void (*end)(void))
{
	long result;
	int tries = 0;
	bool was_made;
	check_begin("a futex call with operation %d fails", operation);
	do {
		pthread_mutex_lock(&desk.mutex);
		puppet_send(sleeper, act, &desk.mutex);
		begin();
		until_asleep(sleeper->tid);
		atomic_store(&failing_operation, operation);
		end();
		result = puppet_result(sleeper);
		was_made = atomic_exchange(&failing_operation, NONE) == NONE;
	} while (!was_made && ++tries < TRIES);
	check_end(result, 0);
	CHECK_VALUE(true, was_made, "the call was made");
}

static void keep_mutex(void)
{
}

static void leave_mutex(void)
{
	pthread_mutex_unlock(&desk.mutex);
}

static void signal_with_mutex(void)
{
	lock_desk();
	atomic_store(&desk.tokens, 1);
	pthread_cond_signal(&desk.cond);
	pthread_mutex_unlock(&desk.mutex);
}

static void signal_with_free_mutex(void)
{
	lock_desk();
	atomic_store(&desk.tokens, 1);
	pthread_mutex_unlock(&desk.mutex);
	pthread_cond_signal(&desk.cond);
}

static void failed_calls(void)
{
	struct puppet sleeper;
	puppet_start(&sleeper);
	if (!count_futex_calls()) {
		printf("skipped: no filter can be installed\n");
		exit(0);
	}
	check_failure(&sleeper, FUTEX_WAKE, op_lock_unlock, keep_mutex, leave_mutex);
	check_failure(&sleeper, FUTEX_WAKE, take_token, leave_mutex, signal_with_free_mutex);
	check_failure(&sleeper, FUTEX_REQUEUE, take_token, leave_mutex, signal_with_mutex);
	puppet_end(&sleeper);
}

/* ---- real-time ------------------------------------------------------------------------------- */

static atomic_bool signals_over;

static void *signal_until_over(void *cond)
{
	while (!atomic_load(&signals_over))
		pthread_cond_signal(cond);
	return NULL;
}

/* Whether a timed wait takes a tenth of a second of processor time. The kernel stops a thread that
 * only yields, and so keeps the processor from threads of lower priority, after .95 s. */
static bool has_long_wait(pthread_cond_t *cond)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	bool found = false;
	for (int i = 0; i < 30000 && !found; i++) {
		struct timespec limit = after_ms(CLOCK_THREAD_CPUTIME_ID, 100);
		struct timespec deadline = after_ms(CLOCK_MONOTONIC, 0);
		deadline.tv_nsec += i % 300 * 100;
		deadline.tv_sec += deadline.tv_nsec / 1000000000;
		deadline.tv_nsec %= 1000000000;
		pthread_mutex_lock(&mutex);
		pthread_cond_clockwait(cond, &mutex, CLOCK_MONOTONIC, &deadline);
		pthread_mutex_unlock(&mutex);
		found = reached(CLOCK_THREAD_CPUTIME_ID, limit);
	}
	return found;
}

/* Some of the waits end between the two steps of a signal, and wait for its second step. */
static void real_time(void)
{
	pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
	struct sched_param usual = { 0 };
	struct sched_param high = { .sched_priority = sched_get_priority_min(SCHED_FIFO) };
	pthread_t signaller;
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	thread_create(&signaller, NULL, signal_until_over, &cond);
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &high) == 0) {
		bool found = has_long_wait(&cond);
		pthread_setschedparam(pthread_self(), SCHED_OTHER, &usual);
		CHECK_VALUE(true, !found, "no wait keeps the processor from the signaller");
	} else {
		printf("skipped: no real-time priority may be set\n");
	}
	atomic_store(&signals_over, true);
	pthread_join(signaller, NULL);
}

/* ---- real-time-writer ------------------------------------------------------------------------ */

static pthread_rwlock_t written;

static void *visit_as(void *priority)
{
	struct sched_param high = { .sched_priority = *(int *)priority };
	bool is_writer = high.sched_priority > 1;
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &high);
	is_writer ? pthread_rwlock_wrlock(&written) : pthread_rwlock_rdlock(&written);
	pthread_rwlock_unlock(&written);
	return NULL;
}

/* On one processor, a reader that may not pass the writer wakes up before a release is over. The
 * kernel stops a thread that only yields after .95 s. */
static void real_time_writer(void)
{
	pthread_t waiters[2];
	int priorities[2] = { 2, 1 };
	struct sched_param high = { .sched_priority = 1 };
	pthread_rwlockattr_t attr;
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	if (sched_setscheduler(0, SCHED_FIFO, &high) != 0) {
		printf("skipped: no real-time priority may be set\n");
		return;
	}
	high.sched_priority = 0;
	sched_setscheduler(0, SCHED_OTHER, &high);
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&written, &attr);
	pthread_rwlock_wrlock(&written);
	for (int i = 0; i < 2; i++) {
		thread_create(&waiters[i], NULL, visit_as, &priorities[i]);
		sleep_ms(50);
	}
	struct timespec limit = after_ms(CLOCK_MONOTONIC, 500);
	pthread_rwlock_unlock(&written);
	for (int i = 0; i < 2; i++)
		pthread_join(waiters[i], NULL);
	CHECK_VALUE(true, !reached(CLOCK_MONOTONIC, limit), "the writer gets the processor");
}

static pthread_mutex_t queued = PTHREAD_MUTEX_INITIALIZER;
static int served[2], served_count;

static void *wait_until(void *number)
{
	struct timespec deadline = after_ms(CLOCK_REALTIME, 60000);
	if (pthread_mutex_timedlock(&queued, &deadline) == 0) {
		served[served_count++] = *(int *)number;
		pthread_mutex_unlock(&queued);
	}
	return NULL;
}

static void place(void)
{
	pthread_t waiters[2];
	int numbers[2] = { 1, 2 };
	pthread_mutex_lock(&queued);
	for (int i = 0; i < 2; i++) {
		thread_create(&waiters[i], NULL, wait_until, &numbers[i]);
		sleep_ms(700);
	}
	pthread_mutex_unlock(&queued);
	for (int i = 0; i < 2; i++)
		pthread_join(waiters[i], NULL);
	CHECK_VALUE(true, served[0] == 1 && served[1] == 2, "the first waiter is served first");
}

static atomic_bool turns_over;

static void *take_turns(void *ignored)
{
	while (!atomic_load(&turns_over)) {
		const struct timespec deadline = after_ms(CLOCK_REALTIME, 10000);
		pthread_mutex_timedlock(&queued, &deadline);
		const struct timespec end = after_ms(CLOCK_MONOTONIC, 3);
		while (!reached(CLOCK_MONOTONIC, end))
			;
		pthread_mutex_unlock(&queued);
	}
	return ignored;
}

static void timed_turns(void)
{
	pthread_t other;
	bool is_late = false;
	thread_create(&other, NULL, take_turns, NULL);
	sleep_ms(50);
	for (int i = 0; i < 5; i++) {
		const struct timespec limit = after_ms(CLOCK_MONOTONIC, 300);
		pthread_mutex_lock(&queued);
		is_late |= reached(CLOCK_MONOTONIC, limit);
		pthread_mutex_unlock(&queued);
		sleep_ms(20);
	}
	atomic_store(&turns_over, true);
	pthread_join(other, NULL);
	/* About 15 ms; more if other processes hold the processors. */
	CHECK_VALUE(false, is_late, "a wait takes 300 ms");
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(void); } MODES[] = {
		{ "silent-signals", silent_signals }, { "free-mutex", free_mutex },
		{ "cancelled", cancelled }, { "timed-out", timed_out },
		{ "long-waits", long_waits }, { "failed-calls", failed_calls },
		{ "real-time", real_time }, { "real-time-writer", real_time_writer },
		{ "place", place },
		{ "timed-turns", timed_turns },
	};
	check_start();
	for (size_t i = 0; i < LENGTH(MODES); i++) {
		if (argc > 1 && strcmp(argv[1], MODES[i].name) == 0) {
			MODES[i].run();
			return check_finish();
		}
	}
	return 2;
}
