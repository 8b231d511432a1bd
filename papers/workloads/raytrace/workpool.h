/*
 * The remaining tiles: a queue per thread, each under its own mutex. A thread with an empty queue
 * steals from the others.
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

/*
 * Takes a job from this thread's queue, else from the next ones. Returns false once all queues are
 * empty, which is final: jobs make no new jobs.
 */
bool workpool_take(struct workpool *pool, int thread, struct job *job);

#endif
