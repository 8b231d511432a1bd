/*
 * How a program on the engine ends: what it must not leave behind is removed, whoever ends it.
 */
#ifndef UNCONVOY_ENGINE_SCRATCH_H
#define UNCONVOY_ENGINE_SCRATCH_H

#include <string>

namespace engine {

/* Before any thread is started. `name` begins each line of an error; SIGINT, SIGTERM and SIGHUP from now on
   end the program as they would otherwise, after remove_doomed(). */
void start_program(const char *name);

/* The name that start_program() was given. */
const char *program_name();

/*
 * Both: one line on standard error, and nothing left behind. From several threads at once, the first wins. As die() and
 * die_inconsistent() of measure.h, fail() is for what the machine, the engine or the user is to blame for, and
 * inconsistent() for data that no order of transactions makes.
 */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
__attribute__((noreturn, format(printf, 1, 2))) void inconsistent(const char *format, ...);

/* The directory that is to be removed when the program ends before keep() is called. One at a time. */
void doom(const std::string &path);
void keep();
/* Removes the doomed directory, now. Only the first caller returns: the others wait for its exit. */
void remove_doomed();

/*
 * A new directory PARENT/unconvoy-PROGRAM-run.XXXXXX, doomed. Those of killed processes are removed first: a
 * process holds a lock (flock) on its own as long as it lives.
 */
std::string make_scratch(const std::string &parent);

} // namespace engine

#endif
