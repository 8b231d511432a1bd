/* Former differences from glibc, one case per mode, named after what broke:
 *
 *   ended-owner            a thread ends with locks held; another gets its control block's address
 *   past-deadline          cancellation is pending when a wait with a past deadline starts
 *   cancelled-waiter       a condition is destroyed after a broadcast, while a waiter is cancelled
 *   destroy-waits          a condition is destroyed during a wait that will time out
 *   second-mutex           a condition is destroyed after signals to waiters with different mutexes
 *   asynchronous           a timed wait is cancelled asynchronously, then its stack is unmapped
 *   constructor OBJECT     dlopen of OBJECT, see constructor.c
 *   no-memory              first contention when no memory can be mapped
 *   no-threads             first contention when no thread can be started
 *   private-block          contention by a bare clone with its own control block
 *   vfork                  a vfork child is the first thread to wait long
 *   setuid                 the process drops its user id during contention
 *   other-forks            children by _Fork and by the bare system call
 *   early-handler          fork handlers registered before the library's
 *   unlock-free            unlock of a normal mutex that is not held
 *   reader-limit           glibc's maximum number of readers, and one more
 *   inherited-condition    a forked child uses a condition that the parent's threads wait on
 *   new-condition          a fork during the first use of a condition in the parent
 *   condition-in-shared-memory  a private mutex, and signals from another process
 *   condition-of-libc      a wait with a process-shared mutex, then waits with a private one
 *   fork-in-handler        a signal handler forks during a wait; the child uses the condition
 *   fork-while-polling     the same, at the beginning of a wait without a deadline
 *   released-reader        a writer unmaps a reader-writer lock as soon as its last reader lets it
 *   idle-waiters           threads of the policy SCHED_IDLE contend first
 *   namespace              a new user namespace, right after contention
 */
#include "check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static long counter;
static atomic_long attempts, errno_changes, held_up_ns;
static atomic_bool stop, go = true;

enum { CROWD = 6 };

/* How long the calling thread was runnable without a processor, because of other processes; 0 if
 * the kernel does not record it. */
static long held_up(void)
{
	char text[100];
	long ran = 0, waited = 0;
	sscanf(room_read("/proc/thread-self/schedstat", text, sizeof text), "%ld %ld", &ran,
	       &waited);
	return waited;
}

static void *contend(void *ignored)
{
	(void)ignored;
	while (!atomic_load(&go))
		sleep_ms(1);
	errno = ERRNO_MARK;
	while (!atomic_load(&stop)) {
		pthread_mutex_lock(&busy);
		counter++;
		for (volatile int i = 0; i < 300; i++)
			;
		pthread_mutex_unlock(&busy);
		atomic_fetch_add(&attempts, 1);
		if (errno != ERRNO_MARK)
			atomic_fetch_add(&errno_changes, 1);
		errno = ERRNO_MARK;
	}
	atomic_fetch_add(&held_up_ns, held_up());
	return NULL;
}

static pthread_t crowd[CROWD];

static int crowd_start(void)
{
	int errors = 0;
	atomic_store(&stop, false);
	counter = 0;
	atomic_store(&attempts, 0);
	for (int i = 0; i < CROWD; i++)
		errors |= thread_create(&crowd[i], NULL, contend, NULL);
	return errors;
}

/* Returns the number of lost counts. */
static long crowd_stop(void)
{
	atomic_store(&stop, true);
	for (int i = 0; i < CROWD; i++)
		pthread_join(crowd[i], NULL);
	return atomic_load(&attempts) - counter;
}

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

/* ---- ended-owner ---- */

static long op_timedwrlock(void *l)
{
	struct timespec t = after_ms(CLOCK_REALTIME, 20);
	return pthread_rwlock_timedwrlock(l, &t);
}

static void ended_owner(void)
{
	pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
	in_thread(op_lock, &recursive);
	in_thread(op_lock, &errorcheck);
	in_thread(op_wrlock, &rwlock);
	/* Consecutive threads get the same stack, and so the same control block, from libc. */
	CHECK_VALUE(EBUSY, in_thread(op_trylock, &recursive),
		    "recursive mutex of an ended thread stays held");
	CHECK_VALUE(EPERM, in_thread(op_unlock, &recursive),
		    "next thread does not own the recursive mutex");
	CHECK_VALUE(EBUSY, in_thread(op_trylock, &errorcheck),
		    "errorcheck mutex of an ended thread stays held");
	CHECK_VALUE(EPERM, in_thread(op_unlock, &errorcheck),
		    "next thread does not own the errorcheck mutex");
	CHECK_VALUE(ETIMEDOUT, in_thread(op_timedwrlock, &rwlock),
		    "rwlock of an ended writer stays held");
}

/* ---- past-deadline ---- */

struct past {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	clockid_t clock;
};

static void unlock_mutex(void *mutex) { pthread_mutex_unlock(mutex); }

static void *wait_in_the_past(void *past)
{
	struct past *x = past;
	long error;
	pthread_mutex_lock(&x->mutex);
	pthread_cancel(pthread_self());
	pthread_cleanup_push(unlock_mutex, &x->mutex);
	error = pthread_cond_clockwait(&x->cond, &x->mutex, x->clock, &LONG_AGO);
	pthread_cleanup_pop(1);
	return (void *)error;
}

static void past_deadline(void)
{
	static const clockid_t CLOCKS[] = { CLOCK_REALTIME, CLOCK_MONOTONIC };
	for (size_t i = 0; i < LENGTH(CLOCKS); i++) {
		struct past x = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, CLOCKS[i] };
		pthread_t thread;
		void *result;
		check_begin("wait with a past deadline is a cancellation point, clock %d",
			    (int)CLOCKS[i]);
		thread_create(&thread, NULL, wait_in_the_past, &x);
		pthread_join(thread, &result);
		check_end(result == PTHREAD_CANCELED, true);
		CHECK(0, pthread_mutex_trylock(&x.mutex), "its handler unlocked, clock %d",
		      (int)CLOCKS[i]);
	}
}

/* ---- cancelled-waiter ---- */

struct leaving {
	pthread_mutex_t mutex;
	pthread_cond_t *cond;
	atomic_int waiting;
};

static void *wait_and_leave(void *leaving)
{
	struct leaving *x = leaving;
	pthread_mutex_lock(&x->mutex);
	pthread_cleanup_push(unlock_mutex, &x->mutex);
	atomic_store(&x->waiting, 1);
	pthread_cond_wait(x->cond, &x->mutex);
	pthread_cleanup_pop(1);
	return NULL;
}

/* The broadcast, or the signal to the only waiter, unblocks all waiters. Then the condition may be
 * destroyed. glibc's destroy waits for the cancelled waiter to leave. */
static void cancelled_waiter(void)
{
	for (int broadcast = 0; broadcast < 2; broadcast++) {
		long errors = 0;
		check_begin("condition destroyed after a cancelled waiter's %s",
			    broadcast ? "broadcast" : "signal");
		for (int i = 0; i < 200; i++) {
			struct leaving x = { .mutex = PTHREAD_MUTEX_INITIALIZER };
			pthread_t thread;
			x.cond = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			pthread_cond_init(x.cond, NULL);
			thread_create(&thread, NULL, wait_and_leave, &x);
			while (!atomic_load(&x.waiting))
				sched_yield();
			pthread_mutex_lock(&x.mutex);
			pthread_mutex_unlock(&x.mutex);
			if (i % 2)
				sleep_ms(1);
			pthread_cancel(thread);
			errors |= broadcast ? pthread_cond_broadcast(x.cond)
					    : pthread_cond_signal(x.cond);
			errors |= pthread_cond_destroy(x.cond);
			munmap(x.cond, 4096);
			pthread_join(thread, NULL);
		}
		check_end(errors, 0);
	}
}

/* ---- destroy-waits ---- */

struct timed_wait {
	pthread_mutex_t mutex;
	pthread_cond_t *cond;
	struct timespec deadline;
	atomic_int waiting;
};

static long op_timed_wait(void *timed_wait)
{
	struct timed_wait *x = timed_wait;
	pthread_mutex_lock(&x->mutex);
	atomic_store(&x->waiting, 1);
	int error = pthread_cond_clockwait(x->cond, &x->mutex, CLOCK_MONOTONIC, &x->deadline);
	pthread_mutex_unlock(&x->mutex);
	return error;
}

/* POSIX leaves this undefined; glibc's destroy returns when the last waiter has left. */
static void destroy_waits(void)
{
	struct puppet waiter;
	struct timed_wait x = { .mutex = PTHREAD_MUTEX_INITIALIZER,
			       .deadline = after_ms(CLOCK_MONOTONIC, 60) };
	x.cond = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_cond_init(x.cond, NULL);
	puppet_start(&waiter);
	puppet_send(&waiter, op_timed_wait, &x);
	while (!atomic_load(&x.waiting))
		sleep_ms(1);
	pthread_mutex_lock(&x.mutex);
	pthread_mutex_unlock(&x.mutex);
	CHECK(0, pthread_cond_destroy(x.cond), "destroy during a wait");
	CHECK_VALUE(true, reached(CLOCK_MONOTONIC, x.deadline), "destroy returns after the wait");
	munmap(x.cond, 4096);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&waiter), "the wait times out");
	puppet_end(&waiter);
}

/* ---- second-mutex ---- */

struct bound {
	pthread_mutex_t mutex;
	pthread_cond_t *cond;
	atomic_int tid;
};

static long op_bound_wait(void *bound)
{
	struct bound *x = bound;
	pthread_mutex_lock(&x->mutex);
	atomic_store(&x->tid, gettid());
	int error = pthread_cond_wait(x->cond, &x->mutex);
	pthread_mutex_unlock(&x->mutex);
	return error;
}

/* A signal unblocks the only waiter, and with it ends the condition's binding to the waiter's
 * mutex. Destruction woke only waiters for the mutex of the last signal, and waited for the others
 * forever. */
static void second_mutex(void)
{
	pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
	struct bound bound[2] = { { PTHREAD_MUTEX_INITIALIZER, &cond, 0 },
				  { PTHREAD_MUTEX_INITIALIZER, &cond, 0 } };
	struct puppet waiters[2];
	for (int i = 0; i < 2; i++) {
		puppet_start(&waiters[i]);
		puppet_send(&waiters[i], op_bound_wait, &bound[i]);
		while (!atomic_load(&bound[i].tid))
			sleep_ms(1);
		until_asleep(atomic_load(&bound[i].tid));
		pthread_mutex_lock(&bound[i].mutex);
		CHECK(0, pthread_cond_signal(&cond), "signal to waiter %d", i);
	}
	CHECK(0, pthread_cond_destroy(&cond), "destroy while both mutexes are held");
	for (int i = 0; i < 2; i++) {
		pthread_mutex_unlock(&bound[i].mutex);
		CHECK_VALUE(0, puppet_result(&waiters[i]), "result of wait %d", i);
		puppet_end(&waiters[i]);
	}
}

/* ---- asynchronous ---- */

struct cancellable {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	atomic_int started;
};

static void *wait_cancellably(void *cancellable)
{
	struct cancellable *x = cancellable;
	int old;
	/* The thread may hold the mutex or not at this point; an error-checking mutex knows. */
	pthread_cleanup_push(unlock_mutex, &x->mutex);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
	atomic_store(&x->started, 1);
	for (;;) {
		pthread_mutex_lock(&x->mutex);
		for (int i = 0; i < 50; i++)
			pthread_cond_timedwait(&x->cond, &x->mutex, &LONG_AGO);
		pthread_mutex_unlock(&x->mutex);
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void asynchronous(void)
{
	const size_t size = 65536;
	check_begin("signals after an asynchronous cancellation touch no unmapped stack");
	for (int i = 0; i < 400; i++) {
		struct cancellable x = { PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
					PTHREAD_COND_INITIALIZER, 0 };
		void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);
		pthread_attr_t attr;
		pthread_t thread;
		pthread_attr_init(&attr);
		pthread_attr_setstack(&attr, stack, size);
		thread_create(&thread, &attr, wait_cancellably, &x);
		pthread_attr_destroy(&attr);
		while (!atomic_load(&x.started))
			sched_yield();
		for (volatile int k = 0; k < i * 37 % 20000; k++)
			;
		pthread_cancel(thread);
		pthread_join(thread, NULL);
		munmap(stack, size);
		pthread_cond_signal(&x.cond);
		pthread_cond_broadcast(&x.cond);
	}
	check_end(0, 0);
}

/* ---- constructor ---- */

static void constructor(const char *object)
{
	check_begin("constructor waits for a thread's first locks");
	check_end(object && dlopen(object, RTLD_NOW) != NULL, true);
}

/* ---- no-memory, no-threads ---- */

static void without(int resource, rlim_t allowed, const char *what)
{
	struct rlimit limit = { allowed, allowed };
	atomic_store(&go, false);
	CHECK_VALUE(0, crowd_start(), "threads started before the %s run out", what);
	sleep_ms(20);
	/* Root has no limit on threads. */
	if (resource == RLIMIT_NPROC && geteuid() == 0)
		CHECK_VALUE(0, setresuid(65534, 65534, 65534), "change to another user");
	CHECK_VALUE(0, setrlimit(resource, &limit), "limit the %s", what);
	check_begin("contention without %s", what);
	atomic_store(&go, true);
	sleep_ms(200);
	check_end(crowd_stop(), 0);
	CHECK_VALUE(0, atomic_load(&errno_changes), "errno unchanged without %s", what);
}

/* ---- private-block ---- */

static atomic_int bare_tid;

static int bare_main(void *ignored)
{
	(void)ignored;
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&busy);
		counter++;
		for (volatile int k = 0; k < 300; k++)
			;
		pthread_mutex_unlock(&busy);
	}
	atomic_fetch_add(&attempts, 1000);
	return 0;
}

/* The control block is all zeroes except for the pointers to itself, as a language runtime may make
 * it. The space below it is for thread-local variables of the initial set; variables found by a
 * call do not work. */
static void private_block(void)
{
	const size_t size = 65536;
	const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
			  CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void **control = (void **)(block + size / 2);
	control[0] = control[2] = control;
	crowd_start();
	check_begin("bare thread with its own control block");
	int tid = CHILD_BY("clone", clone(bare_main, stack + size, flags, NULL, &bare_tid, control,
					  &bare_tid));
	while (atomic_load(&bare_tid))
		sleep_ms(1);
	check_end(tid > 0, true);
	CHECK_VALUE(0, crowd_stop(), "no counts of the bare thread or the others are lost");
}

/* ---- vfork ---- */

static void *hold_for_a_while(void *m)
{
	pthread_mutex_lock(m);
	atomic_store(&go, true);
	sleep_ms(50);
	pthread_mutex_unlock(m);
	return NULL;
}

static int most_tasks_in_contention(void)
{
	int most = 0;
	crowd_start();
	for (int i = 0; i < 30; i++) {
		sleep_ms(10);
		int n = tasks();
		most = n > most ? n : most;
	}
	crowd_stop();
	/* Waits until no helper thread of the library is left. */
	for (int i = 0; i < 200 && tasks() > 1; i++)
		sleep_ms(10);
	return most;
}

/* A vfork child that waits long must not leave the parent without a controller. The number of tasks
 * shows it; without a controller, the number is the same before and after. */
static void vfork_waits(void)
{
	static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
	static char *const arguments[] = { "/bin/true", NULL };
	pthread_t holder;
	int before;
	before = most_tasks_in_contention();
	atomic_store(&go, false);
	thread_create(&holder, NULL, hold_for_a_while, &held);
	while (!atomic_load(&go))
		sleep_ms(1);
	check_begin("vfork child waits, then executes another program");
	pid_t child = CHILD_BY("vfork", vfork());
	if (child == 0) {
		pthread_mutex_lock(&held);
		pthread_mutex_unlock(&held);
		execv(arguments[0], arguments);
		_exit(127);
	}
	check_end(await_child(child), 0);
	pthread_join(holder, NULL);
	CHECK_VALUE(before, most_tasks_in_contention(),
		    "contention in the parent starts as many threads as before");
}

/* ---- setuid ---- */

/* Number of this process's threads with user 0 in any of their ids. */
static int root_tasks(void)
{
	DIR *dir = opendir("/proc/self/task");
	int n = 0;
	for (struct dirent *e; dir && (e = readdir(dir));) {
		char path[300], line[200];
		unsigned id[4] = { 1, 1, 1, 1 };
		snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
		FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
		while (f && fgets(line, sizeof line, f))
			if (sscanf(line, "Uid: %u %u %u %u", &id[0], &id[1], &id[2], &id[3]) == 4)
				break;
		if (f)
			fclose(f);
		n += !id[0] || !id[1] || !id[2] || !id[3];
	}
	if (dir)
		closedir(dir);
	return n;
}

static void set_user(void)
{
	if (geteuid() != 0) {
		printf("ok skipped: needs root\n");
		return;
	}
	crowd_start();
	sleep_ms(100);
	CHECK_VALUE(0, setuid(65534), "setuid during contention");
	/* Gives time to threads that must notice the change by themselves. */
	for (int i = 0; i < 200 && root_tasks() > 0; i++)
		sleep_ms(10);
	CHECK_VALUE(0, root_tasks(), "root threads 2 s after setuid");
	CHECK_VALUE(0, crowd_stop(), "contention continues");
}

/* ---- other-forks, early-handler ---- */

static long child_contends(void)
{
	struct timespec begin = after_ms(CLOCK_MONOTONIC, 0), end;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGALRM, SIG_DFL);
	alarm(WATCHDOG_SECONDS - 10);
	atomic_store(&held_up_ns, 0);
	pthread_mutex_unlock(&busy);
	if (crowd_start() != 0)
		return 101;
	sleep_ms(10);
	if (crowd_stop() != 0)
		return 102;
	/* A thread that slept for the parent's load would take longer than 2 s. Time without a
	 * processor does not count: other threads may wait for a thread that is not running. */
	end = after_ms(CLOCK_MONOTONIC, 0);
	double took = (double)(end.tv_sec - begin.tv_sec) +
		      (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
	return took > 2 + (double)(atomic_load(&held_up_ns) + held_up()) * 1e-9 ? 103 : 0;
}

static long in_other_child(bool bare)
{
	pthread_mutex_lock(&busy);
	pid_t child = CHILD_BY("fork",
			       bare ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : _Fork());
	if (child == 0)
		_exit((int)child_contends());
	pthread_mutex_unlock(&busy);
	return await_child(child);
}

static void other_forks(void)
{
	for (int bare = 0; bare < 2; bare++) {
		long errors = 0;
		crowd_start();
		sleep_ms(20);
		check_begin("child by %s during contention",
			    bare ? "the bare system call" : "_Fork");
		for (int i = 0; i < 10 && !errors; i++)
			errors |= in_other_child(bare);
		check_end(errors, 0);
		CHECK_VALUE(0, crowd_stop(), "the parent continues");
	}
}

static bool early_handlers;
static void early_prepare(void) { if (early_handlers) pthread_mutex_lock(&busy); }
static void early_release(void) { if (early_handlers) pthread_mutex_unlock(&busy); }
static void register_early(void) { pthread_atfork(early_prepare, early_release, early_release); }

/* Runs before any shared object's constructor; a library that the program needs may register as
 * early. */
__attribute__((section(".preinit_array"),
	       used)) static void (*const preinit)(void) = register_early;

static long op_locks(void *ignored)
{
	(void)ignored;
	long errors = 0;
	for (int i = 0; i < 100; i++)
		errors |= op_lock_unlock(&busy);
	return errors;
}

static void early_handler(void)
{
	long errors = 0;
	crowd_start();
	early_handlers = true;
	check_begin("early fork handlers unlock in the child");
	for (int i = 0; i < 30; i++)
		errors |= in_child(op_locks, NULL);
	check_end(errors, 0);
	early_handlers = false;
	CHECK_VALUE(0, crowd_stop(), "the parent continues");
}

/* ---- unlock-free ---- */

/* POSIX leaves this undefined. In glibc it has no effect, and programs do it. */
static void unlock_free(void)
{
	pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER, once = PTHREAD_MUTEX_INITIALIZER;
	CHECK(0, pthread_mutex_unlock(&never), "unlock of a mutex that was never locked");
	CHECK(0, pthread_mutex_lock(&never), "lock after the unlock");
	CHECK_VALUE(EBUSY, in_thread(op_trylock, &never), "the mutex is held");
	pthread_mutex_lock(&once);
	CHECK(0, pthread_mutex_unlock(&once), "unlock");
	CHECK(0, pthread_mutex_unlock(&once), "second unlock");
	CHECK(0, pthread_mutex_lock(&once), "lock after the second unlock");
	CHECK_VALUE(EBUSY, in_thread(op_trylock, &once), "the mutex is held");
	CHECK(0, pthread_mutex_unlock(&once), "unlock again");
	CHECK_VALUE(0, in_thread(op_trylock_unlock, &once), "the mutex is free");
}

/* ---- reader-limit ---- */

static void reader_limit(void)
{
	pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
	/* glibc counts readers in 28 bits. */
	long n = 0;
	int error = 0;
	while (n < 1L << 28 && (error = pthread_rwlock_rdlock(&lock)) == 0) {
		n++;
		if (n % (1 << 24) == 0)
			check_begin("readers up to the limit");
	}
	check_end(n, (1L << 28) - 1);
	CHECK_VALUE(EAGAIN, error, "one reader above the limit");
	CHECK(EAGAIN, pthread_rwlock_tryrdlock(&lock), "one reader above the limit by tryrdlock");
	CHECK(0, pthread_rwlock_unlock(&lock), "unlock by one reader");
	CHECK(0, pthread_rwlock_tryrdlock(&lock), "tryrdlock below the limit");
}

/* ---- inherited-condition ---- */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int inside;
	bool released;
} hall = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false };

static void *wait_in_the_hall(void *ignored)
{
	pthread_mutex_lock(&hall.mutex);
	hall.inside++;
	while (!hall.released)
		pthread_cond_wait(&hall.cond, &hall.mutex);
	pthread_mutex_unlock(&hall.mutex);
	return ignored;
}

static void *fill_the_stack(void *ignored)
{
	volatile char rubbish[60000];
	memset((void *)rubbish, 0xa5, sizeof rubbish);
	sleep_ms(10);
	return ignored;
}

static void hall_fill(pthread_t t[4])
{
	for (int i = 0; i < 4; i++)
		thread_create(&t[i], NULL, wait_in_the_hall, NULL);
	for (bool full = false; !full; sleep_ms(1)) {
		pthread_mutex_lock(&hall.mutex);
		full = hall.inside == 4;
		pthread_mutex_unlock(&hall.mutex);
	}
}

static void hall_empty(pthread_t t[4])
{
	pthread_mutex_lock(&hall.mutex);
	hall.released = true;
	pthread_cond_broadcast(&hall.cond);
	pthread_mutex_unlock(&hall.mutex);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

static long child_in_the_hall(void *ignored)
{
	(void)ignored;
	pthread_t t[4], others[8];
	/* The child reuses the stacks of the parent's threads. */
	for (int i = 0; i < 8; i++)
		thread_create(&others[i], NULL, fill_the_stack, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(others[i], NULL);
	hall.inside = 0;
	hall_fill(t);
	hall_empty(t);
	return 0;
}

static void inherited_condition(void)
{
	pthread_t t[4];
	hall_fill(t);
	sleep_ms(10);
	CHECK_VALUE(0, in_child(child_in_the_hall, NULL), "child waits on the parent's condition");
	check_begin("parent's threads continue");
	hall_empty(t);
	check_end(0, 0);
}

/* ---- new-condition ---- */

static pthread_cond_t new_conditions[64];
static atomic_bool new_conditions_over;

static void *use_new_conditions(void *ignored)
{
	while (!atomic_load(&new_conditions_over)) {
		for (size_t i = 0; i < LENGTH(new_conditions); i++) {
			new_conditions[i] = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
			pthread_cond_signal(&new_conditions[i]);
		}
	}
	return ignored;
}

static long child_with_new_conditions(void *ignored)
{
	(void)ignored;
	long errors = 0;
	signal(SIGALRM, SIG_DFL);
	alarm(WATCHDOG_SECONDS - 10);
	for (size_t i = 0; i < LENGTH(new_conditions); i++)
		errors |= pthread_cond_signal(&new_conditions[i]);
	return errors;
}

/* Some of the forks fall between the two steps of a condition's first use. The child waited forever
 * for the thread between them. */
static void new_condition(void)
{
	long errors = 0;
	pthread_t thread;
	thread_create(&thread, NULL, use_new_conditions, NULL);
	check_begin("child uses the parent's new conditions");
	for (int i = 0; i < 300 && !errors; i++)
		errors |= in_child(child_with_new_conditions, NULL);
	check_end(errors, 0);
	atomic_store(&new_conditions_over, true);
	pthread_join(thread, NULL);
}

/* ---- condition-in-shared-memory ---- */

static struct {
	pthread_cond_t cond;
	atomic_int waiting, released, over;
} *common;

static pthread_mutex_t own_mutex = PTHREAD_MUTEX_INITIALIZER;

static void signal_from_another_process(void)
{
	while (!atomic_load(&common->waiting))
		sleep_ms(1);
	sleep_ms(20);
	atomic_store(&common->released, 1);
	while (!atomic_load(&common->over)) {
		pthread_cond_signal(&common->cond);
		sleep_ms(5);
	}
}

static void *wait_for_another_process(void *ignored)
{
	pthread_mutex_lock(&own_mutex);
	pthread_cleanup_push(unlock_mutex, &own_mutex);
	atomic_store(&common->waiting, 1);
	while (!atomic_load(&common->released))
		pthread_cond_wait(&common->cond, &own_mutex);
	pthread_cleanup_pop(1);
	return ignored;
}

static void condition_in_shared_memory(void)
{
	pthread_condattr_t shared;
	pthread_t thread;
	void *result;
	common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	pthread_condattr_init(&shared);
	pthread_condattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_condattr_setclock(&shared, CLOCK_MONOTONIC);
	pthread_cond_init(&common->cond, &shared);

	check_begin("cancellation of a wait in shared memory");
	thread_create(&thread, NULL, wait_for_another_process, NULL);
	while (!atomic_load(&common->waiting))
		sleep_ms(1);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	check_end(result == PTHREAD_CANCELED, 1);
	CHECK(0, pthread_mutex_lock(&own_mutex), "mutex after the cancellation");

	const struct timespec deadline = after_ms(CLOCK_MONOTONIC, 100);
	int error;
	check_begin("time-out in shared memory");
	while ((error = pthread_cond_timedwait(&common->cond, &own_mutex, &deadline)) == 0)
		;
	check_end(error, ETIMEDOUT);
	CHECK_VALUE(1, reached(CLOCK_MONOTONIC, deadline), "deadline has passed");
	CHECK(0, pthread_mutex_unlock(&own_mutex), "unlock");

	check_begin("signals from another process");
	atomic_store(&common->waiting, 0);
	const pid_t child = fork();
	if (child == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(WATCHDOG_SECONDS - 10);
		signal_from_another_process();
		_exit(0);
	}
	wait_for_another_process(NULL);
	atomic_store(&common->over, 1);
	int status;
	waitpid(child, &status, 0);
	check_end(status, 0);
	CHECK(0, pthread_cond_destroy(&common->cond), "destroy");
}

/* ---- condition-of-libc ---- */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool signalled;
} handed = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false };

static void *wait_for_the_handed(void *ignored)
{
	pthread_mutex_lock(&handed.mutex);
	while (!handed.signalled)
		pthread_cond_wait(&handed.cond, &handed.mutex);
	pthread_mutex_unlock(&handed.mutex);
	return ignored;
}

/* The first wait leaves libc's state in the condition variable. */
static void condition_of_libc(void)
{
	pthread_mutexattr_t shared_mutex;
	pthread_condattr_t shared;
	pthread_mutex_t first;
	pthread_t threads[2];
	pthread_mutexattr_init(&shared_mutex);
	pthread_mutexattr_setpshared(&shared_mutex, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&first, &shared_mutex);
	pthread_condattr_init(&shared);
	pthread_condattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&handed.cond, &shared);

	struct timespec deadline = after_ms(CLOCK_REALTIME, 20);
	pthread_mutex_lock(&first);
	CHECK(ETIMEDOUT, pthread_cond_timedwait(&handed.cond, &first, &deadline),
	      "wait with a process-shared mutex");
	pthread_mutex_unlock(&first);

	int error;
	deadline = after_ms(CLOCK_REALTIME, 50);
	pthread_mutex_lock(&handed.mutex);
	check_begin("wait with a private mutex");
	while ((error = pthread_cond_timedwait(&handed.cond, &handed.mutex, &deadline)) == 0)
		;
	check_end(error, ETIMEDOUT);
	pthread_mutex_unlock(&handed.mutex);

	/* The library cannot find out that the condition is private, until descriptors are free again
	 * during the wait. */
	struct rlimit files, none;
	CHECK(0, pthread_cond_destroy(&handed.cond), "destroy");
	pthread_cond_init(&handed.cond, &shared);
	getrlimit(RLIMIT_NOFILE, &files);
	none = (struct rlimit) { 0, files.rlim_max };
	check_begin("waits of two threads");
	setrlimit(RLIMIT_NOFILE, &none);
	thread_create(&threads[0], NULL, wait_for_the_handed, NULL);
	sleep_ms(50);
	setrlimit(RLIMIT_NOFILE, &files);
	thread_create(&threads[1], NULL, wait_for_the_handed, NULL);
	sleep_ms(50);
	pthread_mutex_lock(&handed.mutex);
	handed.signalled = true;
	pthread_cond_broadcast(&handed.cond);
	pthread_mutex_unlock(&handed.mutex);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	check_end(0, 0);
	CHECK(0, pthread_cond_destroy(&handed.cond), "destroy");
}

/* ---- fork-in-handler ---- */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	volatile pid_t child;
} interrupted = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, -1 };

static void fork_and_signal(int ignored)
{
	(void)ignored;
	interrupted.child = fork();
	if (interrupted.child == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(WATCHDOG_SECONDS - 10);
		pthread_cond_signal(&interrupted.cond);
	}
}

static void *interrupt_soon(void *thread)
{
	sleep_ms(50);
	pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

static void fork_in_handler(void)
{
	pthread_t self = pthread_self(), other;
	int error, status = 0;
	signal(SIGUSR1, fork_and_signal);
	check_begin("wait whose handler forks");
	const struct timespec deadline = after_ms(CLOCK_REALTIME, 200);
	pthread_mutex_lock(&interrupted.mutex);
	thread_create(&other, NULL, interrupt_soon, &self);
	do {
		error = pthread_cond_timedwait(&interrupted.cond, &interrupted.mutex, &deadline);
	} while (error == 0);
	pthread_mutex_unlock(&interrupted.mutex);
	if (interrupted.child == 0)
		_exit(error == ETIMEDOUT && pthread_cond_destroy(&interrupted.cond) == 0 ? 0 : 1);
	waitpid(interrupted.child, &status, 0);
	check_end(error, ETIMEDOUT);
	CHECK_VALUE(0, status, "the same wait in the child");
	pthread_join(other, NULL);
}

/* ---- fork-while-polling ---- */

enum { FORKS = 300 };

static atomic_int begun, ended;

static void fork_and_signal_soon(int ignored)
{
	(void)ignored;
	interrupted.child = fork();
	if (interrupted.child == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(5);
		pthread_cond_signal(&interrupted.cond);
	}
}

/* Interrupts each wait soon after its beginning, and then ends it in the parent. */
static void *interrupt_each(void *thread)
{
	for (int i = 1; i <= FORKS; i++) {
		while (atomic_load(&begun) < i)
			sched_yield();
		/* A thread that waits has released the mutex. A first wait polls for some 50 us. */
		while (pthread_mutex_trylock(&interrupted.mutex) != 0)
			sched_yield();
		pthread_mutex_unlock(&interrupted.mutex);
		for (volatile int j = 0; j < i % 30 * 100; j++)
			;
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
		/* In a child of a thread that does not hold the mutex it would stay locked. */
		while (interrupted.child == -1)
			sched_yield();
		while (atomic_load(&ended) < i) {
			pthread_mutex_lock(&interrupted.mutex);
			pthread_cond_signal(&interrupted.cond);
			pthread_mutex_unlock(&interrupted.mutex);
			sched_yield();
		}
	}
	return NULL;
}

static void fork_while_polling(void)
{
	pthread_t self = pthread_self(), other;
	int status = 0, asleep = 0;
	signal(SIGUSR1, fork_and_signal_soon);
	thread_create(&other, NULL, interrupt_each, &self);
	for (int i = 1; i <= FORKS; i++) {
		pthread_cond_init(&interrupted.cond, NULL);
		pthread_mutex_lock(&interrupted.mutex);
		interrupted.child = -1;
		atomic_store(&begun, i);
		while (interrupted.child == -1)
			pthread_cond_wait(&interrupted.cond, &interrupted.mutex);
		if (interrupted.child == 0)
			_exit(0);
		pthread_mutex_unlock(&interrupted.mutex);
		atomic_store(&ended, i);
		waitpid(interrupted.child, &status, 0);
		asleep += status != 0;
		pthread_cond_destroy(&interrupted.cond);
	}
	pthread_join(other, NULL);
	CHECK_VALUE(0, asleep, "waits that never end in the child");
}

/* ---- released-reader ---- */

#if defined(__x86_64__)
static pthread_rwlock_t *paged;
static atomic_int steps, answered;
static atomic_bool is_unmapped, has_stepped;

static void *unmap_when_free(void *ignored)
{
	while (!atomic_load(&has_stepped)) {
		int step = atomic_load(&steps);
		if (step == atomic_load(&answered)) {
			sched_yield();
			continue;
		}
		if (!atomic_load(&is_unmapped) && pthread_rwlock_trywrlock(paged) == 0) {
			pthread_rwlock_unlock(paged);
			mprotect(paged, 4096, PROT_NONE);
			atomic_store(&is_unmapped, true);
		}
		atomic_store(&answered, step);
	}
	return ignored;
}

static void after_instruction(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	(void)signal;
	(void)info;
	int step = atomic_fetch_add(&steps, 1) + 1;
	while (atomic_load(&answered) < step)
		sched_yield();
	if (atomic_load(&is_unmapped))
		registers[REG_EFL] &= ~0x100; /* the trap flag */
}

static void *read_beside(void *ready)
{
	pthread_rwlock_rdlock(paged);
	pthread_barrier_wait(ready);
	pthread_barrier_wait(ready);
	pthread_rwlock_unlock(paged);
	return NULL;
}

static void released_reader(void)
{
	struct sigaction action = { .sa_sigaction = after_instruction, .sa_flags = SA_SIGINFO };
	pthread_barrier_t ready;
	pthread_t reader, writer;
	paged = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_rwlock_init(paged, NULL);
	pthread_barrier_init(&ready, NULL, 2);
	/* Readings that overlap make the lock publish its readers elsewhere. */
	thread_create(&reader, NULL, read_beside, &ready);
	pthread_barrier_wait(&ready);
	for (int i = 0; i < 100; i++) {
		pthread_rwlock_rdlock(paged);
		pthread_rwlock_unlock(paged);
	}
	pthread_rwlock_rdlock(paged);
	pthread_barrier_wait(&ready);
	pthread_join(reader, NULL);
	thread_create(&writer, NULL, unmap_when_free, NULL);
	sigaction(SIGTRAP, &action, NULL);
	/* Sets the trap flag, with room for the red zone. */
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\t"
			 "lea 128(%%rsp), %%rsp" ::: "memory", "cc");
	int error = pthread_rwlock_unlock(paged);
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq\n\t"
			 "lea 128(%%rsp), %%rsp" ::: "memory", "cc");
	atomic_store(&has_stepped, true);
	pthread_join(writer, NULL);
	CHECK_VALUE(0, error, "unlock of a lock that a writer unmaps");
	CHECK_VALUE(true, atomic_load(&is_unmapped), "the writer acquires it meanwhile");
}
#else
static void released_reader(void)
{
	printf("skipped: not an x86-64 processor\n");
}
#endif

/* ---- idle-waiters ---- */

static void *contend_idly(void *ignored)
{
	struct sched_param none = { 0 };
	pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
	return contend(ignored);
}

/* The controller's thread, which alone blocks signals. */
static pid_t find_controller(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	pid_t found = 0;
	while (!found && (task = readdir(tasks))) {
		char path[300], line[200];
		snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
		FILE *status = fopen(path, "r");
		while (status && fgets(line, sizeof line, status))
			if (strncmp(line, "SigBlk:", 7) == 0 && strtoull(line + 7, NULL, 16) != 0)
				found = atoi(task->d_name);
		if (status)
			fclose(status);
	}
	closedir(tasks);
	return found;
}

/* The controller would have the policy of the thread that starts it. */
static void idle_waiters(void)
{
	pthread_t t[8];
	pid_t controller = 0;
	for (int i = 0; i < 4; i++)
		thread_create(&t[i], NULL, contend_idly, NULL);
	sleep_ms(200);
	for (int i = 4; i < 8; i++)
		thread_create(&t[i], NULL, contend, NULL);
	for (int i = 0; i < 5000 && !controller; i++) {
		sleep_ms(1);
		controller = find_controller();
	}
	printf("%s, policy %d\n", controller ? "a controller" : "no controller",
	       controller ? sched_getscheduler(controller) : 0);
	atomic_store(&stop, true);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
}

/* ---- namespace ---- */

static void namespace(void)
{
	CHECK_VALUE(0, in_child(op_locks, NULL), "locks before unshare");
	crowd_start();
	sleep_ms(100);
	CHECK_VALUE(0, crowd_stop(), "contention before unshare");
	/* The kernel grants a namespace only to single-threaded processes. A kernel that never
	 * grants one refuses in both runs. */
	check_begin("unshare of the user namespace");
	check_record(unshare(CLONE_NEWUSER) ? errno : 0);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(void); } MODES[] = {
		{ "ended-owner", ended_owner }, { "past-deadline", past_deadline },
		{ "cancelled-waiter", cancelled_waiter }, { "destroy-waits", destroy_waits },
		{ "second-mutex", second_mutex }, { "asynchronous", asynchronous },
		{ "private-block", private_block }, { "vfork", vfork_waits }, { "setuid",
									       set_user },
		{ "other-forks", other_forks }, { "early-handler", early_handler },
		{ "unlock-free", unlock_free }, { "reader-limit", reader_limit },
		{ "inherited-condition", inherited_condition }, { "new-condition", new_condition },
		{ "condition-in-shared-memory", condition_in_shared_memory },
		{ "condition-of-libc", condition_of_libc }, { "fork-in-handler", fork_in_handler },
		{ "fork-while-polling", fork_while_polling },
		{ "released-reader", released_reader }, { "idle-waiters", idle_waiters },
		{ "namespace", namespace },
	};
	const char *mode = argc > 1 ? argv[1] : "";
	check_start();
	for (size_t i = 0; i < LENGTH(MODES); i++) {
		if (strcmp(mode, MODES[i].name) == 0) {
			MODES[i].run();
			return check_finish();
		}
	}
	if (strcmp(mode, "constructor") == 0)
		constructor(argv[2]);
	else if (strcmp(mode, "no-memory") == 0)
		without(RLIMIT_AS, 0, "memory");
	else if (strcmp(mode, "no-threads") == 0)
		without(RLIMIT_NPROC, 1, "threads");
	else
		return 2;
	return check_finish();
}
