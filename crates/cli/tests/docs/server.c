/* The program in the documentation's examples: its threads contend for one lock for 50 ms.
 *
 *   server [--threads N]     other arguments are ignored */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long sections;
static struct timespec end;

static void *work(void *unused)
{
	struct timespec now;
	do {
		for (int turn = 0; turn < 100; turn++) {
			pthread_mutex_lock(&lock);
			sections++;
			pthread_mutex_unlock(&lock);
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
	return unused;
}

int main(int argc, char **argv)
{
	int threads = 2;
	for (int i = 1; i < argc - 1; i++)
		if (!strcmp(argv[i], "--threads"))
			threads = atoi(argv[i + 1]);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += 50000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	pthread_t *all = calloc((size_t)threads, sizeof *all);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&all[i], NULL, work, NULL))
			return 1;
	for (int i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
	printf("throughput: %lu\n", sections * 20);
	return 0;
}
