/*
 * The command line of a workload program: a table of options, from which --help is printed, and
 * which names the values that the options set.
 */
#ifndef UNCONVOY_COMMAND_LINE_H
#define UNCONVOY_COMMAND_LINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "die.h"

enum option_type { OPTION_COUNT, OPTION_REAL, OPTION_TEXT, OPTION_FLAG };

/* One row of a program's option table. `to` points to a long, double, const char * or bool. */
struct option_row {
	const char *name;
	const char *argument; /* name of the value in --help; unused for a flag */
	enum option_type type;
	void *to;
	double min, max; /* range of a count or real, both ends included */
	const char *help;
};

struct program {
	const char *name, *about;
	const struct option_row *rows;
	size_t row_count;
};

static inline void print_usage(const struct program *program, FILE *out)
{
	fprintf(out, "Usage: %s [OPTIONS]\n\n%s\n\nOptions:\n", program->name, program->about);
	for (size_t i = 0; i < program->row_count; i++) {
		const struct option_row *row = &program->rows[i];
		char head[64];
		snprintf(head, sizeof head, "--%s %s", row->name,
			 row->type == OPTION_FLAG ? "" : row->argument);
		fprintf(out, "  %-20s %s", head, row->help);
		const char *text = row->type == OPTION_TEXT ? *(const char **)row->to : NULL;
		if (row->type == OPTION_COUNT && *(long *)row->to >= row->min)
			fprintf(out, " [default: %ld]", *(long *)row->to);
		else if (row->type == OPTION_REAL)
			fprintf(out, " [default: %g]", *(double *)row->to);
		else if (text)
			fprintf(out, " [default: %s]", text);
		fputc('\n', out);
	}
	fprintf(out, "  %-20s %s\n", "--help", "print this and exit");
}

__attribute__((noreturn, format(printf, 2, 3))) static inline void
usage_error(const struct program *program, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "%s: ", program->name);
	vfprintf(stderr, format, args);
	fprintf(stderr, "\nFor the options: %s --help\n", program->name);
	va_end(args);
	exit(EXIT_USAGE);
}

static inline void parse_value(const struct program *program, const struct option_row *row,
			       const char *value)
{
	char *end;
	double number;

	if (row->type == OPTION_TEXT) {
		*(const char **)row->to = value;
		return;
	}
	if (row->type == OPTION_COUNT)
		number = (double)(*(long *)row->to = strtol(value, &end, 10));
	else
		number = *(double *)row->to = strtod(value, &end);
	/* Also rejects a NaN. */
	if (end == value || *end || !(number >= row->min && number <= row->max))
		usage_error(program, "--%s %s: expected a number from %.15g to %.15g", row->name, value,
			    row->min, row->max);
}

/* At the end: a program whose results are lost has failed. */
static inline void close_output(void)
{
	if (fflush(stdout) || ferror(stdout)) {
		fputs("cannot write standard output\n", stderr);
		_Exit(EXIT_FAILED);
	}
}

/* Accepts --name VALUE and --name=VALUE. Exits with 0 after --help, and with 2 on an unknown
 * option. */
static inline void parse_options(const struct program *program, int argc, char **argv)
{
	atexit(close_output);
	for (int i = 1; i < argc; i++) {
		const char *word = argv[i];
		const char *equals = strchr(word, '=');
		size_t length = equals ? (size_t)(equals - word) : strlen(word);
		const struct option_row *row = NULL;

		if (!strcmp(word, "--help")) {
			print_usage(program, stdout);
			exit(EXIT_SUCCESS);
		}
		for (size_t r = 0; r < program->row_count && length > 2 && !strncmp(word, "--", 2); r++)
			if (strlen(program->rows[r].name) == length - 2 &&
			    !strncmp(program->rows[r].name, word + 2, length - 2))
				row = &program->rows[r];
		if (!row)
			usage_error(program, "unknown option %s", word);
		if (row->type == OPTION_FLAG) {
			if (equals)
				usage_error(program, "--%s takes no value", row->name);
			*(bool *)row->to = true;
		} else if (equals) {
			parse_value(program, row, equals + 1);
		} else if (i + 1 < argc) {
			parse_value(program, row, argv[++i]);
		} else {
			usage_error(program, "--%s needs a value", row->name);
		}
	}
}

/* Returns the index of `text` in `names`. Exits with 2 and a list of the names if there is none. */
static inline int parse_choice(const struct program *program, const char *option, const char *text,
			       const char *const *names, int count)
{
	char list[256] = "";

	for (int i = 0; i < count; i++) {
		if (!strcmp(text, names[i]))
			return i;
		size_t used = strlen(list);
		snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
	}
	usage_error(program, "--%s %s: expected one of %s", option, text, list);
}

#endif
