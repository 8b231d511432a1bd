/*
 * For programs that must clean up: SIGINT, SIGTERM and SIGHUP end them as usual, but before_death()
 * of die.h runs first.
 */
#ifndef UNCONVOY_ENDING_H
#define UNCONVOY_ENDING_H

#include <signal.h>

#include "measure.h"

static inline sigset_t ending_signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	return set;
}

/*
 * A thread waits for the signals instead of a handler. It may use the file system, and it ends the
 * program even if every other thread hangs in a lock under test.
 */
static inline void *end_on_signal(void *unused)
{
	sigset_t set = ending_signals();
	int number = SIGTERM;

	(void)unused;
	sigwait(&set, &number);
	before_death();
	/* End as without this thread, so that a shell sees the signal. */
	signal(number, SIG_DFL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	raise(number);
	return NULL;
}

/* Call before the first other thread is created, even by a library, so that only end_on_signal()
 * receives the signals. */
static inline void hold_signals(void)
{
	sigset_t set = ending_signals();
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Call after hold_signals(), once there is something to clean up. Signals pending since then end
 * the program now. */
static inline void clean_up_on_signals(void (*clean_up)(void))
{
	before_death = clean_up;
	start_thread(end_on_signal, NULL);
}

#endif
