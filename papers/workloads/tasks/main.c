/* Command line: the load and its options. */
#include "tasks.h"

enum { MOST_ROWS = 16 };

struct crew_options crew_options = { 1, 5, 0.1, 0, "" };

static const struct load *const loads[] = {
	&mmapbench, &sockbench, &postmark, &find_load, &grep_load, &compile_load,
};
enum { LOADS = sizeof loads / sizeof *loads };

static void usage(FILE *out)
{
	fputs("Usage: tasks LOAD [OPTIONS]\n\n"
	      "Identical tasks that contend for the kernel's locks.\n\nLoads:\n",
	      out);
	for (int i = 0; i < LOADS; i++)
		fprintf(out, "  %-10s %s\n", loads[i]->name, loads[i]->about);
	fputs("\n`tasks LOAD --help` lists a load's options. Output is `name value` lines, above all\n"
	      "operations (ops), seconds, and processor time of all tasks (cpu_seconds).\n",
	      out);
}

static const struct load *chosen(const char *name)
{
	for (int i = 0; i < LOADS; i++)
		if (!strcmp(loads[i]->name, name))
			return loads[i];
	fprintf(stderr, "tasks: unknown load %s\n\n", name);
	usage(stderr);
	exit(EXIT_USAGE);
}

/* Prefers memory to a disk, because the benchmark measures the kernel. */
static const char *default_directory(void)
{
	const char *named = getenv("TMPDIR");

	if (access("/dev/shm", W_OK | X_OK) == 0)
		return "/dev/shm";
	return named && *named ? named : "/tmp";
}

int main(int argc, char **argv)
{
	const struct option_row common[] = {
		{ "tasks", "N", OPTION_COUNT, &crew_options.tasks, 1, 4096,
		  "tasks that run at the same time" },
		{ "seconds", "S", OPTION_REAL, &crew_options.seconds, 0.01, 3600,
		  "length of the measured window" },
		{ "warm-up", "S", OPTION_REAL, &crew_options.warm_up, 0, 3600,
		  "warm-up before the window; at least one operation per task" },
		{ "operations", "N", OPTION_COUNT, &crew_options.operations, 0, 1e15,
		  "operations per task; 0: run for --seconds" },
		{ "directory", "DIR", OPTION_TEXT, &crew_options.directory, 0, 0,
		  "directory for the load's files, removed at the end" },
	};
	struct option_row rows[MOST_ROWS];
	size_t count = sizeof common / sizeof *common;

	if (argc < 2 || !strcmp(argv[1], "--help")) {
		usage(argc < 2 ? stderr : stdout);
		return argc < 2 ? EXIT_USAGE : EXIT_SUCCESS;
	}
	const struct load *load = chosen(argv[1]);
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	crew_options.tasks = processors > 0 ? processors : 1;
	crew_options.directory = default_directory();
	if (!load->has_files)
		count--; /* --directory is the last */
	memcpy(rows, common, count * sizeof *rows);
	memcpy(rows + count, load->rows, load->row_count * sizeof *rows);
	char name[32];
	snprintf(name, sizeof name, "tasks %s", load->name);
	const struct program program = { name, load->about, rows, count + load->row_count };
	parse_options(&program, argc - 1, argv + 1);

	crew_run(load);
	return EXIT_SUCCESS;
}
