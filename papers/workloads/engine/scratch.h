/* The end of a program on the engine: whatever ends it, its temporary directory is removed. */
#ifndef UNCONVOY_ENGINE_SCRATCH_H
#define UNCONVOY_ENGINE_SCRATCH_H

#include <string>

namespace engine {

/*
 * Call before starting any thread. `name` begins each error line. From then on SIGINT, SIGTERM and
 * SIGHUP call remove_doomed() before they end the program.
 */
void start_program(const char *name);

/* The name given to start_program(). */
const char *program_name();

/*
 * Both print one line on standard error, clean up and exit. If several threads call them, only the
 * first one's line is printed. As with die() and die_inconsistent() of die.h, fail() reports a
 * fault of the machine, the engine or the user, and inconsistent() data that no order of
 * transactions produces.
 */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
__attribute__((noreturn, format(printf, 1, 2))) void inconsistent(const char *format, ...);

/* Marks a directory for removal if the program ends before keep(). Only one can be marked. */
void doom(const std::string &path);
void keep();
/*
 * Removes the directory that doom() marked. Only the first caller returns; the others wait until it
 * ends the program.
 */
void remove_doomed();

/*
 * Makes a new directory PARENT/unconvoy-PROGRAM-run.XXXXXX and marks it for removal, as doom()
 * does. First removes the directories of killed processes. A live process holds a lock (flock) on
 * its directory.
 */
std::string make_scratch(const std::string &parent);

} // namespace engine

#endif
