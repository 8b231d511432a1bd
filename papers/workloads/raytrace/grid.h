/*
 * A uniform grid over the scene: a ray is tested only against the primitives of the cells it
 * crosses.
 *
 * A primitive may lie in several cells. To test each pair of ray and primitive once, each thread
 * keeps a mailbox: the id of the last ray that it tested against each primitive.
 */
#ifndef RAYTRACE_GRID_H
#define RAYTRACE_GRID_H

#include "scene.h"

struct grid {
	const struct scene *scene;
	struct vector low, high, cell; /* corners of the grid, size of a cell */
	int cells[3];
	/*
	 * The primitives of cell i are members[starts[i]] up to but not including members[starts[i
	 * + 1]].
	 */
	uint32_t *starts, *members;
};

void grid_build(struct grid *grid, const struct scene *scene);

/*
 * Finds the nearest hit before hit->distance, which the caller sets. Returns false if there is
 * none.
 */
bool grid_nearest(const struct grid *grid, const struct ray *ray, uint64_t *mailbox,
		  struct hit *hit);

/* Whether anything lies before `distance`. Stops at the first hit, as a shadow ray needs. */
bool grid_blocked(const struct grid *grid, const struct ray *ray, uint64_t *mailbox,
		  double distance);

#endif
