/*
 * For programs that must leave nothing behind: SIGINT, SIGTERM and SIGHUP end them as they would otherwise, but
 * before_death() of measure.h runs first.
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
 * A thread of its own waits for the signals, not a handler: it may use the file system, and it ends the
 * program even when every other thread hangs in a lock that is being tested.
 */
static inline void *end_on_signal(void *unused)
{
	sigset_t set = ending_signals();
	int number = SIGTERM;

	(void)unused;
	sigwait(&set, &number);
	before_death();
	/* Ends as it would have without this thread, so that a shell sees the signal. */
	signal(number, SIG_DFL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	raise(number);
	return NULL;
}

/* Before the first other thread, those of libraries included, so that only end_on_signal() sees the signals. */
static inline void hold_signals(void)
{
	sigset_t set = ending_signals();
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* After hold_signals() and when there is something to clean up: signals that came meanwhile end the program now. */
static inline void clean_up_on_signals(void (*clean_up)(void))
{
	before_death = clean_up;
	start_thread(end_on_signal, NULL);
}

#endif
