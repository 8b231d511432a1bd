/*
 * The system's find and grep on generated trees. find looks for a missing name, in one tree per
 * process. grep looks for a missing text, in files that all processes share.
 */
#include "tasks.h"

enum { FILES_PER_DIRECTORY = 16, DIRECTORIES_PER_DIRECTORY = 8 };

/* Every file contains the first text, and none the second. */
#define PRESENT "the last line of each file"
#define ABSENT "no file has this text"

/* About as many files as a kernel of the paper's time has. */
static long tree_files = 27000;
static const char *find_program = "find", *grep_program = "grep";
/* The paper's kernel has 306.8 MB in about this many files; this is their mean size. */
static long set_megabytes = 256, set_file_bytes = 11000;
static char *set;
static uint64_t set_files;

/* The path of directory `number` below `root`; each directory holds eight others. */
static char *directory_of(const char *root, long number)
{
	char *parent, *path;

	if (number == 0)
		return strdup(root);
	parent = directory_of(root, (number - 1) / DIRECTORIES_PER_DIRECTORY);
	if (asprintf(&path, "%s/d%ld", parent, number) < 0)
		die("out of memory");
	free(parent);
	return path;
}

static void make_tree(const char *root, long files)
{
	for (long made = 0; made < files;) {
		char *directory = directory_of(root, made / FILES_PER_DIRECTORY);
		make_directory(directory);
		for (long i = 0; i < FILES_PER_DIRECTORY && made < files; i++, made++) {
			char *file;
			if (asprintf(&file, "%s/source%ld.c", directory, i) < 0)
				die("out of memory");
			make_file(file, NULL, 0);
			free(file);
		}
		free(directory);
	}
}

/* Makes `levels` nested directories with one-letter names; returns the path of the innermost. */
static char *make_levels(int levels)
{
	char *path = scratch_path("a");

	make_directory(path);
	for (int i = 1; i < levels; i++) {
		char *next;
		if (asprintf(&next, "%s/%c", path, 'a' + i) < 0)
			die("out of memory");
		free(path);
		path = next;
		make_directory(path);
	}
	return path;
}

static void find_prepare(void)
{
	tool_check(find_program, "findutils");
	free(make_levels(3));
}

/* Trees lie five levels below --directory, as the paper's copies do. */
static void find_begin(struct task *task)
{
	char *tree = scratch_path("a/b/c/tree%ld", task->index);

	make_tree(tree, tree_files);
	char *const words[] = { (char *)find_program, tree, "-type", "f", NULL };
	uint64_t found = tool_lines(words);
	if (found != (uint64_t)tree_files)
		die("find: %s found %" PRIu64 " of %ld files", find_program, found, tree_files);
	crew_add(found);
	task->own = tree;
}

static void find_operate(struct task *task)
{
	char *const words[] = { (char *)find_program, task->own, "-name", "nosuchfile", NULL };
	int status = tool_run(words);

	if (status != 0)
		die("find: %s ended with status %d", find_program, status);
}

static void find_report(void)
{
	printf("files %ld\n", tree_files);
	printf("files_found %" PRIu64 "\n", crew_sum());
}

/*
 * Files lie six levels below --directory: three in the scratch directory, then a directory per
 * sixteen files.
 */
static void grep_prepare(void)
{
	char *bytes = line_alloc(1, (size_t)set_file_bytes + 1);
	size_t end = sizeof PRESENT; /* with a newline */

	tool_check(grep_program, "grep");
	scratch_needs((uint64_t)set_megabytes << 20);
	if ((size_t)set_file_bytes < end)
		die("grep: --bytes %ld is too small: at least %zu", set_file_bytes, end);
	for (long i = 0; i < set_file_bytes; i++)
		bytes[i] = (char)(i % 60 == 59 ? '\n' : 'a' + i % 23);
	memcpy(bytes + set_file_bytes - end, "\n" PRESENT, end);
	set_files = ((uint64_t)set_megabytes << 20) / (uint64_t)set_file_bytes;
	set_files += !set_files;
	set = make_levels(3);
	for (uint64_t made = 0; made < set_files;) {
		char *directory, *file;
		if (asprintf(&directory, "%s/%" PRIu64, set, made / FILES_PER_DIRECTORY) < 0)
			die("out of memory");
		make_directory(directory);
		for (int i = 0; i < FILES_PER_DIRECTORY && made < set_files; i++, made++) {
			if (asprintf(&file, "%s/source%d.c", directory, i) < 0)
				die("out of memory");
			make_file(file, bytes, (size_t)set_file_bytes);
			free(file);
		}
		free(directory);
	}
	free(bytes);
	char *const words[] = { (char *)grep_program, "-rl", PRESENT, set, NULL };
	uint64_t found = tool_lines(words);
	if (found != set_files)
		die("grep: %s found %" PRIu64 " of %" PRIu64 " files", grep_program, found, set_files);
}

static void grep_operate(struct task *task)
{
	char *const words[] = { (char *)grep_program, "-r", ABSENT, set, NULL };
	int status = tool_run(words);

	(void)task;
	if (status != 1)
		die("grep: %s ended with status %d, expected 1 (not found)", grep_program, status);
}

static void grep_report(void)
{
	printf("files %" PRIu64 "\n", set_files);
	printf("megabytes %ld\n", set_megabytes);
}

static const struct option_row find_rows[] = {
	{ "files", "N", OPTION_COUNT, &tree_files, 1, 10000000, "files in each process's tree" },
	{ "program", "PATH", OPTION_TEXT, &find_program, 0, 0, "the program" },
};

const struct load find_load = {
	.name = "find",
	.about = "Processes run find for a missing name, each in its own tree.",
	.has_files = true,
	.rows = find_rows,
	.row_count = sizeof find_rows / sizeof *find_rows,
	.prepare = find_prepare,
	.begin = find_begin,
	.operate = find_operate,
	.report = find_report,
};

static const struct option_row grep_rows[] = {
	{ "megabytes", "N", OPTION_COUNT, &set_megabytes, 1, 1 << 20,
	  "total size of the files, in MB (the paper has 4096)" },
	{ "bytes", "N", OPTION_COUNT, &set_file_bytes, 1, 1 << 30, "size of a file" },
	{ "program", "PATH", OPTION_TEXT, &grep_program, 0, 0, "the program" },
};

const struct load grep_load = {
	.name = "grep",
	.about = "Processes run grep for a missing text, in shared files.",
	.has_files = true,
	.rows = grep_rows,
	.row_count = sizeof grep_rows / sizeof *grep_rows,
	.prepare = grep_prepare,
	.operate = grep_operate,
	.report = grep_report,
};
