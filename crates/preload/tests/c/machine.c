/* What a test program does on a machine that is not its own, one case per mode:
 *
 *   refused     there is no room for a thread, and never will be
 *   admitted    there is room for a thread after a while
 *   in-child    a child has no room
 *   sleeps      a check that sleeps and does not end
 *   spins       a check that runs and does not end
 */
#include "check.h"

#include <sys/resource.h>

static long nothing(void *ignored)
{
	(void)ignored;
	return 0;
}

/* Leaves this user one thread, and the right to ask for more. For root there is always room. */
static void refuse(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NPROC, &limit);
	limit.rlim_cur = 1;
	if ((geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) || setrlimit(RLIMIT_NPROC, &limit) != 0) {
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
		CHECK_VALUE(EAGAIN, pthread_create(&(pthread_t){ 0 }, NULL, once_main, NULL), "there is no room at first");
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
