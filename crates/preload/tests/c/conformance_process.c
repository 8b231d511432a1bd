/* Locks over the life of threads and processes: fork, thread exit, key destructors, code loaded
 * later; and functions beside the replaced ones: C11 threads, pthread_once, barriers, semaphores
 * and stdio, which libc builds on internal calls that a library cannot replace.
 *
 * Usage: conformance_process DLOPENED.SO */
#include "check.h"

#include <dlfcn.h>
#include <spawn.h>
#include <threads.h>

/* ---- fork ------------------------------------------------------------------------------------ */

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;

/* Each returns the code of its call, as the child's exit status. */
static long child_unlock(void *m) { return pthread_mutex_unlock(m); }
static long child_trylock(void *m) { return pthread_mutex_trylock(m); }
static long child_lock_unlock(void *m) { return op_lock_unlock(m); }

static long child_unlock_then_use(void *m)
{
	long error = pthread_mutex_unlock(m);
	if (error)
		return error;
	for (int i = 0; i < 100 && !error; i++)
		error = op_lock_unlock(m);
	return error;
}

/* The child's own threads contend: the library's machinery (controller, queues, parked threads)
 * must start again in the child. */
/* Few rounds, for locks that need a time slice per hand-over if threads outnumber processors. */
enum { CROWD_ROUNDS = 100 };

struct crowd {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	long counter, done;
};

static void *crowd_member(void *c)
{
	struct crowd *x = c;
	for (int i = 0; i < CROWD_ROUNDS; i++) {
		pthread_mutex_lock(&x->mutex);
		x->counter++;
		if (i % 32 == 0)
			sched_yield();
		pthread_mutex_unlock(&x->mutex);
	}
	pthread_mutex_lock(&x->mutex);
	x->done++;
	pthread_cond_signal(&x->cond);
	pthread_mutex_unlock(&x->mutex);
	return NULL;
}

static long crowd_run(void *ignored)
{
	(void)ignored;
	struct crowd x = { .mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		if (thread_create(&t[i], NULL, crowd_member, &x) != 0)
			return 101;
	pthread_mutex_lock(&x.mutex);
	while (x.done < 4)
		pthread_cond_wait(&x.cond, &x.mutex);
	pthread_mutex_unlock(&x.mutex);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	return x.counter == 4 * CROWD_ROUNDS ? 0 : 102;
}

/* glibc identifies a writer by its thread id, so the child cannot unlock: its unlock would count as
 * a reader's. The only defined behaviour is that the lock is held in the child. */
static long child_rwlock_writer(void *l)
{
	if (pthread_rwlock_tryrdlock(l) != EBUSY)
		return 101;
	return pthread_rwlock_trywrlock(l);
}

static long child_rwlock_reader(void *l)
{
	if (pthread_rwlock_trywrlock(l) != EBUSY)
		return 101;
	long error = pthread_rwlock_rdlock(l);
	error |= pthread_rwlock_unlock(l);
	/* This unlock is for the read lock that the parent's thread held. */
	error |= pthread_rwlock_unlock(l);
	error |= pthread_rwlock_wrlock(l);
	error |= pthread_rwlock_unlock(l);
	return error;
}

static long child_spin(void *ignored)
{
	(void)ignored;
	if (pthread_spin_trylock(&spin) != EBUSY)
		return 101;
	pthread_spin_unlock(&spin);
	pthread_spin_lock(&spin);
	return pthread_spin_unlock(&spin);
}

static long child_signals(void *c)
{
	long error = pthread_cond_signal(c);
	return error | pthread_cond_broadcast(c);
}

static void forks(void)
{
	struct puppet a, b;
	puppet_start(&a);
	puppet_start(&b);

	/* The child holds what the forking thread held. It can unlock a NORMAL mutex. The kinds
	 * with an owner store the parent's thread id, and refuse; glibc has always done so. */
	pthread_mutex_lock(&normal);
	CHECK_VALUE(EBUSY, in_child(child_trylock, &normal),
		    "fork.held normal is held in the child");
	CHECK_VALUE(0, in_child(child_unlock_then_use, &normal),
		    "fork.held normal unlocks in the child");
	CHECK(EBUSY, pthread_mutex_trylock(&normal), "fork.held normal still held in the parent");
	CHECK(0, pthread_mutex_unlock(&normal), "fork.held normal unlocks in the parent");
	pthread_mutex_lock(&adaptive);
	CHECK_VALUE(0, in_child(child_unlock_then_use, &adaptive),
		    "fork.held adaptive unlocks in the child");
	CHECK(0, pthread_mutex_unlock(&adaptive), "fork.held adaptive unlocks in the parent");
	pthread_mutex_lock(&recursive);
	CHECK_VALUE(EBUSY, in_child(child_trylock, &recursive),
		    "fork.held recursive is another thread's in the child");
	CHECK_VALUE(EPERM, in_child(child_unlock, &recursive),
		    "fork.held recursive is refused in the child");
	CHECK(0, pthread_mutex_unlock(&recursive), "fork.held recursive unlocks in the parent");
	pthread_mutex_lock(&errorcheck);
	CHECK_VALUE(EBUSY, in_child(child_trylock, &errorcheck),
		    "fork.held errorcheck is another thread's in the child");
	CHECK_VALUE(EPERM, in_child(child_unlock, &errorcheck),
		    "fork.held errorcheck is refused in the child");
	CHECK(0, pthread_mutex_unlock(&errorcheck), "fork.held errorcheck unlocks in the parent");

	/* The parent's waiters do not exist in the child, and it must not wait for them. */
	pthread_mutex_lock(&normal);
	puppet_send(&a, op_lock_unlock, &normal);
	puppet_send(&b, op_lock_unlock, &normal);
	CHECK_VALUE(true, puppet_blocked(&a) && puppet_blocked(&b),
		    "fork.with two waiters on a held mutex");
	CHECK_VALUE(0, in_child(child_unlock_then_use, &normal),
		    "fork.waiters do not follow into the child");
	CHECK(0, pthread_mutex_unlock(&normal), "fork.waiters continue in the parent");
	CHECK_VALUE(0, puppet_result(&a) | puppet_result(&b), "fork.waiters get the mutex");

	/* A mutex of another thread stays locked forever in the child. */
	puppet_call(&a, op_lock, &normal);
	CHECK_VALUE(EBUSY, in_child(child_trylock, &normal),
		    "fork.another thread's mutex is held in the child");
	puppet_call(&a, op_unlock, &normal);
	CHECK_VALUE(0, in_child(child_lock_unlock, &normal),
		    "fork.free mutex is free in the child");

	/* The same for the other locks. */
	pthread_rwlock_wrlock(&rwlock);
	CHECK_VALUE(EBUSY, in_child(child_rwlock_writer, &rwlock),
		    "fork.writer's lock is held in the child");
	CHECK(0, pthread_rwlock_unlock(&rwlock), "fork.writer unlocks in the parent");
	pthread_rwlock_rdlock(&rwlock);
	CHECK_VALUE(0, in_child(child_rwlock_reader, &rwlock), "fork.reader unlocks in the child");
	CHECK(0, pthread_rwlock_unlock(&rwlock), "fork.reader unlocks in the parent");
	pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_lock(&spin);
	CHECK_VALUE(0, in_child(child_spin, NULL), "fork.spin lock unlocks in the child");
	CHECK(0, pthread_spin_unlock(&spin), "fork.spin lock unlocks in the parent");
	CHECK_VALUE(0, in_child(child_signals, &cond), "fork.signals in the child without waiters");

	/* Contention works in the child as in the parent. */
	CHECK_VALUE(0, crowd_run(NULL), "fork.contention before the fork");
	CHECK_VALUE(0, in_child(crowd_run, NULL), "fork.contention in the child");
	CHECK_VALUE(0, crowd_run(NULL), "fork.contention after the fork");
	puppet_end(&a);
	puppet_end(&b);
}

/* Forks while other threads contend for a mutex that the forking thread holds during the fork, as
 * pthread_atfork handlers do. */
static atomic_bool stop_contending;

static long op_contend(void *m)
{
	while (!atomic_load(&stop_contending)) {
		pthread_mutex_lock(m);
		pthread_mutex_unlock(m);
	}
	return 0;
}

static void fork_in_contention(void)
{
	struct puppet p[3];
	long errors = 0;
	for (int i = 0; i < 3; i++) {
		puppet_start(&p[i]);
		puppet_send(&p[i], op_contend, &normal);
	}
	check_begin("fork.during contention");
	for (int i = 0; i < 10; i++) {
		pthread_mutex_lock(&normal);
		errors |= in_child(child_unlock_then_use, &normal);
		pthread_mutex_unlock(&normal);
	}
	check_end(errors, 0);
	atomic_store(&stop_contending, true);
	for (int i = 0; i < 3; i++) {
		puppet_result(&p[i]);
		puppet_end(&p[i]);
	}
	CHECK(0, pthread_mutex_trylock(&normal), "fork.mutex free after the contention");
	pthread_mutex_unlock(&normal);
}

static int atfork_calls;

static void atfork_prepare(void)
{
	atfork_calls += pthread_mutex_lock(&adaptive) == 0;
}

static void atfork_release(void)
{
	atfork_calls += pthread_mutex_unlock(&adaptive) == 0;
}

static long child_after_atfork(void *ignored)
{
	(void)ignored;
	return atfork_calls == 2 ? op_lock_unlock(&adaptive) : 101;
}

static void atfork(void)
{
	pthread_atfork(atfork_prepare, atfork_release, atfork_release);
	CHECK_VALUE(0, in_child(child_after_atfork, NULL),
		    "fork.handlers lock and unlock in the child");
	CHECK_VALUE(2, atfork_calls, "fork.handlers lock and unlock in the parent");
	CHECK(0, pthread_mutex_trylock(&adaptive), "fork.handlers leave the mutex free");
	pthread_mutex_unlock(&adaptive);
}

/* vfork and posix_spawn share the parent's memory until the exec, so the mutex stays the parent's.
 */
static void spawns(void)
{
	char *const arguments[] = { "/bin/true", NULL };
	pid_t child;
	int status = -1;
	pthread_mutex_lock(&normal);
	check_begin("spawn.posix_spawn with a mutex held");
	int error = child_spawn(&child, arguments[0], NULL, arguments);
	if (error == 0)
		status = await_child(child);
	check_end(error ? error : status, 0);
	check_begin("spawn.vfork with a mutex held");
	child = CHILD_BY("vfork", vfork());
	if (child == 0) {
		execv(arguments[0], arguments);
		_exit(127);
	}
	check_end(await_child(child), 0);
	CHECK(EBUSY, pthread_mutex_trylock(&normal), "spawn.mutex still held");
	CHECK(0, pthread_mutex_unlock(&normal), "spawn.mutex unlocks");
}

/* ---- the end of a thread --------------------------------------------------------------------- */

static long op_lock_and_leave(void *m) { return pthread_mutex_lock(m); }

static pthread_key_t key;
static pthread_mutex_t key_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t key_cond = PTHREAD_COND_INITIALIZER;
static atomic_int key_destructors, key_errors;
static bool key_go;

/* A lock in a destructor of thread-specific data, when the library's own thread-specific data may
 * be gone. The second round of destructors runs even later. */
static void key_destructor(void *round)
{
	int error = pthread_mutex_lock(&key_mutex);
	while (!key_go)
		error |= pthread_cond_wait(&key_cond, &key_mutex);
	error |= pthread_mutex_unlock(&key_mutex);
	if (error)
		atomic_fetch_add(&key_errors, 1);
	atomic_fetch_add(&key_destructors, 1);
	if ((intptr_t)round < 3)
		pthread_setspecific(key, (void *)((intptr_t)round + 1));
}

static void *key_thread(void *ignored)
{
	(void)ignored;
	pthread_setspecific(key, (void *)1);
	return NULL;
}

static void *contended_leaver(void *m)
{
	pthread_mutex_lock(m);
	pthread_mutex_unlock(m);
	pthread_exit(NULL);
}

static void thread_ends(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	in_thread(op_lock_and_leave, &m);
	CHECK(EBUSY, pthread_mutex_trylock(&m), "exit.mutex of an ended thread stays locked");
	struct timespec t = after_ms(CLOCK_REALTIME, 10);
	CHECK(ETIMEDOUT, pthread_mutex_timedlock(&m, &t),
	      "exit.mutex of an ended thread times out");

	pthread_key_create(&key, key_destructor);
	pthread_t threads[4];
	pthread_mutex_lock(&key_mutex);
	for (int i = 0; i < 4; i++)
		thread_create(&threads[i], NULL, key_thread, NULL);
	sleep_ms(SETTLE_MS);
	key_go = true;
	pthread_cond_broadcast(&key_cond);
	pthread_mutex_unlock(&key_mutex);
	check_begin("exit.contended locks in keys' destructors");
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	check_end(key_errors, 0);
	CHECK_VALUE(12, key_destructors, "exit.destructors run in three rounds");

	/* Threads that end right after a contended lock, while others still wait. */
	long errors = 0;
	pthread_mutex_t n = PTHREAD_MUTEX_INITIALIZER;
	check_begin("exit.threads end with waiters behind them");
	for (int round = 0; round < 30; round++) {
		pthread_t crowd[6];
		pthread_mutex_lock(&n);
		for (int i = 0; i < 6; i++)
			errors |= thread_create(&crowd[i], NULL, contended_leaver, &n);
		if (round % 4 == 0)
			sleep_ms(1);
		pthread_mutex_unlock(&n);
		for (int i = 0; i < 6; i++)
			errors |= pthread_join(crowd[i], NULL);
	}
	check_end(errors, 0);
	CHECK(0, pthread_mutex_trylock(&n), "exit.mutex free after these threads");
	pthread_mutex_unlock(&n);

	errors = 0;
	check_begin("exit.1000 threads, one lock each");
	for (int i = 0; i < 1000; i++)
		errors |= in_thread(op_lock_unlock, &n);
	check_end(errors, 0);
}

/* A small stack: a lock may use only a little of it. */
static void *small_main(void *m)
{
	for (int i = 0; i < 100; i++) {
		pthread_mutex_lock(m);
		pthread_mutex_unlock(m);
	}
	return NULL;
}

static void small_stacks(void)
{
	pthread_attr_t attr;
	pthread_t t[3];
	long errors = 0;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 16384);
	check_begin("exit.contention on stacks of 16 KiB");
	for (int i = 0; i < 3; i++)
		errors |= thread_create(&t[i], &attr, small_main, &normal);
	for (int i = 0; i < 3 && !errors; i++)
		errors |= pthread_join(t[i], NULL);
	check_end(errors, 0);
	pthread_attr_destroy(&attr);
}

/* ---- code that is loaded later --------------------------------------------------------------- */

enum { LOADED_ROUNDS = 100 };

struct loaded {
	int (*add)(int);
	int (*await)(long);
	int (*others)(void);
};

static long op_add(void *l) { return ((struct loaded *)l)->add(LOADED_ROUNDS); }
static long op_await(void *l) { return ((struct loaded *)l)->await(3 * LOADED_ROUNDS); }
static long op_others(void *l) { return ((struct loaded *)l)->others(); }

static void loaded_later(const char *path)
{
	struct puppet p[4];
	struct loaded l;
	for (int i = 0; i < 4; i++)
		puppet_start(&p[i]);
	for (int round = 1; round <= 2; round++) {
		check_begin("dlopen.opens %d", round);
		void *handle = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
		check_end(handle != NULL, true);
		if (!handle)
			continue;
		*(void **)&l.add = dlsym(handle, "dlopened_add");
		*(void **)&l.await = dlsym(handle, "dlopened_await");
		*(void **)&l.others = dlsym(handle, "dlopened_others");
		puppet_send(&p[3], op_await, &l);
		for (int i = 0; i < 3; i++)
			puppet_send(&p[i], op_add, &l);
		long errors = 0;
		check_begin("dlopen.its mutex and condition under contention %d", round);
		for (int i = 0; i < 4; i++)
			errors |= puppet_result(&p[i]) % ERRNO_CHANGED;
		check_end(errors, 0);
		CHECK_VALUE(0, puppet_call(&p[0], op_others, &l), "dlopen.its other locks %d",
			    round);
		/* Closed and opened again: the second time with new locks, perhaps at the same
		 * address. */
		CHECK_VALUE(0, dlclose(handle), "dlopen.closes %d", round);
	}
	for (int i = 0; i < 4; i++)
		puppet_end(&p[i]);
}

/* ---- C11 ------------------------------------------------------------------------------------- */

static mtx_t c11_mutex;
static cnd_t c11_cond;
static int c11_turn;
static long c11_count;

static int c11_try(void *m) { return mtx_trylock(m); }

static int c11_try_in_thread(mtx_t *m)
{
	thrd_t t;
	int result = -1;
	thread_create_c11(&t, c11_try, m);
	thrd_join(t, &result);
	return result;
}

static int c11_play(void *me)
{
	int mine = (int)(intptr_t)me, errors = 0;
	for (int i = 0; i < 500; i++) {
		errors |= mtx_lock(&c11_mutex) != thrd_success;
		while (c11_turn != mine)
			errors |= cnd_wait(&c11_cond, &c11_mutex) != thrd_success;
		c11_turn = !mine;
		c11_count++;
		errors |= cnd_broadcast(&c11_cond) != thrd_success;
		errors |= mtx_unlock(&c11_mutex) != thrd_success;
	}
	return errors;
}

static int c11_calls;
static void c11_called_once(void) { c11_calls++; }

static void c11(void)
{
	mtx_t m;
	struct timespec t;
	CHECK(thrd_success, mtx_init(&m, mtx_plain), "c11.init plain");
	CHECK(thrd_success, mtx_lock(&m), "c11.lock plain");
	CHECK_VALUE(thrd_busy, c11_try_in_thread(&m), "c11.trylock of another thread's mutex");
	CHECK(thrd_success, mtx_unlock(&m), "c11.unlock plain");
	mtx_destroy(&m);
	CHECK(thrd_success, mtx_init(&m, mtx_plain | mtx_recursive), "c11.init recursive");
	CHECK(thrd_success, mtx_lock(&m), "c11.lock recursive");
	CHECK(thrd_success, mtx_lock(&m), "c11.lock recursive again");
	CHECK(thrd_success, mtx_unlock(&m), "c11.unlock recursive once");
	CHECK_VALUE(thrd_busy, c11_try_in_thread(&m), "c11.recursive still held");
	CHECK(thrd_success, mtx_unlock(&m), "c11.unlock recursive twice");
	CHECK(thrd_success, mtx_trylock(&m), "c11.trylock recursive");
	CHECK(thrd_success, mtx_unlock(&m), "c11.unlock after trylock");
	mtx_destroy(&m);
	CHECK(thrd_success, mtx_init(&m, mtx_timed), "c11.init timed");
	CHECK(thrd_success, mtx_lock(&m), "c11.lock timed");
	t = after_ms(CLOCK_REALTIME, 10);
	CHECK(thrd_timedout, mtx_timedlock(&m, &t), "c11.timedlock times out");
	CHECK(thrd_success, mtx_unlock(&m), "c11.unlock timed");
	mtx_destroy(&m);

	mtx_init(&c11_mutex, mtx_plain);
	CHECK(thrd_success, cnd_init(&c11_cond), "c11.cnd init");
	CHECK(thrd_success, cnd_signal(&c11_cond), "c11.cnd signal without waiters");
	mtx_lock(&c11_mutex);
	t = after_ms(CLOCK_REALTIME, 10);
	CHECK(thrd_timedout, cnd_timedwait(&c11_cond, &c11_mutex, &t),
	      "c11.cnd timedwait times out");
	CHECK_VALUE(thrd_busy, c11_try_in_thread(&c11_mutex), "c11.mutex held after the time-out");
	mtx_unlock(&c11_mutex);
	thrd_t other;
	int errors = -1;
	check_begin("c11.500 turns");
	thread_create_c11(&other, c11_play, (void *)1);
	int mine = c11_play((void *)0);
	thrd_join(other, &errors);
	check_end(mine | errors, 0);
	CHECK_VALUE(1000, c11_count, "c11.turns taken");
	cnd_destroy(&c11_cond);
	mtx_destroy(&c11_mutex);
	static once_flag flag = ONCE_FLAG_INIT;
	call_once(&flag, c11_called_once);
	call_once(&flag, c11_called_once);
	CHECK_VALUE(1, c11_calls, "c11.call_once");
}

/* ---- neighbours ------------------------------------------------------------------------------ */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int once_calls;
static pthread_mutex_t once_mutex = PTHREAD_MUTEX_INITIALIZER;

static void once_routine(void)
{
	/* Slow, and with a lock inside, so that the other threads wait in pthread_once. */
	pthread_mutex_lock(&once_mutex);
	sleep_ms(2);
	once_calls++;
	pthread_mutex_unlock(&once_mutex);
}

static long op_once(void *ignored)
{
	(void)ignored;
	return pthread_once(&once, once_routine) || once_calls != 1;
}

static pthread_barrier_t barrier;
static atomic_int serial;

static long op_barrier(void *ignored)
{
	(void)ignored;
	for (int i = 0; i < 100; i++) {
		int result = pthread_barrier_wait(&barrier);
		if (result == PTHREAD_BARRIER_SERIAL_THREAD)
			atomic_fetch_add(&serial, 1);
		else if (result)
			return result;
	}
	return 0;
}

static sem_t sem;
static atomic_int sem_taken;

static long op_sem(void *ignored)
{
	(void)ignored;
	for (int i = 0; i < 100; i++) {
		puppet_wait_sem(&sem);
		atomic_fetch_add(&sem_taken, 1);
	}
	return 0;
}

static FILE *stream;

static long op_print(void *mark)
{
	for (int i = 0; i < 200; i++) {
		flockfile(stream);
		fprintf(stream, "%s ", (char *)mark);
		fprintf(stream, "%s\n", (char *)mark);
		funlockfile(stream);
	}
	return 0;
}

static void neighbours(void)
{
	struct puppet p[3];
	long errors = 0;
	for (int i = 0; i < 3; i++)
		puppet_start(&p[i]);
	check_begin("beside.pthread_once");
	for (int i = 0; i < 3; i++)
		puppet_send(&p[i], op_once, NULL);
	for (int i = 0; i < 3; i++)
		errors |= puppet_result(&p[i]) % ERRNO_CHANGED;
	check_end(errors, 0);
	CHECK_VALUE(0, pthread_barrier_init(&barrier, NULL, 3), "beside.barrier init");
	check_begin("beside.barrier");
	for (int i = 0; i < 3; i++)
		puppet_send(&p[i], op_barrier, NULL);
	for (int i = 0; i < 3; i++)
		errors |= puppet_result(&p[i]) % ERRNO_CHANGED;
	check_end(errors, 0);
	CHECK_VALUE(100, serial, "beside.barrier serial threads");
	CHECK_VALUE(0, pthread_barrier_destroy(&barrier), "beside.barrier destroy");
	sem_init(&sem, 0, 0);
	check_begin("beside.semaphore");
	for (int i = 0; i < 3; i++)
		puppet_send(&p[i], op_sem, NULL);
	for (int i = 0; i < 300; i++)
		sem_post(&sem);
	for (int i = 0; i < 3; i++)
		puppet_result(&p[i]);
	check_end(sem_taken, 300);
	sem_destroy(&sem);

	/* stdio's locks are libc's own; each thread's lines must stay whole. */
	char text[16384], line[64];
	stream = fmemopen(text, sizeof text, "w+");
	puppet_send(&p[0], op_print, "a");
	puppet_send(&p[1], op_print, "b");
	puppet_send(&p[2], op_print, "c");
	for (int i = 0; i < 3; i++)
		puppet_result(&p[i]);
	rewind(stream);
	int lines = 0, torn = 0;
	while (fgets(line, sizeof line, stream)) {
		lines++;
		torn += strlen(line) != 4 || line[0] != line[2];
	}
	fclose(stream);
	CHECK_VALUE(600, lines, "beside.flockfile lines");
	CHECK_VALUE(0, torn, "beside.flockfile torn lines");
	for (int i = 0; i < 3; i++)
		puppet_end(&p[i]);
}

/* ---- signal handlers that lock --------------------------------------------------------------- */

/* In POSIX no lock function is async-signal-safe. Yet with glibc, a handler that interrupts a wait
 * for one mutex may use another mutex that its thread does not touch, and crash handlers do so. */
static pthread_mutex_t handler_mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int handler_runs, handler_errors;

static void locking_handler(int sig)
{
	(void)sig;
	int saved = errno;
	if (op_lock_unlock(&handler_mutex) != 0)
		atomic_fetch_add(&handler_errors, 1);
	atomic_fetch_add(&handler_runs, 1);
	errno = saved;
}

static void locks_in_handlers(void)
{
	struct sigaction action = { .sa_handler = locking_handler };
	struct puppet waiter;
	sigaction(SIGUSR1, &action, NULL);
	puppet_start(&waiter);
	pthread_mutex_lock(&normal);
	puppet_send(&waiter, op_lock_unlock, &normal);
	check_begin("signal.handler locks while its thread waits for another mutex");
	for (int i = 1; i <= 10; i++) {
		sleep_ms(1);
		pthread_kill(waiter.thread, SIGUSR1);
		while (atomic_load(&handler_runs) < i)
			sleep_ms(1);
	}
	check_end(handler_errors, 0);
	CHECK_VALUE(true, puppet_blocked(&waiter), "signal.the wait continues after the handler");
	pthread_mutex_unlock(&normal);
	CHECK_VALUE(0, puppet_result(&waiter), "signal.the wait succeeds");
	/* The same with contention inside the handler: the thread is queued for two mutexes at
	 * once. */
	pthread_mutex_lock(&normal);
	puppet_send(&waiter, op_lock_unlock, &normal);
	sleep_ms(SETTLE_MS);
	pthread_mutex_lock(&handler_mutex);
	int runs = atomic_load(&handler_runs);
	pthread_kill(waiter.thread, SIGUSR1);
	sleep_ms(SETTLE_MS);
	CHECK_VALUE(runs, atomic_load(&handler_runs), "signal.handler waits inside a wait");
	pthread_mutex_unlock(&handler_mutex);
	check_begin("signal.handler gets its mutex inside a wait");
	while (atomic_load(&handler_runs) == runs)
		sleep_ms(1);
	check_end(handler_errors, 0);
	pthread_mutex_unlock(&normal);
	CHECK_VALUE(0, puppet_result(&waiter), "signal.both waits succeed");
	puppet_end(&waiter);
}

/* ---- the end of the process ------------------------------------------------------------------ */

static pthread_mutex_t at_exit_mutex = PTHREAD_MUTEX_INITIALIZER;

static void at_exit(void)
{
	pthread_mutex_lock(&at_exit_mutex);
	pthread_mutex_unlock(&at_exit_mutex);
}

static long op_exit_with_waiters(void *ignored)
{
	(void)ignored;
	struct puppet p[3];
	atexit(at_exit);
	pthread_mutex_lock(&normal);
	for (int i = 0; i < 3; i++) {
		puppet_start(&p[i]);
		puppet_send(&p[i], i == 2 ? op_contend : op_lock_unlock,
			    i == 2 ? &at_exit_mutex : &normal);
	}
	atomic_store(&stop_contending, false);
	sleep_ms(SETTLE_MS);
	exit(42);
}

/* A C++ or atexit clean-up that locks while daemon threads still run. */
static void process_ends(void)
{
	CHECK_VALUE(42, in_child(op_exit_with_waiters, NULL),
		    "exit.process ends while threads wait");
}

int main(int argc, char **argv)
{
	check_start();
	forks();
	fork_in_contention();
	atfork();
	spawns();
	thread_ends();
	small_stacks();
	loaded_later(argc > 1 ? argv[1] : NULL);
	c11();
	neighbours();
	locks_in_handlers();
	process_ends();
	return check_finish();
}
