/*
 * Homogeneous loads on the kernel's own locks, after Cui, Wang, Chen and Shi,
 * "Lock-Contention-Aware Scheduler" (ACM TACO 9(4), 2013), section 4.2: N identical tasks, each in
 * a loop.
 *
 * | file | idea |
 * | --- | --- |
 * | main.c | command line |
 * | crew.c | starts the tasks together, and measures each |
 * | scratch.c | the scratch directory, which is removed however the program ends |
 * | tool.c | runs a system program |
 * | the others | one load each |
 *
 * A task counts the operations that it begins within the window. Its time and processor time run
 * from the start of the first of these operations to the end of the last, so no operation counts in
 * part, however long it takes. Throughput is the sum of the tasks' rates.
 */
#ifndef UNCONVOY_TASKS_H
#define UNCONVOY_TASKS_H

#include "ending.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Options of every load; defined in main.c. */
struct crew_options {
	long tasks;
	double seconds, warm_up;
	long operations; /* per task; 0: as many as fit into the window */
	const char *directory;
};

extern struct crew_options crew_options;

struct task {
	long index;
	uint64_t random;
	void *own; /* the load's own state */
};

/* A load. NULL functions are skipped. */
struct load {
	const char *name, *about;
	bool is_threaded; /* threads of one process, as in the paper; else processes */
	bool has_files;   /* needs a scratch directory */
	const struct option_row *rows;
	size_t row_count;
	void (*prepare)(void);          /* once, before the tasks start */
	void (*begin)(struct task *);   /* in the task, before the window */
	void (*operate)(struct task *); /* one operation */
	void (*end)(struct task *);     /* in the task, after the window */
	void (*report)(void);           /* `name value` lines, after the last task */
};

extern const struct load mmapbench, sockbench, postmark, find_load, grep_load, compile_load;

/* ---- crew.c ---- */

/* Runs the load's tasks and prints the results. */
void crew_run(const struct load *load);
/* Returns the next number of a counter that all tasks share. */
uint64_t crew_next(void);
/* Adds to a sum that all tasks share; read it in report(). */
void crew_add(uint64_t amount);
uint64_t crew_sum(void);
/* Kills the tasks that are processes, for an early end. */
void crew_kill(void);

/* ---- scratch.c ---- */

/* Makes the directory, below --directory. */
void scratch_make(void);
/* Removes the directory with its contents. */
void scratch_remove(void);
/* The directory's path. */
const char *scratch(void);
/* Ends the program unless `bytes` bytes are free there. */
void scratch_needs(uint64_t bytes);
/* Returns `format` appended to the scratch directory's path, in newly allocated memory. */
char *scratch_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
void make_directory(const char *path);
/* Makes a file of `count` bytes; 0 makes an empty file. */
void make_file(const char *path, const void *bytes, size_t count);
/* Blocks once the program is ending, so that no file is created after the clean-up. */
void stand_back(void);
extern int is_ending;

/* ---- tool.c ---- */

/*
 * Ends the program unless `name` is an executable, by path or in PATH; `package` is the package to
 * install.
 */
void tool_check(const char *name, const char *package);
/* Runs the program without output; returns its exit status. */
int tool_run(char *const words[]);
/* Runs the program; returns the number of lines that it prints. */
uint64_t tool_lines(char *const words[]);
/* Kills the program that this process runs, if any. */
void tool_kill(void);

#endif
