/* The scratch directory. It is removed however the program ends. */
#include "tasks.h"

#include <ftw.h>
#include <sys/statvfs.h>

/* Interval and number of attempts to remove a directory that tasks may still fill: one second. */
#define BETWEEN_TRIES 0.02
enum { TRIES = 50 };

int is_ending;
static char *root;

const char *scratch(void)
{
	return root;
}

void stand_back(void)
{
	while (__atomic_load_n(&is_ending, __ATOMIC_RELAXED))
		pause();
}

void scratch_make(void)
{
	size_t length = strlen(crew_options.directory) + sizeof "/unconvoy-tasks-XXXXXX";

	root = line_alloc(1, length);
	snprintf(root, length, "%s/unconvoy-tasks-XXXXXX", crew_options.directory);
	if (!mkdtemp(root))
		die("cannot make a directory in %s: %s; choose another --directory", crew_options.directory,
		    strerror(errno));
}

static int remove_entry(const char *path, const struct stat *unused, int kind, struct FTW *at)
{
	(void)unused, (void)at;
	/* Another task may remove or refill the entry meanwhile; the next attempt handles that. */
	if (kind == FTW_DP)
		rmdir(path);
	else
		unlink(path);
	return 0;
}

void scratch_remove(void)
{
	for (int i = 0; root && i < TRIES; i++) {
		nftw(root, remove_entry, 64, FTW_DEPTH | FTW_PHYS);
		if (access(root, F_OK) != 0)
			return;
		sleep_seconds(BETWEEN_TRIES);
	}
}

void scratch_needs(uint64_t bytes)
{
	struct statvfs space;

	if (statvfs(root, &space) != 0)
		die("cannot inspect %s: %s", root, strerror(errno));
	uint64_t available = (uint64_t)space.f_bavail * space.f_frsize;
	if (available < bytes)
		die("no space: %" PRIu64 " MB are needed in %s, which has %" PRIu64
		    "; choose another --directory, or make the load smaller",
		    (bytes >> 20) + 1, crew_options.directory, available >> 20);
}

char *scratch_path(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	size_t before = strlen(root) + 1, bytes = before + (size_t)length + 1;
	char *path = line_alloc(1, bytes);
	snprintf(path, bytes, "%s/", root);
	va_start(args, format);
	vsnprintf(path + before, bytes - before, format, args);
	va_end(args);
	return path;
}

void make_directory(const char *path)
{
	stand_back();
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		die("cannot make %s: %s", path, strerror(errno));
}

void make_file(const char *path, const void *bytes, size_t count)
{
	stand_back();
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		die("cannot make %s: %s", path, strerror(errno));
	for (size_t done = 0; done < count;) {
		ssize_t written = write(fd, (const char *)bytes + done, count - done);
		if (written < 0)
			die("cannot write %s: %s", path, strerror(errno));
		done += (size_t)written;
	}
	close(fd);
}
