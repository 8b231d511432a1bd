/*
 * The tiles still to do: a queue per thread, each under a mutex of its own. A thread whose queue is empty
 * takes from the others'.
 */
#ifndef RAYTRACE_WORKPOOL_H
#define RAYTRACE_WORKPOOL_H

#include <stdbool.h>

struct job {
	int x, y, width, height;
	struct job *next;
};

struct workpool;

struct workpool *workpool_new(int threads);
void workpool_put(struct workpool *pool, int thread, struct job job);

/* Takes a job of this thread, else of the next ones; false when no queue has any: no job makes new jobs. */
bool workpool_take(struct workpool *pool, int thread, struct job *job);

#endif
