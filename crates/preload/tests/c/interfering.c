/* A library to be preloaded beside the one under test. It defines functions of libc's that take
 * locks: with -DDLSYM `dlsym`, as libraries do that count a process's GPU memory, else
 * `secure_getenv`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#ifdef __x86_64__
#define VERSION "GLIBC_2.2.5"
#else
#define VERSION "GLIBC_2.17"
#endif

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#ifdef DLSYM
typedef void *look_up(void *, const char *);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static look_up *libcs;

static void begin(void)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t recursive;
	libcs = (look_up *)dlvsym(RTLD_NEXT, "dlsym", VERSION);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&recursive, &attr);
	pthread_mutex_destroy(&recursive);
}

void *dlsym(void *restrict handle, const char *restrict name)
{
	pthread_once(&once, begin);
	pthread_mutex_lock(&mutex);
	void *found = libcs(handle, name);
	pthread_mutex_unlock(&mutex);
	return found;
}
#else
char *secure_getenv(const char *name)
{
	pthread_mutex_lock(&mutex);
	char *found = getenv(name);
	pthread_mutex_unlock(&mutex);
	return found;
}
#endif
