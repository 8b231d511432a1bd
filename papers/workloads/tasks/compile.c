/*
 * A compiler, standing in for kernbench. As under `make -j N`, N processes compile sources. Each
 * takes the next source that no process has taken. After the last source they start over.
 */
#include "tasks.h"

static const char *compiler = "cc";
static long sources = 64, functions = 20;

static void write_function(FILE *out, uint64_t *random, long number)
{
	long shift = (long)random_below(random, 20) + 1, limit = (long)random_below(random, 90) + 10;

	fprintf(out,
		"struct record%ld { long key; unsigned flags; "
		"struct record%ld *next; unsigned char tail[%ld]; };\n"
		"static long walk%ld(struct record%ld *first, long budget)\n"
		"{\n"
		"\tlong sum = %ld;\n"
		"\tfor (struct record%ld *record = first; record && budget-- > 0; "
		"record = record->next) {\n"
		"\t\tswitch (record->flags & 7) {\n"
		"\t\tcase 0: sum += record->key << %ld; break;\n"
		"\t\tcase 1: sum ^= record->key >> %ld; break;\n"
		"\t\tcase 2: sum -= record->tail[sum & %ld %% sizeof record->tail]; break;\n"
		"\t\tdefault:\n"
		"\t\t\tfor (unsigned i = 0; i < sizeof record->tail; i++)\n"
		"\t\t\t\tsum = sum * 31 + record->tail[i];\n"
		"\t\t}\n"
		"\t\tif (sum %% %ld == 3)\n"
		"\t\t\trecord->flags = (record->flags << 3) | (unsigned)(sum & 7);\n"
		"\t}\n"
		"\treturn sum;\n"
		"}\n\n",
		number, number, limit, number, number, shift, number, shift, shift, limit, limit);
	fprintf(out,
		"long visit%ld(void *table, long count)\n"
		"{\n"
		"\tstruct record%ld *records = table;\n"
		"\tlong best = 0;\n"
		"\tfor (long i = 0; i < count; i++) {\n"
		"\t\tlong here = walk%ld(&records[i], count - i);\n"
		"\t\tbest = here > best ? here : best;\n"
		"\t}\n"
		"\treturn best;\n"
		"}\n\n",
		number, number, number);
}

static void prepare(void)
{
	tool_check(compiler, "gcc");
	make_directory(scratch_path("sources"));
	make_directory(scratch_path("objects"));
	/* Directory of the compiler's temporary files. */
	setenv("TMPDIR", scratch(), 1);
	for (long i = 0; i < sources; i++) {
		char *path = scratch_path("sources/%ld.c", i);
		uint64_t random = (uint64_t)i;
		stand_back();
		FILE *out = fopen(path, "w");
		for (long k = 0; out && k < functions; k++)
			write_function(out, &random, k);
		if (!out || ferror(out) || fclose(out) != 0)
			die("cannot write %s: %s", path, strerror(errno));
		free(path);
	}
}

static void begin(struct task *task)
{
	task->own = scratch_path("objects/%ld.o", task->index);
}

static void operate(struct task *task)
{
	char *source = scratch_path("sources/%" PRIu64 ".c", crew_next() % (uint64_t)sources);
	char *const words[] = { (char *)compiler, "-O2", "-c", source, "-o", task->own, NULL };
	struct stat object;
	int status = tool_run(words);

	free(source);
	if (status != 0)
		die("compile: %s ended with status %d", compiler, status);
	if (stat(task->own, &object) != 0 || object.st_size == 0)
		die("compile: %s made no object file", compiler);
	unlink(task->own);
}

static void report(void)
{
	printf("sources %ld\n", sources);
}

static const struct option_row rows[] = {
	{ "sources", "N", OPTION_COUNT, &sources, 1, 100000, "source files" },
	{ "functions", "N", OPTION_COUNT, &functions, 1, 100000, "pairs of functions per file" },
	{ "compiler", "PATH", OPTION_TEXT, &compiler, 0, 0, "the compiler" },
};

const struct load compile_load = {
	.name = "compile",
	.about = "Processes compile sources, as make -j N does.",
	.has_files = true,
	.rows = rows,
	.row_count = sizeof rows / sizeof *rows,
	.prepare = prepare,
	.begin = begin,
	.operate = operate,
	.report = report,
};
