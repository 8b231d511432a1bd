/*
 * Random numbers by SplitMix64 (Steele, Lea and Flood 2014): every seed is good, and the results
 * are the same everywhere.
 */
#ifndef UNCONVOY_SPLITMIX_H
#define UNCONVOY_SPLITMIX_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Uniform in [0, 1). */
static inline double random_unit(uint64_t *state)
{
	return (double)(random_next(state) >> 11) * 0x1p-53;
}

/* Uniform in [0, bound), by multiplication (Lemire 2019). The bias of bound / 2^32 does not matter
 * here. */
static inline uint64_t random_below(uint64_t *state, uint64_t bound)
{
	return (random_next(state) >> 32) * bound >> 32;
}

#endif
