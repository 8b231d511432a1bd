/* Creates the threads and children of test programs, and handles a machine without room for them,
 * which is not a defect of the library.
 *
 * The system refuses a thread or a process with EAGAIN when it, the user or the control group has
 * reached its limit, and with ENOMEM when memory is short. Other processes may end, so a program
 * retries for ROOM_SECONDS in total. Then the refused thread prints the refused call and the limits
 * on standard error, and ends the program with NO_ROOM_STATUS. `await_child` passes a child's
 * NO_ROOM_STATUS on. The Rust side (support/room.rs) recognises this status and blames the machine.
 *
 * Nothing here uses a lock or allocates memory. Until ROOM_SECONDS have passed, only clock
 * functions are called, so a program may be under a system-call filter. */
#ifndef ROOM_H
#define ROOM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#ifndef ROOM_SECONDS
#define ROOM_SECONDS 60
#endif

enum {
	/* EX_TEMPFAIL of sysexits.h: "the user is invited to retry". */
	NO_ROOM_STATUS = 75,
	ROOM_LONGEST_PAUSE_MS = 1000,
};

/* ---- the report ------------------------------------------------------------------------------ */

/* The first line of a file, as a string; empty if the file cannot be read. */
static inline char *room_read(const char *path, char *text, size_t size)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
	if (file >= 0)
		close(file);
	text[length > 0 ? length : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return text;
}

static inline const char *room_or_unknown(const char *text) { return *text ? text : "?"; }

/* Prints the task limit of this process's control group, in version 1's pids hierarchy or in
 * version 2's. */
static inline void room_say_group(void)
{
	char text[1024], path[600], most[32], used[32];
	int file = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
	if (file >= 0)
		close(file);
	text[length > 0 ? length : 0] = '\0';
	/* Lines of the form NUMBER:CONTROLLERS:PATH. */
	for (char *line = text, *next; *line; line = next) {
		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = '\0';
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		bool second = !controllers[1];
		if (!second && strcmp(controllers + 1, "pids") != 0)
			continue;
		const char *root = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids";
		snprintf(path, sizeof path, "%s%.400s/pids.max", root, group);
		room_read(path, most, sizeof most);
		snprintf(path, sizeof path, "%s%.400s/pids.current", root, group);
		room_read(path, used, sizeof used);
		if (*most)
			dprintf(STDERR_FILENO, "  control group %.400s: %s tasks of %s\n", group,
				room_or_unknown(used), most);
	}
}

/* Prints the number of threads in the system, and the limits of the system, the user and the
 * control group. */
static inline void room_say(void)
{
	char load[128], most[32], ids[32];
	struct rlimit user;
	/* The 345 in "0.00 0.01 0.05 2/345 6789": all threads that the scheduler knows. */
	char *held = strchr(room_read("/proc/loadavg", load, sizeof load), '/');
	if (held)
		held[1 + strcspn(held + 1, " ")] = '\0';
	room_read("/proc/sys/kernel/threads-max", most, sizeof most);
	room_read("/proc/sys/kernel/pid_max", ids, sizeof ids);
	dprintf(STDERR_FILENO, "  the system holds %s threads; threads-max is %s, pid_max %s\n",
		held ? held + 1 : "?",
		room_or_unknown(most), room_or_unknown(ids));
	if (getrlimit(RLIMIT_NPROC, &user) == 0 && user.rlim_cur != RLIM_INFINITY)
		dprintf(STDERR_FILENO, "  RLIMIT_NPROC of user %u is %llu\n", (unsigned)getuid(),
			(unsigned long long)user.rlim_cur);
	room_say_group();
}

/* ---- retrying -------------------------------------------------------------------------------- */

__attribute__((noreturn, cold)) static inline void room_give_up(const char *call, int error)
{
	dprintf(STDERR_FILENO,
		"the machine has no room: %s was refused for %d s, the last time with %d (%s)\n",
		call,
		ROOM_SECONDS, error, strerror(error));
	room_say();
	_exit(NO_ROOM_STATUS);
}

/* Set by programs whose alarm is a watchdog: the alarm pauses while the program waits for room. */
static bool room_stops_alarm;
/* Number of threads that wait for room. */
static atomic_int room_waits;

/* Whether to repeat a call that ended with `error`; pauses first. */
static inline bool room_comes(const char *call, int error, long *pause_ms)
{
	static atomic_long waited_ms;
	if (error != EAGAIN && error != ENOMEM)
		return false;
	atomic_fetch_add(&room_waits, 1);
	if (atomic_fetch_add(&waited_ms, *pause_ms) > ROOM_SECONDS * 1000L)
		room_give_up(call, error);
	unsigned watchdog = room_stops_alarm ? alarm(0) : 0;
	struct timespec pause = { *pause_ms / 1000, *pause_ms % 1000 * 1000000 };
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, &pause) == EINTR)
		;
	if (watchdog)
		alarm(watchdog);
	atomic_fetch_sub(&room_waits, 1);
	*pause_ms = *pause_ms * 2 < ROOM_LONGEST_PAUSE_MS ? *pause_ms * 2 : ROOM_LONGEST_PAUSE_MS;
	return true;
}

/* The value of `call`, repeated while it is refused for lack of room. `code` maps its value to an
 * error. */
#define WITH_ROOM(name, code, call)                                               \
	__extension__({                                                           \
		long pause_ms_ = 1;                                               \
		__typeof__(call) value_;                                          \
		do                                                                \
			value_ = (call);                                          \
		while (room_comes(name, code(value_), &pause_ms_));               \
		value_;                                                           \
	})

#define ROOM_CODE(error) (error)
#define ROOM_ERRNO(value) ((value) < 0 ? errno : 0)
/* The value of `call`, a kind of fork that its user must call directly, for example vfork. */
#define CHILD_BY(name, call) WITH_ROOM(name, ROOM_ERRNO, call)
#define ROOM_POINTER(pointer) ((pointer) ? 0 : errno)
/* C11 has no error for EAGAIN; glibc returns thrd_error. */
#define ROOM_C11(code) ((code) == thrd_error || (code) == thrd_nomem ? EAGAIN : 0)

/* ---- threads and children -------------------------------------------------------------------- */

/* Like pthread_create. */
static inline int thread_create(pthread_t *thread, const pthread_attr_t *attributes,
				void *(*body)(void *), void *argument)
{
	return WITH_ROOM("pthread_create", ROOM_CODE,
			 pthread_create(thread, attributes, body, argument));
}

/* Like thrd_create. */
static inline int thread_create_c11(thrd_t *thread, thrd_start_t body, void *argument)
{
	return WITH_ROOM("thrd_create", ROOM_C11, thrd_create(thread, body, argument));
}

/* Like fork. */
static inline pid_t child_create(void)
{
	return CHILD_BY("fork", fork());
}

/* Like posix_spawn without attributes, with the caller's environment. */
static inline int child_spawn(pid_t *child, const char *path,
			      const posix_spawn_file_actions_t *actions,
			      char *const arguments[])
{
	extern char **environ;
	return WITH_ROOM("posix_spawn", ROOM_CODE,
			 posix_spawn(child, path, actions, NULL, arguments, environ));
}

/* The wait status of `child`; -1 if it is not a child. Exits if the child had no room. */
static inline int await_child(pid_t child)
{
	int status = -1;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_ROOM_STATUS)
		_exit(NO_ROOM_STATUS);
	return status;
}

#endif
