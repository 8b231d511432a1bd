/* Reports a hang of a test program: one line on standard error, then time for a debugger. The Rust
 * side (support/mod.rs) reads the line, prints the stacks of all threads and kills the program. */
#ifndef HANG_H
#define HANG_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HANG_STATUS = 3, HANG_LINGER_SECONDS = 60 };

/* Prints "hang: WHO WHAT", once per process. Safe in a signal handler. */
__attribute__((noreturn, cold)) static inline void hang(const char *who, const char *what)
{
	static atomic_flag once = ATOMIC_FLAG_INIT;
	struct timespec linger = { HANG_LINGER_SECONDS, 0 };
	char line[320] = "hang: ";
	while (atomic_flag_test_and_set(&once))
		pause();
	strncat(line, who, 180);
	strncat(line, " ", 2);
	strncat(line, what, 100);
	strncat(line, "\n", 2);
	ssize_t ignored = write(STDERR_FILENO, line, strlen(line));
	(void)ignored;
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &linger, &linger) == EINTR)
		;
	_exit(HANG_STATUS);
}

#endif
