/*
 * Two threads take turns at a lock that each holds for 2 ms, for a number of seconds (argument 1),
 * in a number of child processes (argument 2), or in this process if there are none.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static time_t end;

static void *take_turns(void *unused)
{
	while (time(NULL) < end) {
		pthread_mutex_lock(&turn_lock);
		usleep(2000);
		pthread_mutex_unlock(&turn_lock);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	int children = argc > 2 ? atoi(argv[2]) : 0;

	end = time(NULL) + atoi(argv[1]);
	for (int i = 0; i < children; i++) {
		if (fork() == 0) {
			children = 0;
			break;
		}
	}
	if (!children) {
		pthread_create(&thread, NULL, take_turns, NULL);
		take_turns(NULL);
		pthread_join(thread, NULL);
		printf("done\n");
		return 0;
	}
	while (wait(NULL) > 0)
		;
	return 0;
}
