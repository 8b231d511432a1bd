/* How a workload program ends before its time, and what its exit status means. */
#ifndef UNCONVOY_DIE_H
#define UNCONVOY_DIE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * EXIT_INCONSISTENT means only that data protected by a lock was found inconsistent. The harness
 * then rejects the lock. Failures of the machine, the engine or the user end with EXIT_FAILED.
 */
enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INCONSISTENT = 3 };

/* Set by a program that must clean up wherever it ends. The symbol is weak, so that all files of a
 * program share one definition. */
__attribute__((weak)) void (*before_death)(void);

__attribute__((noreturn)) static inline void end_with(int status, const char *format, va_list args)
{
	if (before_death)
		before_death();
	fflush(stdout);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	/* Not exit(): other threads still run, and static destructors could hang. */
	_Exit(status);
}

/* Ends the program after a failure of the machine. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	end_with(EXIT_FAILED, format, args);
}

/* Ends the program because no order of its critical sections explains its data. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void
die_inconsistent(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	end_with(EXIT_INCONSISTENT, format, args);
}

#endif
