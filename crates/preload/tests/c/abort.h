/* A check that ends the program if it fails. */
#ifndef ABORT_H
#define ABORT_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

#endif
