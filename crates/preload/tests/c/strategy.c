/* Prints the strategy numbers of locks that are named in different ways. A number is in bits 10 to
 * 17 of a mutex's kind, and in a word of a reader-writer lock that glibc does not use. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t table[4];
static pthread_mutex_t unnamed = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t shared_state = PTHREAD_RWLOCK_INITIALIZER;
static long counts[8];

static int number(const pthread_mutex_t *m) { return m->__data.__kind >> 10 & 255; }

static void use(pthread_mutex_t *m) { pthread_mutex_lock(m); pthread_mutex_unlock(m); }

__attribute__((noinline)) pthread_mutex_t *make(void)
{
	pthread_mutex_t *m = malloc(sizeof *m);
	pthread_mutex_init(m, 0);
	__asm__ volatile("");
	return m;
}

__attribute__((noinline)) void take(pthread_mutex_t *m)
{
	pthread_mutex_lock(m);
	__asm__ volatile("");
}

__attribute__((noinline)) int try_first(pthread_mutex_t *m)
{
	int result = pthread_mutex_trylock(m);
	__asm__ volatile("");
	return result;
}

/* Two calls of the same function, which only their offsets tell apart. */
__attribute__((noinline)) void take_two(pthread_mutex_t *m, pthread_mutex_t *n)
{
	pthread_mutex_lock(m);
	__asm__ volatile("");
	pthread_mutex_lock(n);
	__asm__ volatile("");
}

static void *add(void *locks)
{
	pthread_mutex_t **all = locks;
	for (int i = 0; i < 20000; i++)
		for (int j = 0; j < 8; j++) {
			pthread_mutex_lock(all[j]);
			counts[j]++;
			pthread_mutex_unlock(all[j]);
		}
	return 0;
}

static int in_child(pthread_mutex_t *m)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0) {
		use(m);
		_exit(number(m));
	}
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	pthread_mutex_t *made = make(), *taken = calloc(1, sizeof *taken);
	pthread_mutex_t *tried = calloc(1, sizeof *tried), first = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_t second = PTHREAD_MUTEX_INITIALIZER, robust;
	use(&alone), use(&table[0]), use(&table[3]), use(&unnamed), use(made);
	take(taken), pthread_mutex_unlock(taken);
	try_first(tried), pthread_mutex_unlock(tried);
	take_two(&first, &second), pthread_mutex_unlock(&second), pthread_mutex_unlock(&first);
	pthread_rwlock_rdlock(&shared_state), pthread_rwlock_unlock(&shared_state);
	printf("alone %d table %d %d unnamed %d made %d ", number(&alone), number(&table[0]),
	       number(&table[3]), number(&unnamed), number(made));
	printf("taken %d tried %d first %d second %d shared %d\n", number(taken), number(tried),
	       number(&first), number(&second), (int)shared_state.__data.__pad4);

	pthread_mutex_t *all[8] = { &alone, &table[0], &table[3], &unnamed,
				    made,   taken,     tried,     &first };
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], 0, add, all);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
	for (int j = 0; j < 8; j++)
		if (counts[j] != 80000)
			printf("lock %d counted %ld\n", j, counts[j]);

	/* A lock at the same address is another lock. */
	pthread_mutex_destroy(made);
	pthread_mutex_init(made, 0);
	use(made);
	pthread_mutex_destroy(&alone);
	alone = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	use(&alone);
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &attributes);
	use(&robust);
	printf("again %d alone %d robust %d child %d\n", number(made), number(&alone), number(&robust),
	       in_child(&table[1]));
	if (argc > 1) {
		void *object = dlopen(argv[1], RTLD_NOW);
		pthread_mutex_t *loaded = object ? dlsym(object, "loaded_lock") : 0;
		if (loaded)
			use(loaded);
		printf("loaded %d\n", loaded ? number(loaded) : -1);
	}
	return 0;
}
