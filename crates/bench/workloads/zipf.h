/*
 * Zipf-distributed ranks, drawn exactly and in constant time: rank k of 0..n-1 has a probability
 * proportional to 1 / (k + 1)^theta.
 *
 * Alias method (Walker 1977, with Vose's table construction of 1991): n columns of equal height,
 * each made of at most two ranks. A draw picks a column and a height in it. One number in [0, n)
 * gives both: the column is its integer part, and the height its fraction, which has 29 random bits
 * even with ten million ranks.
 */
#ifndef UNCONVOY_ZIPF_H
#define UNCONVOY_ZIPF_H

#include "measure.h"

struct zipf_column {
	double own;     /* share of the column's own rank */
	uint32_t alias; /* rank of the rest */
};

struct zipf {
	struct zipf_column *columns;
	uint32_t count;
};

static inline struct zipf zipf_new(uint32_t count, double theta)
{
	struct zipf zipf = { (struct zipf_column *)line_alloc(count, sizeof(struct zipf_column)),
			     count };
	/* Ranks below a column's height, from the front; the others, from the back. */
	uint32_t *worklist = (uint32_t *)line_alloc(count, sizeof *worklist);
	uint32_t low = 0, high = count;
	double sum = 0;

	for (uint32_t rank = count; rank-- > 0;) /* smallest first, for the precision of the sum */
		sum += zipf.columns[rank].own = pow(rank + 1.0, -theta);
	for (uint32_t rank = 0; rank < count; rank++) {
		zipf.columns[rank].own *= count / sum;
		zipf.columns[rank].alias = rank;
		worklist[zipf.columns[rank].own < 1 ? low++ : --high] = rank;
	}
	while (low > 0 && high < count) {
		uint32_t small = worklist[--low], large = worklist[high];
		zipf.columns[small].alias = large;
		zipf.columns[large].own -= 1 - zipf.columns[small].own;
		if (zipf.columns[large].own < 1) {
			high++;
			worklist[low++] = large;
		}
	}
	/* Each remaining rank fills its column, except for rounding, so it stays its own alias. */
	free(worklist);
	return zipf;
}

static inline uint32_t zipf_next(const struct zipf *zipf, uint64_t *random)
{
	double place = random_unit(random) * zipf->count;
	uint32_t column = (uint32_t)place;
	return place - column < zipf->columns[column].own ? column : zipf->columns[column].alias;
}

#endif
