/* A library to be preloaded before the one under test. It wraps pthread_cond_wait, and looks for
 * the next definition by its version, as libraries must before glibc 2.36. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#ifdef __x86_64__
#define VERSION "GLIBC_2.3.2"
#else
#define VERSION "GLIBC_2.17"
#endif

typedef int wait_function(pthread_cond_t *, pthread_mutex_t *);

static wait_function *next;

__attribute__((constructor)) static void begin(void)
{
	next = (wait_function *)dlvsym(RTLD_NEXT, "pthread_cond_wait", VERSION);
}

int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	return next(cond, mutex);
}
