/*
 * Homogeneous loads on the kernel's own locks, after Cui, Wang, Chen and Shi, "Lock-Contention-Aware Scheduler" (ACM
 * TACO 9(4), 2013), section 4.2: N tasks, each of which does the same over and over.
 *
 * | file | what is in it |
 * | --- | --- |
 * | main.c | which load, and its options |
 * | crew.c | the tasks: started together, measured each by itself, accounted |
 * | scratch.c | the directory that everything lies in, and that is gone at the end, whatever the end is |
 * | tool.c | a program of the system, run and watched |
 * | the others | a load each |
 *
 * A task counts the operations that it began between the opening and the closing of the window, and takes its time
 * and its processor time from the first of them to the end of the last. So no operation counts in part, however long
 * it takes, and throughput is the sum of the tasks' own rates.
 */
#ifndef UNCONVOY_TASKS_H
#define UNCONVOY_TASKS_H

#include "ending.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* What every load has: crew_options of main.c. */
struct crew_options {
	long tasks;
	double seconds, warm_up;
	long operations; /* of each task in the window; 0: as many as fit */
	const char *directory;
};

extern struct crew_options crew_options;

struct task {
	long index;
	uint64_t random;
	void *own; /* the load's */
};

/* A load. Functions that are NULL have nothing to do. */
struct load {
	const char *name, *about;
	bool is_threaded; /* threads of one process, as the paper has it; else processes */
	bool has_files;   /* wants a scratch directory */
	const struct option_row *rows;
	size_t row_count;
	void (*prepare)(void);          /* once, before there are tasks */
	void (*begin)(struct task *);   /* in the task, before the window */
	void (*operate)(struct task *); /* one operation */
	void (*end)(struct task *);     /* in the task, after the window */
	void (*report)(void);           /* `name value` lines, after the last task */
};

extern const struct load mmapbench, sockbench, postmark, find_load, grep_load, compile_load;

/* ---- crew.c ---- */

/* Runs the load's tasks and prints what they did. */
void crew_run(const struct load *load);
/* Counts up for all tasks together, wherever they run. */
uint64_t crew_next(void);
/* Adds to a number that all tasks share; read it in report(). */
void crew_add(uint64_t amount);
uint64_t crew_sum(void);
/* Ends those that are processes; for an end before its time. */
void crew_kill(void);

/* ---- scratch.c ---- */

/* Makes the directory, below --directory. */
void scratch_make(void);
/* Removes it with all that is in it. */
void scratch_remove(void);
/* Its path. */
const char *scratch(void);
/* Ends the program unless so many bytes are free there. */
void scratch_needs(uint64_t bytes);
/* `format` after the scratch directory's path, in memory of its own. */
char *scratch_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
void make_directory(const char *path);
/* A file of so many bytes, whatever they are; 0 makes an empty one. */
void make_file(const char *path, const void *bytes, size_t count);
/* Stands still once the program is ending, so that nothing is made behind the one who cleans up. */
void stand_back(void);
extern int is_ending;

/* ---- tool.c ---- */

/* Ends the program unless `name` is an executable of PATH or a path; `package` is what to install. */
void tool_check(const char *name, const char *package);
/* Runs it to its end without output; its exit status. */
int tool_run(char *const words[]);
/* The lines that it prints. */
uint64_t tool_lines(char *const words[]);
/* Ends the one that this process runs, if it runs one. */
void tool_kill(void);

#endif
