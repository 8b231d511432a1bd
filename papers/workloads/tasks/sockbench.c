/*
 * Each process opens and closes sockets. The processes contend for the locks of inodes, directory
 * entries and file tables.
 */
#include "tasks.h"

#include <sys/socket.h>

static const char *const families[] = { "inet", "unix" };
static const int domains[] = { AF_INET, AF_UNIX };

static const char *family = "inet";
static int domain;

static void prepare(void)
{
	for (int i = 0; i < 2; i++)
		if (!strcmp(family, families[i]))
			domain = domains[i];
	if (!domain) {
		fprintf(stderr, "tasks sockbench: --family %s: expected inet or unix\n", family);
		before_death();
		_Exit(EXIT_USAGE);
	}
}

static void operate(struct task *task)
{
	(void)task;
	int made = socket(domain, SOCK_STREAM, 0);

	if (made < 0)
		die("cannot open a socket: %s; choose another --family", strerror(errno));
	close(made);
}

static const struct option_row rows[] = {
	{ "family", "NAME", OPTION_TEXT, &family, 0, 0, "inet or unix" },
};

const struct load sockbench = {
	.name = "sockbench",
	.about = "Processes open a socket and close it.",
	.rows = rows,
	.row_count = sizeof rows / sizeof *rows,
	.prepare = prepare,
	.operate = operate,
};
