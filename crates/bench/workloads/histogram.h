/*
 * A histogram of latencies, log-linear as HdrHistogram: 32 steps per power of two, so a percentile
 * is at most 1/32 = 3 % too high. Each thread has its own; they are added at the end.
 */
#ifndef UNCONVOY_HISTOGRAM_H
#define UNCONVOY_HISTOGRAM_H

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

enum { HISTOGRAM_STEP_BITS = 5, HISTOGRAM_STEPS = 1 << HISTOGRAM_STEP_BITS };
enum { HISTOGRAM_BUCKETS = (64 - HISTOGRAM_STEP_BITS + 1) * HISTOGRAM_STEPS };

struct histogram {
	uint64_t total, max;
	uint64_t counts[HISTOGRAM_BUCKETS];
};

static inline unsigned histogram_bucket(uint64_t value)
{
	if (value < HISTOGRAM_STEPS)
		return (unsigned)value;
	unsigned shift = 63u - (unsigned)__builtin_clzll(value) - HISTOGRAM_STEP_BITS;
	return (shift + 1) * HISTOGRAM_STEPS + (unsigned)(value >> shift) - HISTOGRAM_STEPS;
}

/* Returns the largest value in `bucket`. */
static inline uint64_t histogram_limit(unsigned bucket)
{
	if (bucket < HISTOGRAM_STEPS)
		return bucket;
	unsigned shift = bucket / HISTOGRAM_STEPS - 1;
	return (((uint64_t)(bucket % HISTOGRAM_STEPS) + HISTOGRAM_STEPS + 1) << shift) - 1;
}

static inline void histogram_record(struct histogram *histogram, uint64_t value)
{
	histogram->counts[histogram_bucket(value)]++;
	histogram->total++;
	histogram->max = value > histogram->max ? value : histogram->max;
}

static inline void histogram_add(struct histogram *into, const struct histogram *from)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		into->counts[i] += from->counts[i];
	into->total += from->total;
	into->max = from->max > into->max ? from->max : into->max;
}

static inline uint64_t histogram_percentile(const struct histogram *histogram, double percentile)
{
	uint64_t rank = (uint64_t)ceil(percentile / 100 * (double)histogram->total), seen = 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->counts[i];
		if (seen && seen >= rank)
			return histogram_limit(i) < histogram->max ? histogram_limit(i) : histogram->max;
	}
	return histogram->max;
}

/* Converts from ticks to nanoseconds. */
static inline void histogram_report(const struct histogram *histogram, double ticks_per_ns)
{
	printf("p50_ns %.0f\n", (double)histogram_percentile(histogram, 50) / ticks_per_ns);
	printf("p99_ns %.0f\n", (double)histogram_percentile(histogram, 99) / ticks_per_ns);
	printf("p999_ns %.0f\n", (double)histogram_percentile(histogram, 99.9) / ticks_per_ns);
	printf("max_ns %.0f\n", (double)histogram->max / ticks_per_ns);
}

#endif
