/* Times, sleeps and delays, by the system clock and by a cheaper counter. */
#ifndef UNCONVOY_CLOCK_H
#define UNCONVOY_CLOCK_H

#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static inline uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void sleep_seconds(double seconds)
{
	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
	struct timespec until;
	until.tv_sec = (time_t)(end / 1000000000u);
	until.tv_nsec = (long)(end % 1000000000u);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
		;
}

/*
 * The cheapest clock: the time-stamp counter on x86-64, whose rate is constant on every processor
 * of the last fifteen years, and the system clock elsewhere.
 */
static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#else
	return now_ns();
#endif
}

/* Measures the rate of ticks() against the system clock for 20 ms, to about 0.01 %. */
static inline double calibrate_ticks_per_ns(void)
{
	uint64_t ns = now_ns(), start = ticks(), elapsed;
	do
		elapsed = now_ns() - ns;
	while (elapsed < 20000000u);
	return (double)(ticks() - start) / (double)elapsed;
}

static inline void delay_ticks(uint64_t count)
{
	uint64_t start = ticks();
	while (ticks() - start < count)
		;
}

#endif
