/* Threads that contend for one mutex: contend THREADS SECONDS [close]
 *
 * With "close", the program closes every descriptor above standard error after its start, as
 * daemons do. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "room.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stop;
static unsigned long inside;

static void *contend(void *unused)
{
	while (!stop) {
		pthread_mutex_lock(&mutex);
		for (volatile int turn = 0; turn < 300; turn++)
			;
		inside++;
		pthread_mutex_unlock(&mutex);
	}
	return unused;
}

static void sleep_for(double seconds)
{
	struct timespec time = { (time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9) };
	nanosleep(&time, NULL);
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 4;
	double seconds = argc > 2 ? atof(argv[2]) : 1;
	pthread_t ids[256];

	if (threads > 256)
		return 2;
	for (int thread = 0; thread < threads; thread++)
		if (thread_create(&ids[thread], NULL, contend, NULL))
			return 3;
	puts("begun");
	fflush(stdout);
	if (argc > 3 && !strcmp(argv[3], "close")) {
		sleep_for(seconds / 2);
		for (int descriptor = 3; descriptor < 4096; descriptor++)
			close(descriptor);
	}
	sleep_for(seconds);
	stop = 1;
	for (int thread = 0; thread < threads; thread++)
		pthread_join(ids[thread], NULL);
	printf("%s\n", inside ? "done" : "nothing done");
	return 0;
}
