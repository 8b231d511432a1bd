/*
 * Eight threads create and remove files in one directory, which has one i_rwsem. With an argument
 * before the rounds they remove them by the system call of 32-bit programs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNLINK_32 10 /* mprotect in 64-bit programs */

static int rounds, by_32;

static long unlink_32(const char *name)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"((long)UNLINK_32), "b"(name)
			 : "memory", "r8", "r9", "r10", "r11");
	return result;
}

static void *work(void *number)
{
	char *name = mmap(0, 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	if (name == MAP_FAILED)
		abort();
	snprintf(name, 4096, "file-%ld", (long)number);
	for (int i = 0; i < rounds; i++) {
		int file = open(name, O_CREAT | O_WRONLY, 0600);

		if (file < 0)
			abort();
		close(file);
		if (by_32 ? unlink_32(name) : unlink(name))
			abort();
	}
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[8];

	rounds = atoi(argv[argc - 1]);
	by_32 = argc > 2;
	getchar();
	for (long i = 0; i < 8; i++)
		pthread_create(&threads[i], 0, work, (void *)i);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], 0);
	return 0;
}
