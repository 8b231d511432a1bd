/*
 * Each process maps the same file, reads the first byte of each page and unmaps the file. The
 * processes contend for the lock of the file's mappings.
 */
#include "tasks.h"

#include <sys/mman.h>

enum { CHUNK = 1 << 20 };

/* The paper's size. */
static long megabytes = 500;
static int file;
static size_t bytes, page;

static void prepare(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	bytes = (size_t)megabytes << 20;
	scratch_needs(bytes);
	file = open(scratch_path("mapped"), O_RDWR | O_CREAT | O_EXCL, 0600);
	if (file < 0)
		die("cannot make a file in %s: %s", scratch(), strerror(errno));
	/* Writing allocates the pages. Each gets a one, so that a sum proves that all were read. */
	char *chunk = line_alloc(1, CHUNK);
	for (size_t at = 0; at < CHUNK; at += page)
		chunk[at] = 1;
	for (size_t done = 0; done < bytes;) {
		stand_back();
		ssize_t written = write(file, chunk, CHUNK);
		if (written != CHUNK)
			die("cannot write %ld MB in %s: %s", megabytes, crew_options.directory,
			    written < 0 ? strerror(errno) : "no space left");
		done += CHUNK;
	}
	free(chunk);
}

static void operate(struct task *task)
{
	(void)task;
	const volatile char *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
	size_t sum = 0;

	if (memory == MAP_FAILED)
		die("cannot map %ld MB: %s", megabytes, strerror(errno));
	for (size_t at = 0; at < bytes; at += page)
		sum += (size_t)memory[at];
	if (sum != bytes / page)
		die("mmapbench: only %zu of %zu pages read back as written", sum, bytes / page);
	munmap((void *)memory, bytes);
}

static void report(void)
{
	printf("megabytes %ld\n", megabytes);
	printf("pages %zu\n", bytes / page);
}

static const struct option_row rows[] = {
	{ "megabytes", "N", OPTION_COUNT, &megabytes, 1, 1 << 20,
	  "size of the file, in MB (the paper has 500)" },
};

const struct load mmapbench = {
	.name = "mmapbench",
	.about = "Processes map one file, read a byte of each page, and unmap it.",
	.has_files = true,
	.rows = rows,
	.row_count = sizeof rows / sizeof *rows,
	.prepare = prepare,
	.operate = operate,
	.report = report,
};
