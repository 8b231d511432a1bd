/*
 * The ray tracer tachyon, Debian's, on a fixed scene: runs it, times it and checks its picture.
 *
 * The program is measured from outside, as a user would have it: this driver and tachyon are both started under
 * the LD_PRELOAD that is given, and the driver itself takes no lock. The picture is compared, byte by byte, with
 * one that a single thread has traced without any library; tachyon's threads share no state but the scene, so
 * the bytes do not depend on their number.
 *
 * What contention it has: none to speak of. Thread i of n traces the lines i, i + n, ... of the picture, so there
 * is no queue of work. The only lock is that of the barrier at which threads wait for the start and the end: in
 * libtachyon 0.99~b6, 45 acquisitions with 8 threads and 0 of them contended (the library's UNCONVOY_STATS). It
 * tells what interposition costs a program that hardly locks; the ray tracer with contended locks is raytrace,
 * beside this.
 *
 * Scene and pictures are anonymous memory that tachyon opens as /proc/self/fd/N: no disk is measured, none can be
 * full, and nothing is left behind.
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
	/* Inherited by the child: no MFD_CLOEXEC. */
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
	      "TEXDEF mirror AMBIENT 0.1 DIFFUSE 0.5 SPECULAR 0.4 OPACITY 1.0 COLOR 1.0 1.0 1.0 TEXFUNC 0\n",
	      out);
	for (long i = 0; i < job->spheres; i++) {
		double x = between(&random, -6, 6), y = between(&random, -2, 5), z = between(&random, -3, 9);
		fprintf(out, "SPHERE CENTER %.3f %.3f %.3f RAD %.3f mirror\n", x, y, z, between(&random, 0.05, 0.4));
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

/* In the child: becomes tachyon. */
__attribute__((noreturn)) static void become_tachyon(const struct job *job, long threads, int picture, int log)
{
	char scene_path[32], picture_path[32], thread_count[16];

	snprintf(scene_path, sizeof scene_path, "/proc/self/fd/%d", job->scene);
	snprintf(picture_path, sizeof picture_path, "/proc/self/fd/%d", picture);
	snprintf(thread_count, sizeof thread_count, "%ld", threads);
	dup2(log, STDOUT_FILENO);
	/* Interrupted, the driver leaves nothing that still computes. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(job->program, job->program, scene_path, "-numthreads", thread_count, "-format", "PPM", "-o", picture_path,
	      (char *)NULL);
	die("tachyon: cannot run %s: %s", job->program, strerror(errno));
}

/* The header of a PPM and 3 bytes a pixel; tachyon ends with 0 even if it could not read the scene. */
static struct image map_picture(const struct job *job, int picture, int log)
{
	struct image image;
	struct stat status;
	char header[64];
	int header_length = snprintf(header, sizeof header, "P6\n%ld %ld\n255\n", job->width, job->height);

	fstat(picture, &status);
	image.length = (size_t)header_length + 3 * (size_t)job->width * (size_t)job->height;
	if ((size_t)status.st_size != image.length) {
		char said[512] = "";
		ssize_t length = pread(log, said, sizeof said - 1, 0);
		said[length < 0 ? 0 : length] = 0;
		die("tachyon: a picture of %zu bytes was expected, and %lld came; it said:\n%s", image.length,
		    (long long)status.st_size, said);
	}
	image.bytes = mmap(NULL, image.length, PROT_READ, MAP_PRIVATE, picture, 0);
	if (image.bytes == MAP_FAILED)
		die("tachyon: cannot map the picture: %s", strerror(errno));
	if (memcmp(image.bytes, header, (size_t)header_length) != 0)
		die_inconsistent("tachyon: the picture is no PPM of %ldx%ld", job->width, job->height);
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
		die("tachyon: cannot wait for it: %s", strerror(errno));
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

/* A scene that shows nothing would be a fast one: a picture has to have many colours. */
static void check_not_empty(const struct image *image)
{
	bool seen[256] = { false };
	int values = 0;

	for (size_t i = 0; i < image->length; i++)
		seen[image->bytes[i]] = true;
	for (int i = 0; i < 256; i++)
		values += seen[i];
	if (values < 64)
		die_inconsistent("tachyon: the picture has only %d different values: the scene is not on it", values);
}

static void check_same(const struct image *image, const struct image *reference)
{
	for (size_t i = 0; i < image->length; i++)
		if (image->bytes[i] != reference->bytes[i])
			die_inconsistent(
				"tachyon: byte %zu of the picture is %d, and %d with one thread and no library", i,
				image->bytes[i], reference->bytes[i]);
}

int main(int argc, char **argv)
{
	struct job job = { PROGRAM, 1200, 900, 2000, -1 };
	long threads = 2;
	const struct option_row rows[] = {
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096, "threads that trace rays" },
		{ "width", "N", OPTION_COUNT, &job.width, 1, 16384, "of the picture, in pixels" },
		{ "height", "N", OPTION_COUNT, &job.height, 1, 16384, "of the picture, in pixels" },
		{ "spheres", "N", OPTION_COUNT, &job.spheres, 1, 1000000, "spheres in the generated scene" },
		{ "program", "FILE", OPTION_TEXT, &job.program, 0, 0, "tachyon itself" },
	};
	const struct program program = { "tachyon", "The ray tracer tachyon traces a fixed scene.", rows,
					 sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);
	if (access(job.program, X_OK) != 0)
		die("tachyon: %s is missing: install the packages " PACKAGES ", or say with --program where it is",
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
