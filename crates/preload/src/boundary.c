/* The parts that need C: a wait that pthread_cancel may unwind, weak references, and variadic
 * functions. */

#define _GNU_SOURCE
#include <alloca.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* This call is not in the function with the cleanup handler. A call with seven arguments moves the
 * stack pointer, and a cancellation during the call would run the handler on a misaligned stack. */
static __attribute__((noinline)) int futex_wait(uint32_t *word, int operation, uint32_t expected,
						const struct timespec *until)
{
	return syscall(SYS_futex, word, operation, expected, until, NULL,
		       FUTEX_BITSET_MATCH_ANY) == -1 ? errno : 0;
}

/* Sleeps while *word == expected, as a cancellation point. On cancellation, calls abandon(argument)
 * and does not return. `until` is an absolute time on the realtime or the monotonic clock; NULL: no
 * deadline. Returns 0 or an error number, and leaves errno alone.
 *
 * A deferred cancellation must take effect inside the system call, so the cancellation type is
 * asynchronous for the call, as in glibc. A cancellation may arrive after the wake-up and before
 * the type is restored. The waiter is then already signalled, and `abandon` passes the signal on.
 */
int unconvoy_cancellable_wait(uint32_t *word, uint32_t expected, int realtime,
			      const struct timespec *until,
                              void (*abandon)(void *), void *argument)
{
	int saved = errno, type, result;
	int operation =
		FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | (realtime ? FUTEX_CLOCK_REALTIME : 0);

	pthread_cleanup_push(abandon, argument);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	result = futex_wait(word, operation, expected, until);
	pthread_setcanceltype(type, NULL);
	pthread_cleanup_pop(0);
	errno = saved;
	return result;
}

/* Sets the calling thread's cancellation type; returns the previous one. */
int unconvoy_set_cancel_type(int new)
{
	int before;
	pthread_setcanceltype(new, &before);
	return before;
}

/* The same for the cancellation state. */
int unconvoy_set_cancel_state(int new)
{
	int before;
	pthread_setcancelstate(new, &before);
	return before;
}

/* Acts on a pending cancellation. A wait that is signalled while it polls makes no system call, so
 * without this call it would not be a cancellation point. */
void unconvoy_test_cancel(void)
{
	pthread_testcancel();
}

/* The return address of the program's call that acquires a lock now; NULL if unknown. The variable
 * is laid out with the program's own thread-local variables: a thread may be unknown to libc. */
static __thread void *caller __attribute__((tls_model("initial-exec")));

/* Calls `call` on `object`. This function is the target of a jump, so that its own return address
 * is the program's. */
int unconvoy_call_from_here(void *object, int (*call)(void *))
{
	int result;

	caller = __builtin_return_address(0);
	result = call(object);
	caller = NULL;
	return result;
}

void *unconvoy_caller(void)
{
	return caller;
}

extern void __asan_init(void) __attribute__((weak));
extern void __tsan_init(void) __attribute__((weak));
extern void __msan_init(void) __attribute__((weak));

/* The name of the sanitizer runtime in this process, or NULL. */
const char *unconvoy_sanitizer(void)
{
	if (__asan_init)
		return "AddressSanitizer";
	if (__tsan_init)
		return "ThreadSanitizer";
	if (__msan_init)
		return "MemorySanitizer";
	return NULL;
}

/* The variadic forms of exec. They gather their arguments on the stack, as libc's do, because the
 * caller may be the child of a vfork or a signal handler. */
#define GATHER(first, last)                                                                      \
	va_list list;                                                                            \
	size_t count = 1;                                                                        \
	va_start(list, first);                                                                   \
	while (va_arg(list, const char *))                                                       \
		count++;                                                                         \
	va_end(list);                                                                            \
	char **arguments = alloca((count + 1) * sizeof *arguments);                              \
	arguments[0] = (char *)first;                                                            \
	va_start(list, first);                                                                   \
	for (size_t place = 1; place <= count; place++)                                          \
		arguments[place] = va_arg(list, char *);                                         \
	last;                                                                                    \
	va_end(list)

int unconvoy_execl(const char *path, const char *first, ...)
{
	GATHER(first, (void)0);
	return execv(path, arguments);
}

int unconvoy_execlp(const char *file, const char *first, ...)
{
	GATHER(first, (void)0);
	return execvp(file, arguments);
}

int unconvoy_execle(const char *path, const char *first, ...)
{
	GATHER(first, char *const *environment = va_arg(list, char *const *));
	return execve(path, arguments, environment);
}
