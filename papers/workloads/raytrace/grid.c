#include "grid.h"

#include "measure.h"

/*
 * Cells per primitive: somewhat more cells than primitives is the usual optimum for a uniform grid.
 */
static const double DENSITY = 4;

static int cell_of(const struct grid *grid, struct vector point, int axis)
{
	int cell =
		(int)((component(point, axis) - component(grid->low, axis)) / component(grid->cell, axis));
	return cell < 0 ? 0 : cell >= grid->cells[axis] ? grid->cells[axis] - 1 : cell;
}

static size_t cell_index(const struct grid *grid, const int cell[3])
{
	return ((size_t)cell[2] * (size_t)grid->cells[1] + (size_t)cell[1]) * (size_t)grid->cells[0] +
	       (size_t)cell[0];
}

/*
 * Without `store`, counts the primitives of each cell in `starts`. With `store`, `starts` must hold
 * each cell's end, and the primitives are stored below it.
 */
static void distribute(struct grid *grid, bool store)
{
	for (uint32_t i = 0; i < grid->scene->count; i++) {
		struct vector low, high;
		int from[3], to[3], at[3];
		primitive_bounds(&grid->scene->primitives[i], &low, &high);
		for (int axis = 0; axis < 3; axis++) {
			from[axis] = cell_of(grid, low, axis);
			to[axis] = cell_of(grid, high, axis);
		}
		for (at[2] = from[2]; at[2] <= to[2]; at[2]++)
			for (at[1] = from[1]; at[1] <= to[1]; at[1]++)
				for (at[0] = from[0]; at[0] <= to[0]; at[0]++) {
					uint32_t *slot = &grid->starts[cell_index(grid, at)];
					if (store)
						grid->members[--*slot] = i;
					else
						++*slot;
				}
	}
}

void grid_build(struct grid *grid, const struct scene *scene)
{
	struct vector low, high, size;
	size_t cells = 1;

	grid->scene = scene;
	primitive_bounds(&scene->primitives[0], &grid->low, &grid->high);
	for (uint32_t i = 1; i < scene->count; i++) {
		primitive_bounds(&scene->primitives[i], &low, &high);
		grid->low =
			vector(fmin(grid->low.x, low.x), fmin(grid->low.y, low.y), fmin(grid->low.z, low.z));
		grid->high = vector(fmax(grid->high.x, high.x), fmax(grid->high.y, high.y),
				    fmax(grid->high.z, high.z));
	}
	size = subtract(grid->high, grid->low);
	double edge = cube_root(size.x * size.y * size.z / (DENSITY * scene->count));
	for (int axis = 0; axis < 3; axis++) {
		grid->cells[axis] = (int)fmax(1, floor(component(size, axis) / edge));
		cells *= (size_t)grid->cells[axis];
	}
	grid->cell = vector(size.x / grid->cells[0], size.y / grid->cells[1], size.z / grid->cells[2]);

	/*
	 * A counting sort: the running sum is each cell's end, and storing moves it to the start.
	 */
	grid->starts = line_alloc(cells + 1, sizeof *grid->starts);
	distribute(grid, false);
	for (size_t i = 1; i <= cells; i++)
		grid->starts[i] += grid->starts[i - 1];
	grid->members = line_alloc((size_t)grid->starts[cells] + 1, sizeof *grid->members);
	distribute(grid, true);
}

/* Clips the ray to the box. Returns false if the ray misses the box before `distance`. */
static bool clip(const struct grid *grid, const struct ray *ray, double distance, double *enter)
{
	double from = 0, to = distance;

	for (int axis = 0; axis < 3; axis++) {
		double origin = component(ray->origin, axis), step = component(ray->direction, axis);
		double low = component(grid->low, axis), high = component(grid->high, axis);
		if (step == 0) {
			if (origin < low || origin > high)
				return false;
			continue;
		}
		double one = (low - origin) / step, other = (high - origin) / step;
		from = fmax(from, fmin(one, other));
		to = fmin(to, fmax(one, other));
	}
	*enter = from;
	return from <= to;
}

/* Walks the cells in the order in which the ray crosses them (Amanatides and Woo 1987). */
static bool walk(const struct grid *grid, const struct ray *ray, uint64_t *mailbox, struct hit *hit,
		 bool any)
{
	int cell[3], step[3];
	double next[3], width[3], enter;
	bool found = false;

	if (!clip(grid, ray, hit->distance, &enter))
		return false;
	struct vector entry = add(ray->origin, scale(ray->direction, enter));
	for (int axis = 0; axis < 3; axis++) {
		double direction = component(ray->direction, axis), size = component(grid->cell, axis);
		cell[axis] = cell_of(grid, entry, axis);
		step[axis] = direction < 0 ? -1 : 1;
		double border = component(grid->low, axis) + (cell[axis] + (direction > 0)) * size;
		next[axis] =
			direction == 0 ? INFINITY : (border - component(ray->origin, axis)) / direction;
		width[axis] = direction == 0 ? INFINITY : size / fabs(direction);
	}
	for (;;) {
		size_t index = cell_index(grid, cell);
		for (uint32_t i = grid->starts[index]; i < grid->starts[index + 1]; i++) {
			uint32_t candidate = grid->members[i];
			if (mailbox[candidate] == ray->id)
				continue;
			mailbox[candidate] = ray->id;
			if (primitive_intersect(&grid->scene->primitives[candidate], ray, &hit->distance)) {
				hit->primitive = candidate;
				found = true;
				if (any)
					return true;
			}
		}
		int axis = next[0] < next[1] ? (next[0] < next[2] ? 0 : 2) : (next[1] < next[2] ? 1 : 2);
		/* Primitives that lie only in later cells are farther away than the hit. */
		if (next[axis] > hit->distance)
			return found;
		cell[axis] += step[axis];
		if (cell[axis] < 0 || cell[axis] >= grid->cells[axis])
			return found;
		next[axis] += width[axis];
	}
}

bool grid_nearest(const struct grid *grid, const struct ray *ray, uint64_t *mailbox,
		  struct hit *hit)
{
	bool found = floor_intersect(ray, &hit->distance);

	hit->primitive = -1;
	return walk(grid, ray, mailbox, hit, false) || found;
}

bool grid_blocked(const struct grid *grid, const struct ray *ray, uint64_t *mailbox,
		  double distance)
{
	struct hit hit = { distance, -1 };

	/* The floor casts no shadow: no object and no light is below it. */
	return walk(grid, ray, mailbox, &hit, true);
}
