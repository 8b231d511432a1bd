#include "workpool.h"

#include "measure.h"
#include "memory.h"

struct queue {
	pthread_mutex_t lock __attribute__((aligned(MEASURE_LINE)));
	struct job *first;
};

struct workpool {
	struct memory *memory;
	int threads;
	struct queue queues[];
};

struct workpool *workpool_new(int threads)
{
	struct workpool *pool = line_alloc(1, sizeof *pool + (size_t)threads * sizeof(struct queue));

	pool->threads = threads;
	pool->memory = memory_new(sizeof(struct job));
	for (int i = 0; i < threads; i++)
		pthread_mutex_init(&pool->queues[i].lock, NULL);
	return pool;
}

void workpool_put(struct workpool *pool, int thread, struct job job)
{
	struct queue *queue = &pool->queues[thread];
	struct job *entry = memory_take(pool->memory);

	*entry = job;
	pthread_mutex_lock(&queue->lock);
	entry->next = queue->first;
	queue->first = entry;
	pthread_mutex_unlock(&queue->lock);
}

bool workpool_take(struct workpool *pool, int thread, struct job *job)
{
	for (int i = 0; i < pool->threads; i++) {
		struct queue *queue = &pool->queues[(thread + i) % pool->threads];
		pthread_mutex_lock(&queue->lock);
		struct job *entry = queue->first;
		if (entry)
			queue->first = entry->next;
		pthread_mutex_unlock(&queue->lock);
		if (entry) {
			*job = *entry;
			memory_give(pool->memory, entry);
			return true;
		}
	}
	return false;
}
