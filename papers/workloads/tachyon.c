/*
 * Runs Debian's ray tracer tachyon on a fixed scene, times it and checks its picture.
 *
 * The driver measures tachyon from outside, as users run it. The given LD_PRELOAD applies to the
 * driver, which takes no lock, and to tachyon. The picture is compared byte by byte with one traced
 * by a single thread without any library. tachyon's threads share only the scene, so the bytes do
 * not depend on the number of threads.
 *
 * tachyon has next to no contention. Thread i of n traces the lines i, i + n, ..., so there is no
 * work queue. The only lock is that of the start and end barrier: libtachyon 0.99~b6 makes 45
 * acquisitions with 8 threads, none contended (the library's UNCONVOY_STATS). This workload
 * measures what interposition costs a program that hardly locks. The workload raytrace has
 * contended locks.
 *
 * Scene and pictures are in anonymous memory, which tachyon opens as /proc/self/fd/N. No disk is
 * therefore measured, a full disk does no harm, and no file is left behind.
 */
#include "measure.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "/usr/bin/tachyon"
#define PACKAGES "tachyon-bin-nox and libtachyon-mt-0"

struct job {
	const char *program;
	long width, height, spheres;
	int scene; /* file descriptor of the description */
};

struct image {
	unsigned char *bytes;
	size_t length;
};

static int memory_file(const char *name)
{
	/* No MFD_CLOEXEC: the child inherits it. */
	int file = memfd_create(name, 0);
	if (file < 0)
		die("tachyon: cannot make a file in memory: %s", strerror(errno));
	return file;
}

static double between(uint64_t *random, double from, double to)
{
	return from + (to - from) * random_unit(random);
}

/* A cloud of mirroring spheres over a checkered floor, lit by two lamps. */
static int describe_scene(const struct job *job)
{
	int file = memory_file("scene.dat");
	FILE *out = fdopen(dup(file), "w");
	uint64_t random = 1;

	if (!out)
		die("tachyon: cannot write the scene: %s", strerror(errno));
	fprintf(out, "BEGIN_SCENE\nRESOLUTION %ld %ld\n", job->width, job->height);
	fputs("CAMERA\nZOOM 1.0\nASPECTRATIO 1.0\nANTIALIASING 0\nRAYDEPTH 6\n"
	      "CENTER 0.0 2.0 -12.0\nVIEWDIR 0.0 -0.1 1.0\nUPDIR 0.0 1.0 0.0\nEND_CAMERA\n"
	      "LIGHT CENTER 8.0 12.0 -10.0 RAD 0.1 COLOR 0.6 0.6 0.6\n"
	      "LIGHT CENTER -8.0 10.0 -6.0 RAD 0.1 COLOR 0.5 0.5 0.4\n"
	      "BACKGROUND 0.1 0.2 0.4\n"
	      "TEXDEF mirror AMBIENT 0.1 DIFFUSE 0.5 SPECULAR 0.4 OPACITY 1.0 "
	      "COLOR 1.0 1.0 1.0 TEXFUNC 0\n",
	      out);
	for (long i = 0; i < job->spheres; i++) {
		double x = between(&random, -6, 6), y = between(&random, -2, 5),
		       z = between(&random, -3, 9);
		fprintf(out, "SPHERE CENTER %.3f %.3f %.3f RAD %.3f mirror\n", x, y, z,
			between(&random, 0.05, 0.4));
	}
	fputs("PLANE CENTER 0.0 -2.0 0.0 NORMAL 0.0 1.0 0.0\n"
	      "TEXTURE AMBIENT 0.1 DIFFUSE 0.6 SPECULAR 0.2 OPACITY 1.0 COLOR 0.9 0.8 0.7\n"
	      "TEXFUNC 1 CENTER 0.0 0.0 0.0 ROTATE 0.0 0.0 0.0 SCALE 1.0 1.0 1.0\n"
	      "END_SCENE\n",
	      out);
	if (fclose(out) != 0)
		die("tachyon: cannot write the scene: %s", strerror(errno));
	return file;
}

/* Replaces the child by tachyon. */
__attribute__((noreturn)) static void
become_tachyon(const struct job *job, long threads, int picture, int log)
{
	char scene_path[32], picture_path[32], thread_count[16];

	snprintf(scene_path, sizeof scene_path, "/proc/self/fd/%d", job->scene);
	snprintf(picture_path, sizeof picture_path, "/proc/self/fd/%d", picture);
	snprintf(thread_count, sizeof thread_count, "%ld", threads);
	dup2(log, STDOUT_FILENO);
	/* An interrupted driver leaves no tachyon running. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(job->program, job->program, scene_path, "-numthreads", thread_count, "-format", "PPM",
	      "-o", picture_path, (char *)NULL);
	die("tachyon: cannot run %s: %s", job->program, strerror(errno));
}

/*
 * Checks that the picture is a complete PPM: tachyon exits with 0 even if it could not read the
 * scene.
 */
static struct image map_picture(const struct job *job, int picture, int log)
{
	struct image image;
	struct stat status;
	char header[64];
	int header_length =
		snprintf(header, sizeof header, "P6\n%ld %ld\n255\n", job->width, job->height);

	fstat(picture, &status);
	image.length = (size_t)header_length + 3 * (size_t)job->width * (size_t)job->height;
	if ((size_t)status.st_size != image.length) {
		char said[512] = "";
		ssize_t length = pread(log, said, sizeof said - 1, 0);
		said[length < 0 ? 0 : length] = 0;
		die("tachyon: expected a picture of %zu bytes, got %lld; tachyon printed:\n%s",
		    image.length, (long long)status.st_size, said);
	}
	image.bytes = mmap(NULL, image.length, PROT_READ, MAP_PRIVATE, picture, 0);
	if (image.bytes == MAP_FAILED)
		die("tachyon: cannot map the picture: %s", strerror(errno));
	if (memcmp(image.bytes, header, (size_t)header_length) != 0)
		die_inconsistent("tachyon: the picture is not a PPM of %ldx%ld", job->width, job->height);
	return image;
}

static struct image render(const struct job *job, long threads, bool with_library, double *seconds,
			   struct rusage *usage)
{
	int picture = memory_file("picture.ppm"), log = memory_file("log");
	int status = 0;
	uint64_t start = now_ns();
	pid_t child = start_child("tachyon");

	if (child == 0) {
		if (!with_library)
			unsetenv("LD_PRELOAD");
		become_tachyon(job, threads, picture, log);
	}
	if (wait4(child, &status, 0, usage) != child)
		die("tachyon: cannot wait for the process: %s", strerror(errno));
	*seconds = (double)(now_ns() - start) / 1e9;
	if (WIFSIGNALED(status))
		die("tachyon: ended by signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
	if (WEXITSTATUS(status) != 0)
		die("tachyon: ended with status %d", WEXITSTATUS(status));
	struct image image = map_picture(job, picture, log);
	close(picture);
	close(log);
	return image;
}

/* Requires many different values, because an empty picture would be fast to trace. */
static void check_not_empty(const struct image *image)
{
	bool seen[256] = { false };
	int values = 0;

	for (size_t i = 0; i < image->length; i++)
		seen[image->bytes[i]] = true;
	for (int i = 0; i < 256; i++)
		values += seen[i];
	if (values < 64)
		die_inconsistent("tachyon: the picture has only %d different values: the scene is missing",
				 values);
}

static void check_same(const struct image *image, const struct image *reference)
{
	for (size_t i = 0; i < image->length; i++)
		if (image->bytes[i] != reference->bytes[i])
			die_inconsistent(
				"tachyon: byte %zu of the picture is %d, but %d with one thread and no library", i,
				image->bytes[i], reference->bytes[i]);
}

int main(int argc, char **argv)
{
	struct job job = { PROGRAM, 1200, 900, 2000, -1 };
	long threads = 2;
	const struct option_row rows[] = {
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096, "threads that trace rays" },
		{ "width", "N", OPTION_COUNT, &job.width, 1, 16384, "pixels of the picture" },
		{ "height", "N", OPTION_COUNT, &job.height, 1, 16384, "pixels of the picture" },
		{ "spheres", "N", OPTION_COUNT, &job.spheres, 1, 1000000,
		  "spheres in the generated scene" },
		{ "program", "FILE", OPTION_TEXT, &job.program, 0, 0, "path of tachyon" },
	};
	const struct program program = { "tachyon", "The ray tracer tachyon traces a fixed scene.",
					 rows, sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);
	if (access(job.program, X_OK) != 0)
		die("tachyon: %s is missing: install the packages " PACKAGES
		    ", or name its path with --program",
		    job.program);

	double seconds, reference_seconds;
	struct rusage usage, reference_usage;
	job.scene = describe_scene(&job);
	struct image reference = render(&job, 1, false, &reference_seconds, &reference_usage);
	check_not_empty(&reference);
	struct image image = render(&job, threads, true, &seconds, &usage);
	check_same(&image, &reference);

	double pixels = (double)job.width * (double)job.height;
	printf("threads %ld\n", threads);
	printf("pixels %.0f\n", pixels);
	printf("seconds %.6f\n", seconds);
	printf("pixels_per_sec %.1f\n", pixels / seconds);
	printf("cpu_seconds %.6f\n", usage_seconds(&usage));
	printf("voluntary_csw %ld\n", usage.ru_nvcsw);
	printf("involuntary_csw %ld\n", usage.ru_nivcsw);
	return EXIT_SUCCESS;
}
