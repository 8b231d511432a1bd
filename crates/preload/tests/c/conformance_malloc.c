/* A program with its own malloc, guarded by one pthread mutex, as in jemalloc, tcmalloc and many
 * private pools. A lock function that allocates would re-enter that malloc, and deadlock or corrupt
 * it. The mutex is used before main, before the libraries' constructors, and at the start and end
 * of every thread. */
#include "check.h"

static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(64) char pool[64 << 20];
static size_t pool_used;

/* Set while this thread is inside a lock function that this malloc, or a check, called.
 * initial-exec, because a thread-local variable that is found by a call might allocate. */
static __thread int in_lock_function __attribute__((tls_model("initial-exec")));
static atomic_int reentries;
static atomic_long allocations;

static void pool_enter(void)
{
	if (in_lock_function)
		atomic_fetch_add(&reentries, 1);
	int outer = in_lock_function;
	in_lock_function = 1;
	if (!outer)
		pthread_mutex_lock(&pool_mutex);
	in_lock_function = outer;
}

static void pool_leave(void)
{
	int outer = in_lock_function;
	in_lock_function = 1;
	if (!outer)
		pthread_mutex_unlock(&pool_mutex);
	in_lock_function = outer;
}

/* Never reuses memory: the check is about callers, not about a good allocator. */
void *malloc(size_t size)
{
	pool_enter();
	atomic_fetch_add(&allocations, 1);
	size_t total = (size + 15) / 16 * 16 + 16;
	char *p = NULL;
	if (pool_used + total <= sizeof pool) {
		p = pool + pool_used;
		pool_used += total;
		*(size_t *)p = size;
		p += 16;
	}
	pool_leave();
	return p;
}

void free(void *p) { (void)p; }

void *calloc(size_t n, size_t size)
{
	/* The pool starts as zeroes and is never reused. */
	return size && n > SIZE_MAX / size ? NULL : malloc(n * size);
}

void *realloc(void *old, size_t size)
{
	char *p = malloc(size);
	if (p && old) {
		size_t before = *(size_t *)((char *)old - 16);
		memcpy(p, old, before < size ? before : size);
	}
	return p;
}

/* A lock call that must not allocate. */
#define LOCKED_CALL(expression)                 \
	do {                                    \
		in_lock_function = 1;           \
		errors |= (expression);         \
		in_lock_function = 0;           \
	} while (0)

static pthread_mutex_t mutexes[4] = {
	PTHREAD_MUTEX_INITIALIZER,
	PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
	PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
	PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
};
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static int waiting, go;
static struct timespec end_of_rounds;

static long op_locks(void *ignored)
{
	(void)ignored;
	int errors = 0;
	for (int i = 0; i < 200 && (i == 0 || !reached(CLOCK_MONOTONIC, end_of_rounds)); i++) {
		for (int k = 0; k < 4; k++) {
			LOCKED_CALL(pthread_mutex_lock(&mutexes[k]));
			if (i % 32 == k)
				sched_yield();
			LOCKED_CALL(pthread_mutex_unlock(&mutexes[k]));
		}
		LOCKED_CALL(pthread_rwlock_rdlock(&rwlock));
		LOCKED_CALL(pthread_rwlock_unlock(&rwlock));
		LOCKED_CALL(pthread_rwlock_wrlock(&rwlock));
		LOCKED_CALL(pthread_rwlock_unlock(&rwlock));
		LOCKED_CALL(pthread_spin_lock(&spin));
		LOCKED_CALL(pthread_spin_unlock(&spin));
		if (!malloc(32))
			errors |= 1;
	}
	return errors;
}

static long op_wait(void *ignored)
{
	(void)ignored;
	int errors = 0;
	LOCKED_CALL(pthread_mutex_lock(&mutexes[0]));
	waiting++;
	while (!go)
		LOCKED_CALL(pthread_cond_wait(&cond, &mutexes[0]));
	LOCKED_CALL(pthread_mutex_unlock(&mutexes[0]));
	return errors;
}

int main(void)
{
	check_start();
	enum { THREADS = 4 };
	struct puppet p[THREADS];
	long errors = 0;
	pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
	CHECK_VALUE(true, malloc(1) != NULL, "malloc.works");
	end_of_rounds = after_ms(CLOCK_MONOTONIC, 4 * ROUNDS_MS);
	/* New threads, so that each thread's first contended lock is included, also inside malloc.
	 */
	check_begin("malloc.contended locks and allocations");
	for (int i = 0; i < THREADS; i++) {
		puppet_start(&p[i]);
		puppet_send(&p[i], op_locks, NULL);
	}
	for (int i = 0; i < THREADS; i++)
		errors |= puppet_result(&p[i]) % ERRNO_CHANGED;
	check_end(errors, 0);
	for (int i = 0; i < THREADS; i++)
		puppet_send(&p[i], op_wait, NULL);
	check_begin("malloc.condition waits");
	for (int listed = 0; listed < THREADS; sleep_ms(1)) {
		pthread_mutex_lock(&mutexes[0]);
		listed = waiting;
		go = listed == THREADS;
		pthread_mutex_unlock(&mutexes[0]);
	}
	in_lock_function = 1;
	errors |= pthread_cond_broadcast(&cond);
	in_lock_function = 0;
	for (int i = 0; i < THREADS; i++)
		errors |= puppet_result(&p[i]) % ERRNO_CHANGED;
	check_end(errors, 0);
	for (int i = 0; i < THREADS; i++)
		puppet_end(&p[i]);
	check_begin("malloc.short-lived threads that lock and allocate");
	for (int i = 0; i < 50; i++)
		errors |= in_thread(op_locks, NULL) % ERRNO_CHANGED;
	check_end(errors, 0);
	CHECK_VALUE(true, atomic_load(&allocations) > THREADS, "malloc.is this program's");
	CHECK_VALUE(0, atomic_load(&reentries), "malloc.is never called from a lock function");
	return check_finish();
}
