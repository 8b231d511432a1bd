/* Threads that wait for one lock at a time, until the process is killed.

   locks MICROSECONDS [undumpable] [fork] [leave]: each thread holds the lock for that long. A child
   of `fork` does the same, and the parent waits for it. With `leave`, the main thread ends. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_spinlock_t ring_lock;
static useconds_t hold;

__attribute__((noinline)) void use_queue(void)
{
	pthread_mutex_lock(&queue_lock);
	usleep(hold);
	pthread_mutex_unlock(&queue_lock);
}

__attribute__((noinline)) void use_ring(void)
{
	pthread_spin_lock(&ring_lock);
	usleep(hold);
	pthread_spin_unlock(&ring_lock);
	usleep(100); // otherwise the thread could take the lock again before the others run
}

static void *work(void *use)
{
	for (;;)
		((void (*)(void))use)();
	return NULL;
}

static void start(void)
{
	for (int i = 0; i < 3; i++) {
		pthread_t thread;
		pthread_create(&thread, NULL, work, (void *)use_queue);
		pthread_create(&thread, NULL, work, (void *)use_ring);
	}
}

int main(int count, char **words)
{
	hold = (useconds_t)atoi(words[1]);
	pthread_spin_init(&ring_lock, PTHREAD_PROCESS_PRIVATE);
	for (int i = 2; i < count; i++) {
		if (strcmp(words[i], "undumpable") == 0)
			prctl(PR_SET_DUMPABLE, 0);
		if (strcmp(words[i], "fork") == 0) {
			start();
			sleep(1);
			// Otherwise the child might inherit a lock that no thread of its own
			// releases.
			pthread_mutex_lock(&queue_lock);
			pthread_spin_lock(&ring_lock);
			pid_t child = fork();
			pthread_spin_unlock(&ring_lock);
			pthread_mutex_unlock(&queue_lock);
			if (child == 0) {
				start();
				pause();
			}
			printf("child %d\n", (int)child);
		}
	}
	if (count < 3)
		start();
	printf("ready\n");
	fflush(stdout);
	if (count < 3 || strcmp(words[2], "fork") == 0)
		pause();
	start();
	if (strcmp(words[count - 1], "leave") == 0)
		pthread_exit(NULL);
	pause();
}
