/* Destruction of mutexes that waiters of a condition variable will acquire again;
 * conformance_destroy.c describes glibc's count. */
#include "destroy.h"

static long op_destroy(void *m) { return pthread_mutex_destroy(m); }
static long op_remake_destroy(void *m)
{
	long error = make(m);
	return error ? error : pthread_mutex_destroy(m);
}

static void waiters(int n, int how, int shared)
{
	static const char *const HOWS[] = { "wait", "timedwait", "clockwait" };
	char what[60];
	struct puppet *const puppets[] = { &now.a, &now.b };
	struct stay s;
	pthread_cond_t c;
	snprintf(what, sizeof what, "%d in %s%s", n, HOWS[how],
		 shared == SHARED ? " (shared)" : "");
	make(&now.mutex);
	make_cond(&c, shared);
	begin_stay(&s, &c, how, LATER_MS);
	for (int i = 0; i < n; i++)
		puppet_send(puppets[i], op_wait, &s);
	check_begin("destroy.%s %s: all wait", now.name, what);
	until_waiting(&s, n);
	check_end(0, 0);
	CHECK_DESTROY(EBUSY, "%s: locked", what);
	pthread_mutex_unlock(&now.mutex);
	for (int left = n; left > 0; left--) {
		CHECK_DESTROY(EBUSY, "%s: %d left", what, left);
		/* The child inherits the count of threads that do not exist there. */
		if (how == WAIT && shared == PRIVATE) {
			CHECK_VALUE(EBUSY, in_child(op_destroy, &now.mutex),
				    "destroy.%s %s: in a child", now.name, what);
			CHECK_VALUE(0, in_child(op_remake_destroy, &now.mutex),
				    "destroy.%s %s: reinitialised in a child",
				    now.name, what);
		}
		pthread_mutex_lock(&now.mutex);
		atomic_fetch_add(&s.tokens, 1);
		pthread_cond_signal(&c);
		CHECK_DESTROY(EBUSY, "%s: signalled, and locked", what);
		pthread_mutex_unlock(&now.mutex);
		CHECK_DESTROY(EBUSY, "%s: signalled", what);
		puppet_wait_sem(&s.holds);
		CHECK_DESTROY(EBUSY, "%s: the waiter holds it", what);
		sem_post(&s.leave);
		/* This thread gets the mutex only after the waiter has released it. */
		pthread_mutex_lock(&now.mutex);
		pthread_mutex_unlock(&now.mutex);
	}
	for (int i = 0; i < n; i++)
		puppet_result(puppets[i]);
	CHECK_DESTROY(0, "%s: no waiters left", what);
	CHECK(0, pthread_cond_destroy(&c), "destroy.%s %s: the condition", now.name, what);
}

static void timed_out(void)
{
	struct stay s;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	make(&now.mutex);
	begin_stay(&s, &c, TIMEDWAIT, 5);
	puppet_send(&now.a, op_wait, &s);
	puppet_wait_sem(&s.holds);
	CHECK_DESTROY(EBUSY, "held after a time-out");
	sem_post(&s.leave);
	CHECK_VALUE(ETIMEDOUT, puppet_result(&now.a) % ERRNO_CHANGED,
		    "destroy.%s the wait timed out", now.name);
	CHECK_DESTROY(0, "unlocked after a time-out");
	/* Two waits time out while another thread holds the mutex. */
	make(&now.mutex);
	begin_stay(&s, &c, CLOCKWAIT, 5);
	sem_post(&s.leave);
	sem_post(&s.leave);
	puppet_send(&now.a, op_wait, &s);
	puppet_send(&now.b, op_wait, &s);
	until_waiting(&s, 2);
	sleep_ms(5 + SETTLE_MS);
	CHECK_DESTROY(EBUSY, "locked, with timed-out waiters");
	pthread_mutex_unlock(&now.mutex);
	long first = puppet_result(&now.a) % ERRNO_CHANGED;
	long second = puppet_result(&now.b) % ERRNO_CHANGED;
	CHECK_VALUE(true, first == ETIMEDOUT && second == ETIMEDOUT, "destroy.%s both timed out",
		    now.name);
	CHECK_DESTROY(0, "after waits that ended while it was locked");
}

static sem_t in_handler, end_handler;

static void on_signal(int sig)
{
	(void)sig;
	int saved = errno;
	sem_post(&in_handler);
	puppet_wait_sem(&end_handler);
	errno = saved;
}

/* The waiter runs a signal handler at the end of its wait: it is signalled but cannot take the
 * mutex yet. */
static void not_yet_awake(bool broadcast)
{
	struct stay s;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	const char *what = broadcast ? "broadcast" : "signal";
	make(&now.mutex);
	begin_stay(&s, &c, WAIT, 0);
	puppet_send(&now.a, op_wait, &s);
	until_waiting(&s, 1);
	pthread_mutex_unlock(&now.mutex);
	pthread_kill(now.a.thread, SIGUSR1);
	puppet_wait_sem(&in_handler);
	CHECK_DESTROY(EBUSY, "a waiter in a handler, no %s", what);
	pthread_mutex_lock(&now.mutex);
	atomic_fetch_add(&s.tokens, 1);
	broadcast ? pthread_cond_broadcast(&c) : pthread_cond_signal(&c);
	pthread_mutex_unlock(&now.mutex);
	CHECK_DESTROY(EBUSY, "a waiter in a handler after the %s", what);
	sem_post(&end_handler);
	puppet_wait_sem(&s.holds);
	CHECK_DESTROY(EBUSY, "the waiter holds it after the %s", what);
	sem_post(&s.leave);
	CHECK_VALUE(0, puppet_result(&now.a) % ERRNO_CHANGED, "destroy.%s the wait ended by %s",
		    now.name, what);
	CHECK_DESTROY(0, "the waiter left after the %s", what);
}

static void cancelled(bool unlocks)
{
	struct stay s;
	struct puppet p;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	puppet_start(&p);
	make(&now.mutex);
	begin_stay(&s, &c, unlocks ? WAIT : TIMEDWAIT, LATER_MS);
	s.unlocks = unlocks;
	puppet_send(&p, op_wait, &s);
	until_waiting(&s, 1);
	pthread_cancel(p.thread);
	sleep_ms(1);
	CHECK_DESTROY(EBUSY, "locked, with a cancelled waiter");
	pthread_mutex_unlock(&now.mutex);
	puppet_wait_sem(&s.holds);
	CHECK_DESTROY(EBUSY, "held by the handler of a cancelled wait");
	sem_post(&s.leave);
	puppet_end(&p);
	if (unlocks)
		CHECK_DESTROY(0, "unlocked by the handler of a cancelled wait");
	else
		CHECK_DESTROY(EBUSY, "a cancelled waiter ended without unlock");
	CHECK(0, pthread_cond_destroy(&c), "destroy.%s condition of a cancelled wait", now.name);
}

/* A wait by a thread that holds the mutex twice does not release it. */
static void waited_twice_locked(void)
{
	struct stay s;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	make(&now.mutex);
	begin_stay(&s, &c, WAIT, 0);
	s.depth = 2;
	puppet_send(&now.a, op_wait, &s);
	while (!atomic_load(&s.inside))
		sleep_ms(1);
	sleep_ms(SETTLE_MS);
	CHECK_DESTROY(EBUSY, "waited with, locked twice");
	atomic_store(&s.tokens, 1);
	while (sem_trywait(&s.holds) != 0) {
		pthread_cond_signal(&c);
		sleep_ms(1);
	}
	CHECK_DESTROY(EBUSY, "locked twice after the wait");
	sem_post(&s.leave);
	puppet_result(&now.a);
	CHECK_DESTROY(0, "unlocked twice after the wait");
}

/* Refused waits leave no trace. */
static void refused(void)
{
	struct stay s;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	pthread_mutex_t *m = &now.mutex;
	int type = now.kind->type;
	make(m);
	pthread_mutex_lock(m);
	CHECK(EINVAL, pthread_cond_timedwait(&c, m, &NSEC_TOO_BIG),
	      "destroy.%s wait with an invalid time", now.name);
	CHECK_DESTROY(EBUSY, "locked after a wait with an invalid time");
	pthread_mutex_unlock(m);
	/* Normal mutexes can be unlocked by any thread, unless the kernel knows the owner. */
	if (type == PTHREAD_MUTEX_RECURSIVE || type == PTHREAD_MUTEX_ERRORCHECK ||
	    now.flavour->protocol == INHERIT) {
		CHECK(EPERM, pthread_cond_wait(&c, m), "destroy.%s wait with a free mutex",
		      now.name);
		begin_stay(&s, &c, WAIT, 0);
		puppet_send(&now.a, op_hold, &s);
		puppet_wait_sem(&s.holds);
		CHECK(EPERM, pthread_cond_wait(&c, m),
		      "destroy.%s wait with another thread's mutex", now.name);
		CHECK_DESTROY(EBUSY, "locked by another thread after a wait with it");
		sem_post(&s.leave);
		puppet_result(&now.a);
	}
	CHECK_DESTROY(0, "after refused waits");
	CHECK(0, pthread_cond_destroy(&c), "destroy.%s condition of refused waits", now.name);
}

static void start(void)
{
	puppet_start(&now.a);
	puppet_start(&now.b);
}

static void end(void)
{
	puppet_end(&now.a);
	puppet_end(&now.b);
}

static void every_wait(void)
{
	waiters(1, WAIT, PRIVATE);
	waiters(1, TIMEDWAIT, PRIVATE);
	waiters(1, CLOCKWAIT, PRIVATE);
	waiters(1, WAIT, SHARED);
	waiters(2, WAIT, PRIVATE);
	timed_out();
	not_yet_awake(false);
	not_yet_awake(true);
	cancelled(true);
	cancelled(false);
	if (now.kind->type == PTHREAD_MUTEX_RECURSIVE)
		waited_twice_locked();
}

/* Priority protection needs real-time threads, where the process may create them. */
static void protected(void)
{
	static const struct flavour PROTECTED = { "protect", PRIVATE, STALLED, PROTECT, false };
	struct sched_param parameter = { .sched_priority = sched_get_priority_min(SCHED_FIFO) };
	struct sched_param normal = { 0 };
	check_begin("destroy.protect real-time thread");
	int real_time = pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter);
	check_record(real_time);
	if (real_time != 0)
		return;
	start();
	for (size_t k = 0; k < LENGTH(KINDS); k++) {
		choose(&PROTECTED, &KINDS[k]);
		every_wait();
	}
	end();
	pthread_setschedparam(pthread_self(), SCHED_OTHER, &normal);
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	check_start();
	sigaction(SIGUSR1, &action, NULL);
	sem_init(&in_handler, 0, 0);
	sem_init(&end_handler, 0, 0);
	start();
	for (size_t f = 0; f < LENGTH(FLAVOURS); f++) {
		for (size_t k = 0; k < LENGTH(KINDS); k++) {
			choose(&FLAVOURS[f], &KINDS[k]);
			every_wait();
			refused();
		}
	}
	end();
	protected();
	return check_finish();
}
