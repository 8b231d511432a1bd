/*
 * A uniform grid over the scene: a ray is tried only against the primitives of the cells that it crosses.
 *
 * A primitive may lie in several cells. So that a ray is tried against it once, each thread keeps a mailbox:
 * the id of the last ray that it tried against each primitive. That is what ray ids are for.
 */
#ifndef RAYTRACE_GRID_H
#define RAYTRACE_GRID_H

#include "scene.h"

struct grid {
	const struct scene *scene;
	struct vector low, high, cell; /* corners of the whole, size of one cell */
	int cells[3];
	/* The primitives of cell i are members[starts[i]] up to, without, members[starts[i + 1]]. */
	uint32_t *starts, *members;
};

void grid_build(struct grid *grid, const struct scene *scene);

/* The nearest hit before hit->distance, which the caller sets; a scene without floor or object there: false. */
bool grid_nearest(const struct grid *grid, const struct ray *ray, uint64_t *mailbox, struct hit *hit);

/* Is there anything at all before `distance`? Ends at the first hit: the question of a shadow ray. */
bool grid_blocked(const struct grid *grid, const struct ray *ray, uint64_t *mailbox, double distance);

#endif
