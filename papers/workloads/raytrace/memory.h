/*
 * Records of one size that all threads share: a free list under one mutex, the program's `memlock`.
 */
#ifndef RAYTRACE_MEMORY_H
#define RAYTRACE_MEMORY_H

#include <stddef.h>

struct memory;

/* A place for records of up to `size` bytes. */
struct memory *memory_new(size_t size);

/* Never NULL. The record's contents are those of its last user, or zero. */
void *memory_take(struct memory *memory);
void memory_give(struct memory *memory, void *record);

#endif
