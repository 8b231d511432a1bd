/*
 * Records of one size, shared by all threads: a free list under one mutex, the program's `memlock`.
 */
#ifndef RAYTRACE_MEMORY_H
#define RAYTRACE_MEMORY_H

#include <stddef.h>

struct memory;

/* Makes a free list for records of up to `size` bytes. */
struct memory *memory_new(size_t size);

/* Never returns NULL. The record holds its last user's contents, or zeros. */
void *memory_take(struct memory *memory);
void memory_give(struct memory *memory, void *record);

#endif
