/* Contends for locks of every kind while a tracer lets system calls fail.
 *
 * Waits for the tracer, then four threads count under locks for a quarter of a second. Prints
 * whether a count was lost. Fewer threads are no failure: the tracer may prevent them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static long inside, written, spun, waited;
static atomic_long attempts;
static atomic_bool stop;

static void work_a_little(void)
{
	for (volatile int turn = 0; turn < 200; turn++)
		;
}

static void *count(void *number)
{
	for (long round = 0; !stop; round++) {
		attempts++;
		pthread_mutex_lock(&mutex);
		work_a_little();
		inside++;
		if (round % 64 == (long)number) {
			struct timespec end;
			clock_gettime(CLOCK_REALTIME, &end);
			end.tv_nsec += 1000000;
			if (end.tv_nsec >= 1000000000) {
				end.tv_sec++;
				end.tv_nsec -= 1000000000;
			}
			int result = pthread_cond_timedwait(&cond, &mutex, &end);
			if (result != 0 && result != ETIMEDOUT) {
				printf("condition: %s\n", strerror(result));
				exit(3);
			}
			waited++;
		} else if (waited) {
			pthread_cond_signal(&cond);
		}
		pthread_mutex_unlock(&mutex);
		if (round % 8 == 0) {
			pthread_rwlock_wrlock(&rwlock);
			work_a_little();
			written++;
			pthread_rwlock_unlock(&rwlock);
		} else {
			pthread_rwlock_rdlock(&rwlock);
			work_a_little();
			pthread_rwlock_unlock(&rwlock);
		}
		pthread_spin_lock(&spin);
		spun++;
		pthread_spin_unlock(&spin);
	}
	return NULL;
}

/* Returns whether a tracer is attached. Reads without the calls that the tracer will count. */
static int is_traced(int status)
{
	char text[4096];
	lseek(status, 0, SEEK_SET);
	ssize_t length = read(status, text, sizeof text - 1);
	if (length <= 0)
		return 0;
	text[length] = 0;
	char *tracer = strstr(text, "TracerPid:");
	return tracer && atoi(tracer + 10) != 0;
}

int main(void)
{
	pthread_t threads[4];
	int made[4];
	struct timespec quarter = { 0, 250000000 }, moment = { 0, 1000000 };
	int status = open("/proc/self/status", O_RDONLY);

	pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
	puts("ready");
	fflush(stdout);
	while (!is_traced(status))
		nanosleep(&moment, NULL);
	nanosleep(&moment, NULL);
	for (long i = 0; i < 4; i++)
		made[i] = pthread_create(&threads[i], NULL, count, (void *)i) == 0;
	while (nanosleep(&quarter, &quarter) == -1 && errno == EINTR)
		;
	stop = 1;
	for (int i = 0; i < 4; i++)
		if (made[i])
			pthread_join(threads[i], NULL);
	printf("%s\n", inside == attempts && spun == attempts ? "all counted" : "lost counts");
	return 0;
}
