/* A child process with eight threads that map and unmap memory: they wait for its mmap_lock. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int rounds;

static void *work(void *unused)
{
	for (int i = 0; i < rounds; i++) {
		char *memory = mmap(0, 64 << 12, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (memory == MAP_FAILED)
			abort();
		munmap(memory, 64 << 12);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[8];

	rounds = atoi(argv[argc - 1]);
	if (fork()) {
		wait(0);
		return 3;
	}
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], 0, work, 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], 0);
	return 0;
}
