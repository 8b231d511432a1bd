/* The scene: spheres and triangles above an unbounded chequered floor, two lights, one eye. */
#ifndef RAYTRACE_SCENE_H
#define RAYTRACE_SCENE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vector.h"

enum { LIGHT_COUNT = 2 };

struct material {
	struct vector colour;
	double reflection; /* mirrored share of the light, 0 to 1 */
};

struct primitive {
	enum { SPHERE, TRIANGLE } shape;
	struct material material;
	struct vector at; /* a sphere's centre, a triangle's first corner */
	double radius;
	struct vector edge1, edge2; /* from the first corner to the two others */
};

struct light {
	struct vector at, colour;
};

struct scene {
	struct primitive *primitives;
	uint32_t count;
	struct light lights[LIGHT_COUNT];
	struct vector eye;
};

struct ray {
	struct vector origin, direction; /* of length 1 */
	uint64_t id; /* unique over all threads, never 0 */
};

/* End of a ray. `primitive` is -1 for the floor. */
struct hit {
	double distance;
	int64_t primitive;
};

/* Makes `objects` objects, half spheres and half tetrahedra. Equal numbers give equal scenes. */
void scene_generate(struct scene *scene, uint32_t objects);

/* Returns true and lowers *distance if the ray meets the primitive before *distance. */
bool primitive_intersect(const struct primitive *primitive, const struct ray *ray,
			 double *distance);
bool floor_intersect(const struct ray *ray, double *distance);

/*
 * Returns the unit normal at `point`, on the side that a ray in `direction` comes from, and the
 * material there.
 */
struct vector surface_at(const struct scene *scene, const struct hit *hit, struct vector direction,
			 struct vector point, struct material *material);

/* Returns the smallest box around the primitive. */
void primitive_bounds(const struct primitive *primitive, struct vector *low, struct vector *high);

#endif
