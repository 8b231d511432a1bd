/*
 * A task-stealing ray tracer with the locks of SPLASH-2's raytrace (Woo et al., ISCA 1995): a mutex
 * per work queue, `memlock` for the shared memory of the jobs, and `ridlock`, which numbers every
 * single ray and is the bottleneck. The threads share nothing else.
 *
 * The picture, and so its checksum, does not depend on the number of threads or on which thread
 * traced what.
 */
#include "measure.h"
#include "grid.h"
#include "workpool.h"

enum { MAX_REFLECTIONS = 5 };
/* Reflections that add less than one step of the 8-bit picture are not traced. */
static const double MIN_WEIGHT = 1.0 / 256;

struct tracer {
	struct scene scene;
	struct grid grid;
	struct workpool *pool;
	int width, height, tile;
	uint8_t *pixels;
	struct window window;
	pthread_mutex_t ridlock __attribute__((aligned(MEASURE_LINE)));
	uint64_t rays __attribute__((aligned(MEASURE_LINE)));
};

struct worker {
	struct tracer *tracer;
	int index;
	struct counter *rays;
	uint64_t *mailbox;
	pthread_t thread;
};

static struct ray new_ray(struct worker *self, struct vector origin, struct vector direction)
{
	struct tracer *tracer = self->tracer;
	struct ray ray = { origin, direction, 0 };

	pthread_mutex_lock(&tracer->ridlock);
	ray.id = ++tracer->rays;
	pthread_mutex_unlock(&tracer->ridlock);
	counter_increment(self->rays);
	return ray;
}

static struct vector sky(struct vector direction)
{
	double height = 0.5 * (direction.y + 1);
	return add(scale(vector(0.9, 0.9, 0.95), 1 - height), scale(vector(0.3, 0.5, 0.9), height));
}

static struct vector direct_light(struct worker *self, struct vector point, struct vector normal)
{
	const struct tracer *tracer = self->tracer;
	struct vector sum = vector(0.15, 0.15, 0.18);

	for (int i = 0; i < LIGHT_COUNT; i++) {
		const struct light *light = &tracer->scene.lights[i];
		struct vector to_light = subtract(light->at, point);
		double distance = sqrt(dot(to_light, to_light)), facing;
		to_light = scale(to_light, 1 / distance);
		facing = dot(normal, to_light);
		/* As in SPLASH-2, the ray gets a number even if it turns out not to be needed. */
		struct ray shadow = new_ray(self, point, to_light);
		if (facing > 0 && !grid_blocked(&tracer->grid, &shadow, self->mailbox, distance))
			sum = add(sum, scale(light->colour, facing));
	}
	return sum;
}

static struct vector trace(struct worker *self, struct vector origin, struct vector direction)
{
	const struct tracer *tracer = self->tracer;
	struct vector sum = vector(0, 0, 0);
	double weight = 1;

	for (int bounce = 0; bounce <= MAX_REFLECTIONS && weight >= MIN_WEIGHT; bounce++) {
		struct ray ray = new_ray(self, origin, direction);
		struct hit hit = { INFINITY, -1 };
		if (!grid_nearest(&tracer->grid, &ray, self->mailbox, &hit))
			return add(sum, scale(sky(direction), weight));
		origin = add(origin, scale(direction, hit.distance));
		struct material material;
		struct vector normal = surface_at(&tracer->scene, &hit, direction, origin, &material);
		struct vector light = filter(material.colour, direct_light(self, origin, normal));
		sum = add(sum, scale(light, weight * (1 - material.reflection)));
		direction = subtract(direction, scale(normal, 2 * dot(normal, direction)));
		weight *= material.reflection;
	}
	return sum;
}

/* Gamma 2: a square root, which every machine rounds alike. */
static uint8_t to_byte(double light)
{
	return (uint8_t)(255 * sqrt(fmin(light, 1)) + 0.5);
}

static void render(struct worker *self, const struct job *job)
{
	const struct tracer *tracer = self->tracer;

	for (int y = job->y; y < job->y + job->height; y++)
		for (int x = job->x; x < job->x + job->width; x++) {
			double right = (2.0 * x + 1 - tracer->width) / tracer->height;
			double up = (tracer->height - 2.0 * y - 1) / tracer->height;
			struct vector direction = normalize(vector(0.6 * right, 0.6 * up - 0.2, 1));
			struct vector colour = trace(self, tracer->scene.eye, direction);
			uint8_t *pixel = &tracer->pixels[3 * ((size_t)y * (size_t)tracer->width + (size_t)x)];
			pixel[0] = to_byte(colour.x);
			pixel[1] = to_byte(colour.y);
			pixel[2] = to_byte(colour.z);
		}
}

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

/* Queues the thread's initial share, every n-th tile; other threads may steal from it. */
static void put_own_tiles(const struct worker *self)
{
	const struct tracer *tracer = self->tracer;
	int columns = (tracer->width + tracer->tile - 1) / tracer->tile;
	int rows = (tracer->height + tracer->tile - 1) / tracer->tile;

	for (long i = self->index; i < (long)columns * rows; i += tracer->window.threads) {
		int x = (int)(i % columns) * tracer->tile, y = (int)(i / columns) * tracer->tile;
		workpool_put(tracer->pool, self->index,
			     (struct job){ x, y, min_int(tracer->tile, tracer->width - x),
					   min_int(tracer->tile, tracer->height - y), NULL });
	}
}

static void *worker_main(void *argument)
{
	struct worker *self = argument;
	struct job job;

	put_own_tiles(self);
	pthread_barrier_wait(&self->tracer->window.start_barrier);
	while (workpool_take(self->tracer->pool, self->index, &job))
		render(self, &job);
	return NULL;
}

static size_t picture_bytes(const struct tracer *tracer)
{
	return 3 * (size_t)tracer->width * (size_t)tracer->height;
}

/* FNV-1a, 64 bits. */
static uint64_t checksum(const struct tracer *tracer)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (size_t i = 0; i < picture_bytes(tracer); i++)
		hash = (hash ^ tracer->pixels[i]) * 0x100000001b3u;
	return hash;
}

static void write_picture(const struct tracer *tracer, const char *path)
{
	FILE *file = fopen(path, "wb");

	if (!file)
		die("raytrace: cannot write %s", path);
	fprintf(file, "P6\n%d %d\n255\n", tracer->width, tracer->height);
	bool complete = fwrite(tracer->pixels, 1, picture_bytes(tracer), file) == picture_bytes(tracer);
	if (fclose(file) != 0 || !complete)
		die("raytrace: cannot write all of %s", path);
}

static void parse_size(const struct program *program, const char *text, struct tracer *tracer)
{
	int used = 0;

	if (sscanf(text, "%5dx%5d%n", &tracer->width, &tracer->height, &used) != 2 || text[used] ||
	    tracer->width < 1 || tracer->height < 1 || tracer->width > 16384 || tracer->height > 16384)
		usage_error(program, "--size %s: expected WIDTHxHEIGHT, each from 1 to 16384", text);
}

static void start_workers(struct tracer *tracer, struct worker *workers, long threads)
{
	for (long i = 0; i < threads; i++) {
		workers[i].tracer = tracer;
		workers[i].index = (int)i;
		workers[i].rays = &tracer->window.counters[i];
		workers[i].mailbox = line_alloc(tracer->scene.count, sizeof *workers[i].mailbox);
		workers[i].thread = start_thread(worker_main, &workers[i]);
	}
}

int main(int argc, char **argv)
{
	long threads = 2, tile = 16, objects = 40;
	const char *size = "2800x2100", *expect = NULL, *output = NULL;
	const struct option_row rows[] = {
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096, "threads that trace rays" },
		{ "size", "WxH", OPTION_TEXT, &size, 0, 0, "pixels of the picture" },
		{ "tile", "N", OPTION_COUNT, &tile, 1, 16384, "edge of a job's square, in pixels" },
		{ "scene", "N", OPTION_COUNT, &objects, 1, 1000000, "objects in the generated scene" },
		{ "output", "FILE.ppm", OPTION_TEXT, &output, 0, 0, "write the picture to FILE.ppm" },
		{ "expect", "HEX", OPTION_TEXT, &expect, 0, 0,
		  "exit 3 unless the picture has this checksum" },
	};
	const struct program program = { "raytrace",
					 "Threads trace the rays of one picture, tile by tile.", rows,
					 sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);

	struct tracer *tracer = line_alloc(1, sizeof *tracer);
	parse_size(&program, size, tracer);
	tracer->tile = (int)tile;
	tracer->pixels = line_alloc(picture_bytes(tracer), 1);
	tracer->pool = workpool_new((int)threads);
	pthread_mutex_init(&tracer->ridlock, NULL);
	scene_generate(&tracer->scene, (uint32_t)objects);
	grid_build(&tracer->grid, &tracer->scene);
	window_init(&tracer->window, threads, threads);
	struct worker *workers = line_alloc((size_t)threads, sizeof *workers);
	start_workers(tracer, workers, threads);

	/* Fixed work: the window opens before the threads start, and closes when the last is done. */
	window_begin(&tracer->window);
	pthread_barrier_wait(&tracer->window.start_barrier);
	for (long i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	window_end(&tracer->window);

	if (window_ops(&tracer->window) != tracer->rays)
		die_inconsistent("raytrace: %" PRIu64 " rays got %" PRIu64
				 " numbers: the lock did not exclude",
				 window_ops(&tracer->window), tracer->rays);
	window_report(&tracer->window);
	printf("rays %" PRIu64 "\n", tracer->rays);
	printf("rays_per_sec %.1f\n", (double)tracer->rays / tracer->window.seconds);
	uint64_t sum = checksum(tracer);
	printf("checksum %016" PRIx64 "\n", sum);
	if (output)
		write_picture(tracer, output);
	if (expect && strtoull(expect, NULL, 16) != sum)
		die_inconsistent("raytrace: the checksum is %016" PRIx64
				 ", expected %s: the picture is wrong",
				 sum, expect);
	return EXIT_SUCCESS;
}
