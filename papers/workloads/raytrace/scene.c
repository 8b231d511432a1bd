#include "scene.h"

#include "measure.h"

/* A nearer hit is a rounding error: it is on the surface where the ray starts. */
static const double SELF_DISTANCE = 1e-6;

/* The objects fill this box; the floor is at height 0. */
static const struct vector BOX_LOW = { -10, 0.5, -10 }, BOX_HIGH = { 10, 8, 10 };

static struct vector random_vector(uint64_t *random, struct vector low, struct vector high)
{
	/* Three statements, because the evaluation order of arguments is not fixed. */
	double x = low.x + random_unit(random) * (high.x - low.x);
	double y = low.y + random_unit(random) * (high.y - low.y);
	double z = low.z + random_unit(random) * (high.z - low.z);
	return vector(x, y, z);
}

static void add_tetrahedron(struct scene *scene, struct vector centre, double radius,
			    struct material material, uint64_t *random)
{
	struct vector reach = vector(radius, radius, radius), corners[4];

	for (int i = 0; i < 4; i++)
		corners[i] = random_vector(random, subtract(centre, reach), add(centre, reach));
	for (int i = 0; i < 4; i++) {
		struct vector first = corners[i], second = corners[(i + 1) % 4],
			      third = corners[(i + 2) % 4];
		scene->primitives[scene->count++] = (struct primitive){
			.shape = TRIANGLE,
			.material = material,
			.at = first,
			.edge1 = subtract(second, first),
			.edge2 = subtract(third, first),
		};
	}
}

void scene_generate(struct scene *scene, uint32_t objects)
{
	uint64_t random = 1;
	/* Keeps the box about equally full for any number of objects. */
	double size = 5 / cube_root((double)objects + 1);

	/* A tetrahedron has four triangles. */
	scene->primitives = line_alloc((size_t)objects * 4, sizeof *scene->primitives);
	scene->count = 0;
	scene->lights[0] = (struct light){ vector(-14, 18, -12), vector(0.75, 0.7, 0.6) };
	scene->lights[1] = (struct light){ vector(16, 12, -8), vector(0.3, 0.35, 0.45) };
	scene->eye = vector(0, 7, -22);
	for (uint32_t i = 0; i < objects; i++) {
		struct vector centre = random_vector(&random, BOX_LOW, BOX_HIGH);
		struct material material;
		material.colour = random_vector(&random, vector(0.2, 0.2, 0.2), vector(1, 1, 1));
		material.reflection = random_unit(&random) < 0.5 ? 0.5 : 0.0;
		double radius = size * (0.4 + 0.4 * random_unit(&random));
		if (i % 2)
			add_tetrahedron(scene, centre, radius * 1.5, material, &random);
		else
			scene->primitives[scene->count++] = (struct primitive){
				.shape = SPHERE, .material = material, .at = centre, .radius = radius
			};
	}
}

static bool closer(double candidate, double *distance)
{
	if (!(candidate > SELF_DISTANCE && candidate < *distance))
		return false;
	*distance = candidate;
	return true;
}

static bool sphere_intersect(const struct primitive *sphere, const struct ray *ray,
			     double *distance)
{
	struct vector to_centre = subtract(sphere->at, ray->origin);
	double middle = dot(to_centre, ray->direction);
	double square = middle * middle - dot(to_centre, to_centre) + sphere->radius * sphere->radius;

	if (square < 0)
		return false;
	double half = sqrt(square);
	return closer(middle - half, distance) || closer(middle + half, distance);
}

/* Solves for the distance and two barycentric coordinates at once (Moeller and Trumbore 1997). */
static bool triangle_intersect(const struct primitive *triangle, const struct ray *ray,
			       double *distance)
{
	struct vector p = cross(ray->direction, triangle->edge2);
	double determinant = dot(triangle->edge1, p);

	if (fabs(determinant) < 1e-12)
		return false;
	struct vector from_corner = subtract(ray->origin, triangle->at);
	double u = dot(from_corner, p) / determinant;
	if (u < 0 || u > 1)
		return false;
	struct vector q = cross(from_corner, triangle->edge1);
	double v = dot(ray->direction, q) / determinant;
	if (v < 0 || u + v > 1)
		return false;
	return closer(dot(triangle->edge2, q) / determinant, distance);
}

bool primitive_intersect(const struct primitive *primitive, const struct ray *ray, double *distance)
{
	return primitive->shape == SPHERE ? sphere_intersect(primitive, ray, distance) :
					    triangle_intersect(primitive, ray, distance);
}

bool floor_intersect(const struct ray *ray, double *distance)
{
	return ray->direction.y != 0 && closer(-ray->origin.y / ray->direction.y, distance);
}

struct vector surface_at(const struct scene *scene, const struct hit *hit, struct vector direction,
			 struct vector point, struct material *material)
{
	struct vector normal;

	if (hit->primitive < 0) {
		bool dark = ((int64_t)floor(point.x / 2) + (int64_t)floor(point.z / 2)) % 2 != 0;
		material->colour = dark ? vector(0.2, 0.22, 0.25) : vector(0.8, 0.8, 0.75);
		material->reflection = 0.15;
		normal = vector(0, 1, 0);
	} else {
		const struct primitive *primitive = &scene->primitives[hit->primitive];
		*material = primitive->material;
		normal = normalize(primitive->shape == SPHERE ? subtract(point, primitive->at) :
								cross(primitive->edge1, primitive->edge2));
	}
	return dot(normal, direction) > 0 ? scale(normal, -1) : normal;
}

void primitive_bounds(const struct primitive *primitive, struct vector *low, struct vector *high)
{
	struct vector a = primitive->at, b, c;

	if (primitive->shape == SPHERE) {
		struct vector reach = vector(primitive->radius, primitive->radius, primitive->radius);
		*low = subtract(a, reach);
		*high = add(a, reach);
		return;
	}
	b = add(a, primitive->edge1);
	c = add(a, primitive->edge2);
	*low = vector(fmin(a.x, fmin(b.x, c.x)), fmin(a.y, fmin(b.y, c.y)), fmin(a.z, fmin(b.z, c.z)));
	*high = vector(fmax(a.x, fmax(b.x, c.x)), fmax(a.y, fmax(b.y, c.y)), fmax(a.z, fmax(b.z, c.z)));
}
