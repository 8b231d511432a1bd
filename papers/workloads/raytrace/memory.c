#include "memory.h"

#include "measure.h"

/* The contents of a free record. */
struct unused {
	struct unused *next;
};

struct memory {
	pthread_mutex_t lock;
	struct unused *first;
	size_t size;
};

struct memory *memory_new(size_t size)
{
	struct memory *memory = line_alloc(1, sizeof *memory);

	pthread_mutex_init(&memory->lock, NULL);
	memory->size = size;
	return memory;
}

void *memory_take(struct memory *memory)
{
	struct unused *record;

	pthread_mutex_lock(&memory->lock);
	record = memory->first;
	if (record)
		memory->first = record->next;
	pthread_mutex_unlock(&memory->lock);
	return record ? (void *)record : line_alloc(1, memory->size);
}

void memory_give(struct memory *memory, void *given)
{
	struct unused *record = given;

	pthread_mutex_lock(&memory->lock);
	record->next = memory->first;
	memory->first = record;
	pthread_mutex_unlock(&memory->lock);
}
