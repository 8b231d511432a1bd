/* A randomised stress test of all lock functions together.
 *
 * Each operation draws its choices from its own generator, seeded with the seed, the thread and the
 * operation's number. So a seed gives the same choices in every thread, whatever the scheduler does
 * and however a timed call ends. The test checks:
 *
 *   - mutual exclusion: each mutex has a plain counter and an owner word; all counts agree in the
 *     end;
 *   - reader-writer exclusion: two plain words are equal whenever no writer is inside;
 *   - the queue: the sum of all items put equals the sum of items taken and items left;
 *   - no lost wake-up: a token passes around a ring of threads that wait without a deadline, and
 *     no other thread ever wakes them;
 *   - codes: every call returns a code that is allowed here, and leaves errno unchanged;
 *   - destruction: objects are destroyed and reinitialised as other kinds while the program runs;
 *   - progress: every thread ends an operation before this process has used 20 seconds of each
 *     processor's time, and within two minutes in any case.
 *
 * Exit status: 0 success; 1 a check failed (with the seed); 2 usage; 3 no progress.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hang.h"
#include "room.h"

enum {
	CELLS = 14,
	RWLOCKS = 3,
	SPINS = 2,
	PLACES = 8,
	RING = 3,
	MAX_THREADS = 256,
	STUCK_SECONDS = 20,
	/* Longer than a child waits for room (room.h). */
	STUCK_ASLEEP_SECONDS = 120,
};

static uint64_t seed;
static atomic_bool stop;

/* ---- each thread's activity, for the watchdog and for messages ------------------------------- */

struct status {
	char name[24];
	pthread_t thread;
	_Atomic(const char *) what;
	atomic_int object;
	atomic_long operations;
	/* Set while the thread waits for a child, which may wait for room. */
	atomic_bool has_child;
	/* For the watchdog only: the operations last seen, and the clocks at the thread's last
	 * progress. */
	long seen;
	double cpu, wall;
};

static struct status statuses[MAX_THREADS + RING];
static int status_count;
static __thread struct status *self;

static void doing(const char *what, int object)
{
	/* Short-lived threads have no entry; their parent waits for them and reports instead. */
	if (self) {
		atomic_store(&self->object, object);
		atomic_store(&self->what, what);
	}
}

static void print_all(void)
{
	for (int i = 0; i < status_count; i++)
		fprintf(stderr, "  %-10s operation %ld: %s %d\n", statuses[i].name,
			atomic_load(&statuses[i].operations), atomic_load(&statuses[i].what),
			atomic_load(&statuses[i].object));
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	static atomic_flag once = ATOMIC_FLAG_INIT;
	/* Only the first report counts; later threads wait for the exit. */
	while (atomic_flag_test_and_set(&once))
		pause();
	va_list args;
	va_start(args, format);
	fprintf(stderr, "stress: seed %llu: ", (unsigned long long)seed);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	print_all();
	_exit(1);
}

#define MUST(call)                                                                  \
	do {                                                                        \
		int code_ = (call);                                                 \
		if (code_ != 0)                                                     \
			fail("%s:%d: %s returned %d", __FILE__, __LINE__, #call, code_); \
	} while (0)

/* A value that no function sets: shows whether a call wrote errno. */
#define ERRNO_MARK 7777

/* The code of one lock function, which must leave errno unchanged. */
#define CODE(call)                                                                              \
	__extension__({                                                                         \
		errno = ERRNO_MARK;                                                             \
		int code_ = (call);                                                             \
		if (errno != ERRNO_MARK)                                                        \
			fail("%s:%d: %s set errno to %d", __FILE__, __LINE__, #call, errno);     \
		code_;                                                                          \
	})

static double seconds_of(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Other processes delay everything here, but do not add to the processor time of this process.
 * While any of its threads runs, that time is the measure; if all threads sleep, only the wall
 * clock is left. */
static void *watchdog(void *ignored)
{
	(void)ignored;
	double processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
	/* Checks four times a second, so that a short run ends promptly. */
	for (;;) {
		double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
		double wall = seconds_of(CLOCK_MONOTONIC);
		for (int i = 0; i < status_count; i++) {
			struct status *s = &statuses[i];
			long now = atomic_load(&s->operations);
			if (now != s->seen || s->wall == 0 || atomic_load(&room_waits)) {
				s->seen = now;
				s->cpu = cpu;
				s->wall = wall;
			}
			double ran = (cpu - s->cpu) / processors, passed = wall - s->wall;
			bool starves = ran >= STUCK_SECONDS && !atomic_load(&s->has_child);
			if ((starves || passed >= STUCK_ASLEEP_SECONDS) && atomic_load(&s->what)) {
				char what[100];
				snprintf(what, sizeof what,
					 "made no progress for %.1f s, "
					 "%.1f s of each processor's time; seed %llu",
					 passed, ran, (unsigned long long)seed);
				print_all();
				hang(s->name, what);
			}
		}
		usleep(250000);
	}
}

/* ---- choices --------------------------------------------------------------------------------- */

struct choice {
	uint64_t state;
};

/* splitmix64 (Steele, Lea and Flood, OOPSLA 2014): suits any seed, even 0, 1 and 2. */
static uint64_t draw(struct choice *c)
{
	uint64_t z = c->state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static int pick(struct choice *c, int n) { return (int)(draw(c) % (uint64_t)n); }

static struct choice choice_for(uint64_t thread, uint64_t operation)
{
	struct choice c = { seed };
	c.state = draw(&c) ^ thread << 40 ^ operation;
	draw(&c);
	return c;
}

static struct timespec soon(clockid_t clock, int microseconds)
{
	struct timespec t;
	clock_gettime(clock, &t);
	t.tv_nsec += microseconds * 1000L;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

/* ---- mutexes --------------------------------------------------------------------------------- */

struct cell {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int type;
	bool robust;
	/* Not atomic, on purpose: correct only if the mutex excludes. */
	long counter;
	uintptr_t owner;
	atomic_long expected;
};

static struct cell cells[CELLS];

static const struct { int type, shared, robust, protocol; } CELL_KINDS[CELLS] = {
	{ PTHREAD_MUTEX_NORMAL, 0, 0, 0 },
	{ PTHREAD_MUTEX_RECURSIVE, 0, 0, 0 },
	{ PTHREAD_MUTEX_ERRORCHECK, 0, 0, 0 },
	{ PTHREAD_MUTEX_ADAPTIVE_NP, 0, 0, 0 },
	{ PTHREAD_MUTEX_DEFAULT, 0, 0, 0 },
	{ PTHREAD_MUTEX_NORMAL, 0, 0, 0 },
	{ PTHREAD_MUTEX_RECURSIVE, 0, 0, 0 },
	{ PTHREAD_MUTEX_NORMAL, 0, 0, 0 },
	{ PTHREAD_MUTEX_NORMAL, 1, 0, 0 },
	{ PTHREAD_MUTEX_ERRORCHECK, 1, 0, 0 },
	{ PTHREAD_MUTEX_NORMAL, 0, 1, 0 },
	{ PTHREAD_MUTEX_RECURSIVE, 0, 1, 0 },
	{ PTHREAD_MUTEX_NORMAL, 0, 0, PTHREAD_PRIO_INHERIT },
	{ PTHREAD_MUTEX_ADAPTIVE_NP, 0, 0, 0 },
};

static void init_mutex(pthread_mutex_t *mutex, int kind)
{
	pthread_mutexattr_t attr;
	MUST(pthread_mutexattr_init(&attr));
	MUST(pthread_mutexattr_settype(&attr, CELL_KINDS[kind].type));
	MUST(pthread_mutexattr_setpshared(&attr, CELL_KINDS[kind].shared ? PTHREAD_PROCESS_SHARED
									: PTHREAD_PROCESS_PRIVATE));
	MUST(pthread_mutexattr_setrobust(&attr, CELL_KINDS[kind].robust ? PTHREAD_MUTEX_ROBUST
								       : PTHREAD_MUTEX_STALLED));
	MUST(pthread_mutexattr_setprotocol(&attr, CELL_KINDS[kind].protocol));
	MUST(pthread_mutex_init(mutex, &attr));
	MUST(pthread_mutexattr_destroy(&attr));
}

static void init_cond(pthread_cond_t *cond, clockid_t clock, bool shared)
{
	pthread_condattr_t attr;
	MUST(pthread_condattr_init(&attr));
	MUST(pthread_condattr_setclock(&attr, clock));
	MUST(pthread_condattr_setpshared(&attr, shared ? PTHREAD_PROCESS_SHARED
						       : PTHREAD_PROCESS_PRIVATE));
	MUST(pthread_cond_init(cond, &attr));
	MUST(pthread_condattr_destroy(&attr));
}

static void init_rwlock(pthread_rwlock_t *lock, int preference, bool shared)
{
	pthread_rwlockattr_t attr;
	MUST(pthread_rwlockattr_init(&attr));
	MUST(pthread_rwlockattr_setkind_np(&attr, preference));
	MUST(pthread_rwlockattr_setpshared(&attr, shared ? PTHREAD_PROCESS_SHARED
							 : PTHREAD_PROCESS_PRIVATE));
	MUST(pthread_rwlock_init(lock, &attr));
	MUST(pthread_rwlockattr_destroy(&attr));
}

static void cells_init(void)
{
	for (int i = 0; i < CELLS; i++) {
		init_mutex(&cells[i].mutex, i);
		init_cond(&cells[i].cond, i % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME, i % 5 == 3);
		cells[i].type = CELL_KINDS[i].type;
		cells[i].robust = CELL_KINDS[i].robust;
	}
}

static uintptr_t me(void) { return (uintptr_t)pthread_self(); }

/* Checks the code of an acquisition; true if the mutex is now held. `refusal` is the only other
 * code that this call may return. */
static bool acquired(struct cell *c, int code, int refusal, const char *call)
{
	if (code == EOWNERDEAD && c->robust) {
		MUST(pthread_mutex_consistent(&c->mutex));
		code = 0;
	}
	if (code == 0)
		return true;
	if (code != refusal)
		fail("%s on cell %d returned %d", call, (int)(c - cells), code);
	return false;
}

static void enter(struct cell *c)
{
	if (c->owner != 0)
		fail("cell %d entered while %#lx is inside", (int)(c - cells),
		     (unsigned long)c->owner);
	c->owner = me();
}

static void leave(struct cell *c)
{
	if (c->owner != me())
		fail("cell %d belongs to %#lx on release", (int)(c - cells),
		     (unsigned long)c->owner);
	c->owner = 0;
}

static void hold(struct choice *ch)
{
	int how = pick(ch, 100);
	int turns = pick(ch, 200);
	for (volatile int i = 0; i < turns; i++)
		;
	if (how < 4)
		sched_yield();
	else if (how == 4)
		usleep(100);
}

static void inside(struct cell *c, struct choice *ch)
{
	enter(c);
	c->counter++;
	atomic_fetch_add(&c->expected, 1);
	hold(ch);
	leave(c);
}

static bool acquire_somehow(struct cell *c, struct choice *ch)
{
	int number = (int)(c - cells), delay = pick(ch, 2000);
	struct timespec t;
	switch (pick(ch, 6)) {
	case 0:
		doing("trylock cell", number);
		return acquired(c, CODE(pthread_mutex_trylock(&c->mutex)), EBUSY, "trylock");
	case 1:
		doing("timedlock cell", number);
		t = soon(CLOCK_REALTIME, delay);
		return acquired(c, CODE(pthread_mutex_timedlock(&c->mutex, &t)), ETIMEDOUT,
				"timedlock");
	case 2:
		doing("clocklock cell", number);
		t = soon(CLOCK_MONOTONIC, delay);
		return acquired(c, CODE(pthread_mutex_clocklock(&c->mutex, CLOCK_MONOTONIC, &t)),
				ETIMEDOUT, "clocklock");
	default:
		doing("lock cell", number);
		return acquired(c, CODE(pthread_mutex_lock(&c->mutex)), 0, "lock");
	}
}

static void lock_one(struct choice *ch)
{
	struct cell *c = &cells[pick(ch, CELLS)];
	if (!acquire_somehow(c, ch))
		return;
	inside(c, ch);
	if (c->type == PTHREAD_MUTEX_RECURSIVE) {
		doing("relock cell", (int)(c - cells));
		MUST(CODE(pthread_mutex_lock(&c->mutex)));
		inside(c, ch);
		MUST(CODE(pthread_mutex_trylock(&c->mutex)));
		MUST(CODE(pthread_mutex_unlock(&c->mutex)));
		MUST(CODE(pthread_mutex_unlock(&c->mutex)));
	} else if (c->type == PTHREAD_MUTEX_ERRORCHECK &&
		   CODE(pthread_mutex_lock(&c->mutex)) != EDEADLK) {
		fail("cell %d was locked twice", (int)(c - cells));
	}
	MUST(CODE(pthread_mutex_unlock(&c->mutex)));
}

/* Two cells at once, in the order of their numbers. */
static void lock_two(struct choice *ch)
{
	int a = pick(ch, CELLS - 1), b = a + 1 + pick(ch, CELLS - 1 - a);
	if (!acquire_somehow(&cells[a], ch))
		return;
	if (acquire_somehow(&cells[b], ch)) {
		inside(&cells[b], ch);
		MUST(CODE(pthread_mutex_unlock(&cells[b].mutex)));
	}
	inside(&cells[a], ch);
	MUST(CODE(pthread_mutex_unlock(&cells[a].mutex)));
}

static void wait_in_cell(struct choice *ch)
{
	int number = pick(ch, CELLS), delay = pick(ch, 1500);
	struct cell *c = &cells[number];
	doing("lock before wait, cell", number);
	if (!acquired(c, CODE(pthread_mutex_lock(&c->mutex)), 0, "lock"))
		return;
	inside(c, ch);
	doing("wait in cell", number);
	clockid_t clock = number % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
	struct timespec t = soon(clock, delay);
	int code = pick(ch, 2) ? CODE(pthread_cond_timedwait(&c->cond, &c->mutex, &t))
			       : CODE(pthread_cond_clockwait(&c->cond, &c->mutex, clock, &t));
	if (code == EOWNERDEAD && c->robust)
		MUST(pthread_mutex_consistent(&c->mutex));
	else if (code != 0 && code != ETIMEDOUT)
		fail("wait in cell %d returned %d", number, code);
	inside(c, ch);
	MUST(CODE(pthread_mutex_unlock(&c->mutex)));
}

static void wake_cell(struct choice *ch)
{
	struct cell *c = &cells[pick(ch, CELLS)];
	doing("signal cell", (int)(c - cells));
	MUST(pick(ch, 3) ? CODE(pthread_cond_signal(&c->cond))
			 : CODE(pthread_cond_broadcast(&c->cond)));
}

/* ---- reader-writer locks and spin locks ------------------------------------------------------ */

static const int PREFERENCES[RWLOCKS] = { PTHREAD_RWLOCK_PREFER_READER_NP,
					 PTHREAD_RWLOCK_PREFER_WRITER_NP,
					  PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP };

static struct shelf {
	pthread_rwlock_t lock;
	long left, right;
	atomic_long expected;
	atomic_int writers;
} shelves[RWLOCKS];

static void use_shelf(struct choice *ch)
{
	int number = pick(ch, RWLOCKS), how = pick(ch, 5), delay = pick(ch, 2000);
	bool write = pick(ch, 4) == 0;
	struct shelf *s = &shelves[number];
	struct timespec t;
	int code;
	doing(write ? "write shelf" : "read shelf", number);
	switch (how) {
	case 0:
		code = write ? CODE(pthread_rwlock_trywrlock(&s->lock))
			     : CODE(pthread_rwlock_tryrdlock(&s->lock));
		break;
	case 1:
		t = soon(CLOCK_REALTIME, delay);
		code = write ? CODE(pthread_rwlock_timedwrlock(&s->lock, &t))
			     : CODE(pthread_rwlock_timedrdlock(&s->lock, &t));
		break;
	case 2:
		t = soon(CLOCK_MONOTONIC, delay);
		code = write ? CODE(pthread_rwlock_clockwrlock(&s->lock, CLOCK_MONOTONIC, &t))
			     : CODE(pthread_rwlock_clockrdlock(&s->lock, CLOCK_MONOTONIC, &t));
		break;
	default:
		code = write ? CODE(pthread_rwlock_wrlock(&s->lock))
			     : CODE(pthread_rwlock_rdlock(&s->lock));
		break;
	}
	if (code != 0) {
		if (code != (how == 0 ? EBUSY : how <= 2 ? ETIMEDOUT : 0))
			fail("shelf %d: method %d returned %d", number, how, code);
		return;
	}
	if (write) {
		if (atomic_fetch_add(&s->writers, 1) != 0)
			fail("two writers at shelf %d", number);
		s->left++;
		hold(ch);
		s->right++;
		atomic_fetch_add(&s->expected, 1);
		if (CODE(pthread_rwlock_rdlock(&s->lock)) != EDEADLK)
			fail("writer of shelf %d became a reader too", number);
		atomic_fetch_sub(&s->writers, 1);
	} else {
		long left = s->left;
		hold(ch);
		if (atomic_load(&s->writers) != 0 || left != s->left || left != s->right)
			fail("reader of shelf %d beside a writer", number);
	}
	MUST(CODE(pthread_rwlock_unlock(&s->lock)));
}

static struct spun {
	pthread_spinlock_t lock;
	long counter;
	atomic_long expected;
} spins[SPINS];

static void use_spin(struct choice *ch)
{
	int number = pick(ch, SPINS);
	struct spun *s = &spins[number];
	doing("spin", number);
	if (pick(ch, 3) == 0) {
		int code = CODE(pthread_spin_trylock(&s->lock));
		if (code == EBUSY)
			return;
		MUST(code);
	} else {
		MUST(CODE(pthread_spin_lock(&s->lock)));
	}
	s->counter++;
	atomic_fetch_add(&s->expected, 1);
	MUST(CODE(pthread_spin_unlock(&s->lock)));
}

/* ---- objects that are destroyed and reinitialised in place, as another kind ------------------ */

/* Users hold `in_use` for reading; a thread that reinitialises the objects holds it for writing. */
static struct {
	pthread_rwlock_t in_use;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	pthread_rwlock_t rwlock;
	pthread_spinlock_t spin;
	int kind;
	clockid_t clock;
	long counter, spun;
	atomic_long expected, spun_expected;
} remade;

static void remade_make(struct choice *ch)
{
	int preference = pick(ch, RWLOCKS);
	remade.kind = pick(ch, CELLS);
	remade.clock = pick(ch, 2) ? CLOCK_MONOTONIC : CLOCK_REALTIME;
	init_mutex(&remade.mutex, remade.kind);
	init_cond(&remade.cond, remade.clock, pick(ch, 3) == 0);
	init_rwlock(&remade.rwlock, PREFERENCES[preference], pick(ch, 3) == 0);
	MUST(pthread_spin_init(&remade.spin,
			       pick(ch, 3) ? PTHREAD_PROCESS_PRIVATE : PTHREAD_PROCESS_SHARED));
}

static void remade_init(void)
{
	struct choice ch = choice_for(MAX_THREADS + RING, 1);
	init_rwlock(&remade.in_use, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, false);
	remade_make(&ch);
}

static void remake(struct choice *ch)
{
	doing("remake", 0);
	MUST(CODE(pthread_rwlock_wrlock(&remade.in_use)));
	MUST(pthread_mutex_destroy(&remade.mutex));
	MUST(pthread_cond_destroy(&remade.cond));
	MUST(pthread_rwlock_destroy(&remade.rwlock));
	MUST(pthread_spin_destroy(&remade.spin));
	remade_make(ch);
	MUST(CODE(pthread_rwlock_unlock(&remade.in_use)));
}

static void use_remade(struct choice *ch)
{
	int how = pick(ch, 4), delay = pick(ch, 300);
	doing("use remade", how);
	MUST(CODE(pthread_rwlock_rdlock(&remade.in_use)));
	switch (how) {
	case 0:
		MUST(pick(ch, 2) ? CODE(pthread_rwlock_rdlock(&remade.rwlock))
				 : CODE(pthread_rwlock_wrlock(&remade.rwlock)));
		MUST(CODE(pthread_rwlock_unlock(&remade.rwlock)));
		break;
	case 1:
		MUST(CODE(pthread_spin_lock(&remade.spin)));
		remade.spun++;
		atomic_fetch_add(&remade.spun_expected, 1);
		MUST(CODE(pthread_spin_unlock(&remade.spin)));
		break;
	default:
		MUST(CODE(pthread_mutex_lock(&remade.mutex)));
		remade.counter++;
		atomic_fetch_add(&remade.expected, 1);
		if (how == 2) {
			struct timespec t = soon(remade.clock, delay);
			int code = CODE(pthread_cond_timedwait(&remade.cond, &remade.mutex, &t));
			if (code != 0 && code != ETIMEDOUT)
				fail("wait with a reinitialised mutex of kind %d returned %d",
				     remade.kind, code);
		} else {
			MUST(CODE(pthread_cond_signal(&remade.cond)));
		}
		MUST(CODE(pthread_mutex_unlock(&remade.mutex)));
		break;
	}
	MUST(CODE(pthread_rwlock_unlock(&remade.in_use)));
}

/* ---- the queue ------------------------------------------------------------------------------- */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t not_empty, not_full;
	long place[PLACES];
	int first, used;
	long put, taken;
} queue = { .mutex = PTHREAD_MUTEX_INITIALIZER, .not_empty = PTHREAD_COND_INITIALIZER,
	    .not_full = PTHREAD_COND_INITIALIZER };

static void use_queue(struct choice *ch)
{
	bool put = pick(ch, 2);
	long item = 1 + pick(ch, 1000);
	int delay = pick(ch, 3000);
	pthread_cond_t *mine = put ? &queue.not_full : &queue.not_empty;
	struct timespec t = soon(CLOCK_MONOTONIC, delay);
	doing(put ? "put" : "take", 0);
	MUST(CODE(pthread_mutex_lock(&queue.mutex)));
	int code = 0;
	while (queue.used == (put ? PLACES : 0) && code == 0)
		code = CODE(pthread_cond_clockwait(mine, &queue.mutex, CLOCK_MONOTONIC, &t));
	if (code != 0 && code != ETIMEDOUT)
		fail("wait at the queue returned %d", code);
	/* After a time-out the queue may have changed. */
	if (put && queue.used < PLACES) {
		queue.place[(queue.first + queue.used++) % PLACES] = item;
		queue.put += item;
		MUST(CODE(pthread_cond_signal(&queue.not_empty)));
	} else if (!put && queue.used > 0) {
		queue.taken += queue.place[queue.first];
		queue.first = (queue.first + 1) % PLACES;
		queue.used--;
		MUST(CODE(pthread_cond_signal(&queue.not_full)));
	}
	MUST(CODE(pthread_mutex_unlock(&queue.mutex)));
}

/* ---- the ring: no other thread touches it, so a lost wake-up stays lost ---------------------- */

/* The seed chooses the mutex's kind. */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t cond[RING];
	int at;
	long rounds;
} ring;

static void *run_ring(void *status)
{
	self = status;
	int mine = (int)(self - statuses) % RING;
	MUST(CODE(pthread_mutex_lock(&ring.mutex)));
	while (!atomic_load(&stop)) {
		doing("wait in the ring", mine);
		while (ring.at != mine && !atomic_load(&stop))
			MUST(CODE(pthread_cond_wait(&ring.cond[mine], &ring.mutex)));
		if (ring.at == mine) {
			ring.at = (mine + 1) % RING;
			ring.rounds++;
			MUST(CODE(pthread_cond_signal(&ring.cond[ring.at])));
		}
		atomic_fetch_add(&self->operations, 1);
	}
	MUST(CODE(pthread_mutex_unlock(&ring.mutex)));
	atomic_store(&self->what, NULL);
	return NULL;
}

/* ---- threads that live for one operation ----------------------------------------------------- */

static void any_short_operation(struct choice *ch);

struct child {
	uint64_t thread, operation;
};

static void *run_short(void *child)
{
	struct child *c = child;
	struct choice ch = choice_for(c->thread | 1 << 20, c->operation);
	for (int n = 1 + pick(&ch, 3); n > 0; n--)
		any_short_operation(&ch);
	return NULL;
}

static void short_threads(struct choice *ch, uint64_t thread, uint64_t operation)
{
	pthread_t threads[4];
	struct child children[4];
	int n = 1 + pick(ch, 4);
	doing("join short threads", n);
	for (int i = 0; i < n; i++) {
		children[i] = (struct child){ thread << 3 | (uint64_t)i, operation };
		MUST(thread_create(&threads[i], NULL, run_short, &children[i]));
	}
	for (int i = 0; i < n; i++)
		MUST(pthread_join(threads[i], NULL));
}

/* Locks a robust cell and ends: the next thread to lock it inherits it. */
static void *run_dying(void *cell)
{
	struct cell *c = cell;
	acquired(c, CODE(pthread_mutex_lock(&c->mutex)), 0, "lock");
	return NULL;
}

static void dying_owner(struct choice *ch)
{
	pthread_t thread;
	int number = 10 + pick(ch, 2);
	doing("join a dying owner of cell", number);
	MUST(thread_create(&thread, NULL, run_dying, &cells[number]));
	MUST(pthread_join(thread, NULL));
}

struct cancelled {
	struct cell *cell;
	bool cleaned_up;
	/* A private condition, so that only the cancellation ends the wait; the mutex is shared. */
	pthread_cond_t cond;
	bool asynchronous;
	atomic_bool waiting;
	atomic_int tid;
};

static void cancelled_clean_up(void *cancelled)
{
	struct cancelled *x = cancelled;
	struct cell *c = x->cell;
	/* The mutex is held again, so this thread is the only one inside. */
	enter(c);
	c->counter++;
	atomic_fetch_add(&c->expected, 1);
	leave(c);
	MUST(CODE(pthread_mutex_unlock(&c->mutex)));
	x->cleaned_up = true;
}

static void *run_cancelled(void *cancelled)
{
	struct cancelled *x = cancelled;
	acquired(x->cell, CODE(pthread_mutex_lock(&x->cell->mutex)), 0, "lock");
	pthread_cleanup_push(cancelled_clean_up, x);
	int old;
	if (x->asynchronous)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
	atomic_store(&x->tid, gettid());
	atomic_store(&x->waiting, true);
	for (;;) {
		int code = CODE(pthread_cond_wait(&x->cond, &x->cell->mutex));
		if (code != 0)
			fail("cancellable wait returned %d", code);
	}
	pthread_cleanup_pop(0);
	return NULL;
}

/* Whether the kernel reports that thread `tid` sleeps. */
static bool sleeps(int tid)
{
	char path[64], text[256];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	FILE *f = fopen(path, "re");
	char *end = f && fgets(text, sizeof text, f) ? strrchr(text, ')') : NULL;
	if (f)
		fclose(f);
	return end && end[2] == 'S';
}

static void cancel_a_wait(struct choice *ch)
{
	pthread_t thread;
	void *result;
	/* No robust cells: a handler cannot repair a mutex whose owner died. */
	struct cancelled x = { .cell = &cells[pick(ch, 10)], .cond = PTHREAD_COND_INITIALIZER };
	x.asynchronous = pick(ch, 4) == 0;
	int early = pick(ch, 4), delay = pick(ch, 300);
	doing("cancel a wait in cell", (int)(x.cell - cells));
	MUST(thread_create(&thread, NULL, run_cancelled, &x));
	if (early || x.asynchronous) {
		while (!atomic_load(&x.waiting))
			sched_yield();
		usleep(delay);
	}
	if (x.asynchronous) {
		/* Cancel only once the thread sleeps in its wait: glibc does not handle
		 * asynchronous cancellation elsewhere in a wait. The thread has released the mutex,
		 * so it does not sleep for the mutex. */
		acquired(x.cell, CODE(pthread_mutex_lock(&x.cell->mutex)), 0, "lock");
		MUST(CODE(pthread_mutex_unlock(&x.cell->mutex)));
		while (!sleeps(atomic_load(&x.tid)))
			sched_yield();
	}
	MUST(pthread_cancel(thread));
	if (delay % 2 && !x.asynchronous)
		MUST(CODE(pthread_cond_signal(&x.cond)));
	MUST(pthread_join(thread, &result));
	if (result != PTHREAD_CANCELED)
		fail("a cancelled thread returned normally");
	if (atomic_load(&x.waiting) && !x.cleaned_up)
		fail("a cancelled wait did not run its clean-up");
	MUST(pthread_cond_destroy(&x.cond));
}

/* A mutex, a condition and a rwlock in memory that is freed right after use by two threads. */
struct fleeting {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	pthread_rwlock_t rwlock;
	int stage;
};

static void *run_fleeting(void *fleeting)
{
	struct fleeting *f = fleeting;
	MUST(CODE(pthread_rwlock_wrlock(&f->rwlock)));
	MUST(CODE(pthread_rwlock_unlock(&f->rwlock)));
	MUST(CODE(pthread_mutex_lock(&f->mutex)));
	f->stage = 1;
	MUST(CODE(pthread_cond_signal(&f->cond)));
	MUST(CODE(pthread_mutex_unlock(&f->mutex)));
	return NULL;
}

static void fleeting_locks(struct choice *ch)
{
	struct fleeting *f = malloc(sizeof *f);
	pthread_t thread;
	int kind = pick(ch, CELLS), preference = pick(ch, RWLOCKS);
	doing("fleeting locks", kind);
	memset(f, 0x5a, sizeof *f);
	init_mutex(&f->mutex, kind);
	init_cond(&f->cond, CLOCK_REALTIME, pick(ch, 3) == 0);
	init_rwlock(&f->rwlock, PREFERENCES[preference], pick(ch, 3) == 0);
	f->stage = 0;
	MUST(thread_create(&thread, NULL, run_fleeting, f));
	MUST(CODE(pthread_rwlock_rdlock(&f->rwlock)));
	MUST(CODE(pthread_rwlock_unlock(&f->rwlock)));
	MUST(CODE(pthread_mutex_lock(&f->mutex)));
	while (f->stage == 0)
		MUST(CODE(pthread_cond_wait(&f->cond, &f->mutex)));
	MUST(CODE(pthread_mutex_unlock(&f->mutex)));
	MUST(pthread_mutex_destroy(&f->mutex));
	MUST(pthread_cond_destroy(&f->cond));
	MUST(pthread_join(thread, NULL));
	MUST(pthread_rwlock_destroy(&f->rwlock));
	free(f);
}

/* ---- processes and signals ------------------------------------------------------------------- */

static void *run_child_thread(void *mutex)
{
	long errors = 0;
	for (int i = 0; i < 20; i++) {
		errors |= pthread_mutex_lock(mutex);
		if (i % 8 == 0)
			sched_yield();
		errors |= pthread_mutex_unlock(mutex);
	}
	return (void *)errors;
}

/* The child may use the cell that its thread held, and new locks, also with its own threads. */
static int forked_child(struct cell *c, bool threads)
{
	pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
	int errors = pthread_mutex_unlock(&c->mutex);
	if (threads) {
		pthread_t t[3];
		for (int i = 0; i < 3; i++)
			errors |= thread_create(&t[i], NULL, run_child_thread, &c->mutex);
		for (int i = 0; i < 3 && !errors; i++) {
			void *result;
			errors |= pthread_join(t[i], &result) | (int)(intptr_t)result;
		}
	}
	errors |= pthread_mutex_lock(&c->mutex);
	errors |= pthread_mutex_unlock(&c->mutex);
	errors |= pthread_mutex_lock(&fresh);
	errors |= pthread_mutex_unlock(&fresh);
	return errors;
}

static void fork_holding(struct choice *ch)
{
	/* Kinds without an owner, which a child may unlock. */
	static const int UNOWNED[] = { 0, 3, 4, 5, 7, 13 };
	int number = UNOWNED[pick(ch, 6)];
	struct cell *c = &cells[number];
	doing("lock to fork, cell", number);
	MUST(CODE(pthread_mutex_lock(&c->mutex)));
	inside(c, ch);
	bool threads = pick(ch, 2), spawns = pick(ch, 3) == 0;
	pid_t child;
	if (spawns) {
		extern char **environ;
		char *const arguments[] = { "/bin/true", NULL };
		doing("spawn holding cell", number);
		int error = posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ);
		if (error) {
			child = -1;
			errno = error;
		}
	} else {
		doing("fork holding cell", number);
		child = fork();
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(forked_child(c, threads));
		}
	}
	int error = errno;
	MUST(CODE(pthread_mutex_unlock(&c->mutex)));
	/* Do not wait for room here: other threads need the mutex. A later operation may find room.
	 */
	if (child < 0) {
		if (error != EAGAIN && error != ENOMEM)
			fail("cannot create a child: error %d", error);
		return;
	}
	if (self)
		atomic_store(&self->has_child, true);
	int status = await_child(child);
	if (self)
		atomic_store(&self->has_child, false);
	if (status != 0)
		fail("a child forked with cell %d held ended with status %#x", number, status);
}

static atomic_long signals_handled;

/* Used only by handlers, which mask each other. A thread may wait for it inside another wait. */
static pthread_mutex_t handlers_mutex = PTHREAD_MUTEX_INITIALIZER;
static long handlers_count;

static void on_signal(int sig)
{
	int saved = errno;
	if (sig == SIGUSR2) {
		pthread_mutex_lock(&handlers_mutex);
		handlers_count++;
		pthread_mutex_unlock(&handlers_mutex);
	}
	atomic_fetch_add(&signals_handled, 1);
	errno = saved;
}

static void signal_someone(struct choice *ch)
{
	int target = pick(ch, status_count);
	doing("signal thread", target);
	/* SIGUSR1 restarts system calls; SIGUSR2 does not, and its handler locks. */
	pthread_kill(statuses[target].thread, pick(ch, 2) ? SIGUSR1 : SIGUSR2);
}

/* ---- running --------------------------------------------------------------------------------- */

static void any_short_operation(struct choice *ch)
{
	switch (pick(ch, 16)) {
	case 0: case 1: case 2: case 3: case 4: lock_one(ch); break;
	case 5: lock_two(ch); break;
	case 6: wait_in_cell(ch); break;
	case 7: case 8: wake_cell(ch); break;
	case 9: case 10: case 11: use_shelf(ch); break;
	case 12: use_spin(ch); break;
	case 13: use_remade(ch); break;
	default: use_queue(ch); break;
	}
}

static pthread_barrier_t start;

static void *run_worker(void *status)
{
	self = status;
	uint64_t thread = (uint64_t)(self - statuses);
	pthread_barrier_wait(&start);
	for (uint64_t operation = 0; !atomic_load(&stop); operation++) {
		struct choice ch = choice_for(thread, operation);
		int what = pick(&ch, 1000);
		if (what < 40)
			short_threads(&ch, thread, operation);
		else if (what < 55)
			cancel_a_wait(&ch);
		else if (what < 70)
			fleeting_locks(&ch);
		else if (what < 75)
			dying_owner(&ch);
		else if (what < 80)
			fork_holding(&ch);
		else if (what < 120)
			signal_someone(&ch);
		else if (what < 123)
			remake(&ch);
		else
			any_short_operation(&ch);
		atomic_fetch_add(&self->operations, 1);
	}
	atomic_store(&self->what, NULL);
	return NULL;
}

static long number(const char *option, const char *text, long low, long high)
{
	char *end;
	errno = 0;
	long value = text ? strtol(text, &end, 10) : 0;
	if (!text || *end || end == text || errno || value < low || value > high) {
		fprintf(stderr, "stress: %s takes a number from %ld to %ld\n", option, low, high);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	long seconds = 5, threads = 8;
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	seed = (uint64_t)(now.tv_nsec ^ now.tv_sec) % 1000000;
	for (int i = 1; i < argc; i += 2) {
		if (strcmp(argv[i], "--seed") == 0)
			seed = (uint64_t)number(argv[i], argv[i + 1], 0, INT64_MAX);
		else if (strcmp(argv[i], "--seconds") == 0)
			seconds = number(argv[i], argv[i + 1], 1, 1000000);
		else if (strcmp(argv[i], "--threads") == 0)
			threads = number(argv[i], argv[i + 1], 1, MAX_THREADS);
		else {
			fprintf(stderr, "usage: stress [--seed N] [--seconds S] [--threads N]\n");
			return 2;
		}
	}
	/* A long run must not fill the disk: only this line, the last line and failures are
	 * printed. */
	printf("seed %llu, %ld s, %ld threads\n", (unsigned long long)seed, seconds, threads);
	fflush(stdout);

	cells_init();
	for (int i = 0; i < RWLOCKS; i++)
		init_rwlock(&shelves[i].lock, PREFERENCES[i], false);
	remade_init();
	struct choice first = choice_for(MAX_THREADS + RING, 0);
	int ring_kind = pick(&first, CELLS);
	bool ring_shared = pick(&first, 2);
	init_mutex(&ring.mutex, ring_kind);
	for (int i = 0; i < SPINS; i++)
		MUST(pthread_spin_init(&spins[i].lock, PTHREAD_PROCESS_PRIVATE));
	for (int i = 0; i < RING; i++)
		init_cond(&ring.cond[i], CLOCK_REALTIME, ring_shared);
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	sigfillset(&action.sa_mask);
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags = 0;
	sigaction(SIGUSR2, &action, NULL);

	/* The ring's threads come first: their numbers are their positions in the ring. */
	MUST(pthread_barrier_init(&start, NULL, (unsigned)threads + 1));
	int total = RING + (int)threads;
	for (int i = 0; i < total; i++) {
		struct status *s = &statuses[i];
		snprintf(s->name, sizeof s->name, i < RING ? "ring %d" : "worker %d",
			 i < RING ? i : i - RING);
		atomic_store(&s->what, "start");
		MUST(thread_create(&s->thread, NULL, i < RING ? run_ring : run_worker, s));
	}
	status_count = total;
	/* Workers read each other's thread handles, all of which are now set. */
	pthread_barrier_wait(&start);
	pthread_t dog;
	MUST(thread_create(&dog, NULL, watchdog, NULL));

	struct timespec end;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += seconds;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
		;
	/* Require progress of every thread first, with the watchdog active: the shutdown wakes the
	 * ring and would hide a lost token. */
	long before[MAX_THREADS + RING];
	for (int i = 0; i < total; i++)
		before[i] = atomic_load(&statuses[i].operations);
	for (int i = 0; i < total; i++)
		while (atomic_load(&statuses[i].operations) == before[i])
			usleep(1000);
	atomic_store(&stop, true);
	MUST(CODE(pthread_mutex_lock(&ring.mutex)));
	for (int i = 0; i < RING; i++)
		MUST(CODE(pthread_cond_broadcast(&ring.cond[i])));
	MUST(CODE(pthread_mutex_unlock(&ring.mutex)));
	long operations = 0;
	for (int i = 0; i < total; i++) {
		MUST(pthread_join(statuses[i].thread, NULL));
		operations += atomic_load(&statuses[i].operations);
	}

	for (int i = 0; i < CELLS; i++)
		if (cells[i].counter != atomic_load(&cells[i].expected))
			fail("cell %d counted %ld of %ld", i, cells[i].counter,
			     atomic_load(&cells[i].expected));
	for (int i = 0; i < RWLOCKS; i++)
		if (shelves[i].left != atomic_load(&shelves[i].expected) ||
		    shelves[i].left != shelves[i].right)
			fail("shelf %d counted %ld and %ld of %ld", i, shelves[i].left,
			     shelves[i].right,
			     atomic_load(&shelves[i].expected));
	for (int i = 0; i < SPINS; i++)
		if (spins[i].counter != atomic_load(&spins[i].expected))
			fail("spin lock %d counted %ld of %ld", i, spins[i].counter,
			     atomic_load(&spins[i].expected));
	if (remade.counter != atomic_load(&remade.expected) ||
	    remade.spun != atomic_load(&remade.spun_expected))
		fail("reinitialised objects counted %ld of %ld, and %ld of %ld",
		     remade.counter, atomic_load(&remade.expected), remade.spun,
		     atomic_load(&remade.spun_expected));
	long left = 0;
	for (int i = 0; i < queue.used; i++)
		left += queue.place[(queue.first + i) % PLACES];
	if (queue.put != queue.taken + left)
		fail("queue: %ld put, %ld taken, %ld left", queue.put, queue.taken, left);
	for (int i = 0; i < CELLS; i++) {
		struct cell *c = &cells[i];
		if (!acquired(c, CODE(pthread_mutex_lock(&c->mutex)), 0, "last lock"))
			fail("cell %d is not free at the end", i);
		MUST(CODE(pthread_mutex_unlock(&c->mutex)));
		MUST(pthread_mutex_destroy(&c->mutex));
		MUST(pthread_cond_destroy(&c->cond));
	}
	printf("ok: %ld operations, %ld in the ring, %ld signals\n", operations, ring.rounds,
	       atomic_load(&signals_handled));
	return 0;
}
