/*
 * Three-dimensional vectors. The functions use only + - * / and sqrt, which IEEE 754 rounds
 * exactly, so the picture is the same to the bit on every machine. The checksum relies on that.
 */
#ifndef RAYTRACE_VECTOR_H
#define RAYTRACE_VECTOR_H

#include <math.h>

struct vector {
	double x, y, z;
};

static inline struct vector vector(double x, double y, double z)
{
	return (struct vector){ x, y, z };
}

static inline struct vector add(struct vector a, struct vector b)
{
	return vector(a.x + b.x, a.y + b.y, a.z + b.z);
}

static inline struct vector subtract(struct vector a, struct vector b)
{
	return vector(a.x - b.x, a.y - b.y, a.z - b.z);
}

static inline struct vector scale(struct vector a, double factor)
{
	return vector(a.x * factor, a.y * factor, a.z * factor);
}

/* Multiplies by component: a surface's colour times the colour of the light. */
static inline struct vector filter(struct vector a, struct vector b)
{
	return vector(a.x * b.x, a.y * b.y, a.z * b.z);
}

static inline double dot(struct vector a, struct vector b)
{
	return a.x * b.x + a.y * b.y + a.z * b.z;
}

static inline struct vector cross(struct vector a, struct vector b)
{
	return vector(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

static inline struct vector normalize(struct vector a)
{
	return scale(a, 1 / sqrt(dot(a, a)));
}

/* Newton's method from above, to the last bit, since the C library's cbrt() differs by machine. */
static inline double cube_root(double x)
{
	double root = fmax(x, 1), better = root;

	do {
		root = better;
		better = (2 * root + x / (root * root)) / 3;
	} while (better < root);
	return root;
}

/* Selects a component by number, for loops over axes. */
static inline double component(struct vector a, int axis)
{
	return axis == 0 ? a.x : axis == 1 ? a.y : a.z;
}

#endif
