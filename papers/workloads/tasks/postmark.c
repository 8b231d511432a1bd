/*
 * A mail or news server after PostMark (Katcher, NetApp TR3022, 1997), in threads. Each thread has
 * its own files and works on them in transactions of two steps: (1) create or delete a file, (2)
 * read or append to one. Kind, file and size are drawn uniformly. No buffering happens outside the
 * kernel.
 *
 * A thread's number of files wanders at random, between one and twice the initial number.
 */
#include "tasks.h"

#include <dirent.h>

static long files = 500, smallest = 500, largest = 10000, block = 512;
static char *text;

struct server {
	int directory;
	long count, capacity;
	long *names, *sizes; /* of the existing files */
	long next_name;
	char *buffer;
	uint64_t created, deleted, read, appended;
};

static long between(struct task *task, long low, long high)
{
	return low + (long)random_below(&task->random, (uint64_t)(high - low + 1));
}

static const char *name_of(long number)
{
	static __thread char name[24];
	snprintf(name, sizeof name, "%ld", number);
	return name;
}

static int open_file(const struct server *server, long number, int flags)
{
	int file = openat(server->directory, name_of(number), flags | O_CLOEXEC, 0600);
	if (file < 0)
		die("postmark: cannot open a file in %s: %s", crew_options.directory, strerror(errno));
	return file;
}

static void put(int file, long bytes)
{
	for (long done = 0; done < bytes;) {
		long part = bytes - done < block ? bytes - done : block;
		ssize_t written = write(file, text, (size_t)part);
		if (written <= 0)
			die("postmark: cannot write in %s: %s; choose another --directory, or fewer --files",
			    crew_options.directory, written < 0 ? strerror(errno) : "no space left");
		done += written;
	}
}

static void create(struct task *task, struct server *server)
{
	long name = server->next_name++, size = between(task, smallest, largest);
	int file = open_file(server, name, O_WRONLY | O_CREAT | O_EXCL);

	put(file, size);
	close(file);
	server->names[server->count] = name;
	server->sizes[server->count++] = size;
	server->created++;
}

static void delete_file(struct server *server, long at)
{
	if (unlinkat(server->directory, name_of(server->names[at]), 0) != 0)
		die("postmark: cannot delete a file: %s", strerror(errno));
	server->count--;
	server->names[at] = server->names[server->count];
	server->sizes[at] = server->sizes[server->count];
	server->deleted++;
}

static void read_file(struct server *server, long at)
{
	int file = open_file(server, server->names[at], O_RDONLY);
	long seen = 0;
	ssize_t count;

	while ((count = read(file, server->buffer, (size_t)block)) > 0)
		seen += count;
	close(file);
	if (seen != server->sizes[at])
		die("postmark: a file should have %ld bytes and has %ld", server->sizes[at], seen);
	server->read++;
}

/* Appends a random amount within the largest size. A file of that size stays as it is. */
static void append(struct task *task, struct server *server, long at)
{
	long room = largest - server->sizes[at];
	int file = open_file(server, server->names[at], O_WRONLY | O_APPEND);
	long size = room > 0 ? between(task, 1, room) : 0;

	put(file, size);
	close(file);
	server->sizes[at] += size;
	server->appended++;
}

static void prepare(void)
{
	if (largest < smallest) {
		fprintf(stderr, "tasks postmark: --largest %ld is less than --smallest\n", largest);
		before_death();
		_Exit(EXIT_USAGE);
	}
	text = line_alloc(1, (size_t)block);
	for (long i = 0; i < block; i++)
		text[i] = (char)('a' + i % 26);
	scratch_needs((uint64_t)crew_options.tasks * (uint64_t)files *
		      (uint64_t)(smallest + largest) / 2);
}

static void begin(struct task *task)
{
	struct server *server = line_alloc(1, sizeof *server);
	char *path = scratch_path("%ld", task->index);

	make_directory(path);
	server->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (server->directory < 0)
		die("cannot open %s: %s", path, strerror(errno));
	free(path);
	server->capacity = 2 * files;
	server->names = line_alloc((size_t)server->capacity, sizeof *server->names);
	server->sizes = line_alloc((size_t)server->capacity, sizeof *server->sizes);
	server->buffer = line_alloc(1, (size_t)block);
	task->own = server;
	for (long i = 0; i < files; i++) {
		stand_back();
		create(task, server);
	}
}

static void operate(struct task *task)
{
	struct server *server = task->own;
	bool creates = random_below(&task->random, 2), reads = random_below(&task->random, 2);

	stand_back();
	if (server->count == 1 || (creates && server->count < server->capacity))
		create(task, server);
	else
		delete_file(server, between(task, 0, server->count - 1));
	long at = between(task, 0, server->count - 1);
	if (reads)
		read_file(server, at);
	else
		append(task, server, at);
}

/* Reads every file once more before deleting it, to check its size. */
static void end(struct task *task)
{
	struct server *server = task->own;
	uint64_t left = (uint64_t)server->count;

	if (server->created - server->deleted != left)
		die("postmark: %" PRIu64 " files made, %" PRIu64 " deleted, %" PRIu64 " left",
		    server->created, server->deleted, left);
	while (server->count > 0) {
		stand_back();
		read_file(server, server->count - 1);
		delete_file(server, server->count - 1);
	}
	close(server->directory);
	char *path = scratch_path("%ld", task->index);
	if (rmdir(path) != 0)
		die("postmark: %s is not empty: %s", path, strerror(errno));
	free(path);
	crew_add(left);
}

/* Counts the entries of the scratch directory, from which each thread has removed its own. */
static long entries_left(void)
{
	long count = 0;
	DIR *directory = opendir(scratch());
	const struct dirent *entry;

	while (directory && (entry = readdir(directory)))
		count += entry->d_name[0] != '.';
	if (directory)
		closedir(directory);
	return count;
}

static void report(void)
{
	printf("files %ld\n", files);
	printf("files_removed %" PRIu64 "\n", crew_sum());
	printf("files_left %ld\n", entries_left());
}

static const struct option_row rows[] = {
	{ "files", "N", OPTION_COUNT, &files, 1, 10000000,
	  "files per thread at the start (the paper has 500 and 10000)" },
	{ "smallest", "BYTES", OPTION_COUNT, &smallest, 1, 1 << 30, "smallest file" },
	{ "largest", "BYTES", OPTION_COUNT, &largest, 1, 1 << 30, "largest file" },
	{ "block", "BYTES", OPTION_COUNT, &block, 1, 1 << 20, "bytes of one read or write" },
};

const struct load postmark = {
	.name = "postmark",
	.about = "Threads create, delete, read and append to small files of their own.",
	.is_threaded = true,
	.has_files = true,
	.rows = rows,
	.row_count = sizeof rows / sizeof *rows,
	.prepare = prepare,
	.begin = begin,
	.operate = operate,
	.end = end,
	.report = report,
};
