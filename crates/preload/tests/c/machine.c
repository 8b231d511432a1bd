/* Test programs on a machine that other processes use too, one case per mode:
 *
 *   refused     the machine never has room for a thread
 *   admitted    the machine has room for a thread after a while
 *   in-child    a child has no room
 *   sleeps      a check that sleeps without end
 *   spins       a check that spins without end
 */
#include "check.h"

#include <sys/resource.h>

static long nothing(void *ignored)
{
	(void)ignored;
	return 0;
}

/* Limits this user to one thread, but lets the limit be raised again. Root has no such limit. */
static void refuse(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NPROC, &limit);
	limit.rlim_cur = 1;
	if ((geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) ||
	    setrlimit(RLIMIT_NPROC, &limit) != 0) {
		perror("no limit");
		exit(4);
	}
}

static void admit(int sig)
{
	(void)sig;
	struct rlimit limit;
	getrlimit(RLIMIT_NPROC, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NPROC, &limit);
}

static long child_is_refused(void *ignored)
{
	refuse();
	return in_thread(nothing, ignored);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	check_start();
	if (strcmp(mode, "refused") == 0) {
		refuse();
		CHECK_VALUE(0, in_thread(nothing, NULL), "a thread that is refused");
	} else if (strcmp(mode, "admitted") == 0) {
		struct itimerspec later = { .it_value.tv_nsec = 300000000 };
		struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
		timer_t timer;
		signal(SIGUSR1, admit);
		timer_create(CLOCK_MONOTONIC, &event, &timer);
		refuse();
		CHECK_VALUE(EAGAIN, pthread_create(&(pthread_t){ 0 }, NULL, once_main, NULL),
			    "a thread is refused at first");
		timer_settime(timer, 0, &later, NULL);
		CHECK_VALUE(0, in_thread(nothing, NULL), "a thread that is admitted");
	} else if (strcmp(mode, "in-child") == 0) {
		CHECK_VALUE(0, in_child(child_is_refused, NULL), "a child whose thread is refused");
	} else if (strcmp(mode, "sleeps") == 0) {
		check_begin("a check that sleeps");
		for (;;)
			pause();
	} else if (strcmp(mode, "spins") == 0) {
		check_begin("a check that spins");
		for (volatile int turn = 0;; turn++)
			;
	} else {
		return 2;
	}
	return check_finish();
}
