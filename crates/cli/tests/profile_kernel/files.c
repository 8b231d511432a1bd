/* Eight threads create and remove files in one directory, which has one i_rwsem. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int rounds;

static void *work(void *number)
{
	char name[32];

	snprintf(name, sizeof(name), "file-%ld", (long)number);
	for (int i = 0; i < rounds; i++) {
		int file = open(name, O_CREAT | O_WRONLY, 0600);

		if (file < 0)
			abort();
		close(file);
		unlink(name);
	}
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[8];

	rounds = atoi(argv[argc - 1]);
	getchar();
	for (long i = 0; i < 8; i++)
		pthread_create(&threads[i], 0, work, (void *)i);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], 0);
	return 0;
}
