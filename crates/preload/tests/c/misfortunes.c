/* Contention in programs that are hard or dangerous to unwind. The program must end, and its counts
 * must be right.
 *
 *   handlers         a signal handler waits for locks, on an alternative stack of 8 KB
 *   loaded OBJECT    threads contend inside an object (callback.c) that is loaded and unloaded
 *                    again and again
 *   replaced A B     threads contend inside A, and then, after it was unloaded, inside B, which is
 *                    loaded at the same addresses
 *   mapped OBJECT    threads contend inside an object, in a process with 600 other mapped files
 *   generated        threads contend inside generated code with unwind information, which is
 *                    registered and removed again and again; malloc has a contended mutex of its
 *                    own
 *   first-use        registers such information, and unwinds while malloc has a mutex that no
 *                    thread has taken before
 *   coroutines       threads contend on stacks of 16 KB between unmapped pages
 *   exec             contends, and then executes itself with `once`
 *   once             contends
 *
 * Exits with 4 if the machine does not support the case. */
#define _GNU_SOURCE
#include "abort.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

enum { THREADS = 4, ROUNDS = 3000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long counted;

static void work(int turns)
{
	for (volatile int turn = 0; turn < turns; turn++)
		;
}

static int section(pthread_mutex_t *lock)
{
	CHECK(pthread_mutex_lock(lock) == 0);
	/* Sleeps with the lock held, so that others wait on every machine. */
	if (++counted % 32 == 0)
		usleep(50);
	return pthread_mutex_unlock(lock);
}

static void contend(int rounds)
{
	for (int round = 0; round < rounds; round++) {
		CHECK(section(&mutex) == 0);
		if (round % 8 == 0) {
			CHECK(pthread_rwlock_wrlock(&rwlock) == 0);
			work(300);
			CHECK(pthread_rwlock_unlock(&rwlock) == 0);
			CHECK(pthread_rwlock_rdlock(&rwlock) == 0);
			CHECK(pthread_rwlock_unlock(&rwlock) == 0);
		}
		if (round % 64 == 0)
			usleep(50);
	}
}

static void in_threads(void *(*run)(void *), void *argument)
{
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, run, argument) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

static void *contender(void *unused)
{
	contend(ROUNDS);
	return unused;
}

/* The handler uses only locks that no interrupted code holds. With other locks, the program would
 * deadlock without the library, too. */
static pthread_mutex_t handlers_mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_long handled;

static void handler(int signal)
{
	int saved = errno;
	(void)signal;
	pthread_mutex_lock(&handlers_mutex);
	work(300);
	pthread_mutex_unlock(&handlers_mutex);
	atomic_fetch_add(&handled, 1);
	errno = saved;
}

static atomic_int signalled_done;

static void *signalled(void *unused)
{
	stack_t stack = { .ss_sp = malloc(8192), .ss_size = 8192 };
	CHECK(stack.ss_sp && sigaltstack(&stack, NULL) == 0);
	contend(ROUNDS);
	atomic_fetch_add(&signalled_done, 1);
	/* The thread stays alive, so that the signals have a target. */
	while (atomic_load(&signalled_done) < THREADS + 1)
		usleep(100);
	stack.ss_flags = SS_DISABLE;
	CHECK(sigaltstack(&stack, NULL) == 0);
	free(stack.ss_sp);
	return unused;
}

static void handlers(void)
{
	pthread_t threads[THREADS];
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART };
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, signalled, NULL) == 0);
	for (int turn = 0; atomic_load(&signalled_done) < THREADS; turn++) {
		pthread_kill(threads[turn % THREADS], SIGUSR1);
		usleep(20);
	}
	atomic_fetch_add(&signalled_done, 1);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(atomic_load(&handled) > 0);
}

static void *loader(void *path)
{
	for (int round = 0; round < 300; round++) {
		void *object = dlopen(path, RTLD_NOW);
		void (*call)(void (*)(int), int);
		CHECK(object);
		*(void **)&call = dlsym(object, "unconvoy_call_back");
		CHECK(call);
		call(contend, 20);
		CHECK(dlclose(object) == 0);
	}
	return NULL;
}

static void *called(void *call)
{
	((void (*)(void (*)(int), int))call)(contend, 1000);
	return NULL;
}

/* Returns where the object was. */
static void *contend_in(const char *path)
{
	void *object = dlopen(path, RTLD_NOW);
	CHECK(object);
	void *call = dlsym(object, "unconvoy_call_back");
	CHECK(call);
	in_threads(called, call);
	CHECK(dlclose(object) == 0);
	return call;
}

static void replaced(const char *first, const char *second)
{
	if (contend_in(first) != contend_in(second))
		exit(4);
}

static void mapped(const char *path)
{
	int file = open(path, O_RDONLY);
	for (int turn = 0; turn < 600; turn++)
		CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0) != MAP_FAILED);
	for (int turn = 0; turn < 3; turn++)
		contend_in(path);
}

/* A malloc with a mutex, which libgcc may call with its own mutex locked. */
static pthread_mutex_t heap_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int heap_is_contended;
extern void *__libc_malloc(size_t size);
extern void __libc_free(void *block);

void *malloc(size_t size)
{
	void *block;
	if (!atomic_load(&heap_is_contended))
		return __libc_malloc(size);
	pthread_mutex_lock(&heap_mutex);
	block = __libc_malloc(size);
	work(100);
	pthread_mutex_unlock(&heap_mutex);
	return block;
}

void free(void *block)
{
	if (!atomic_load(&heap_is_contended)) {
		__libc_free(block);
		return;
	}
	pthread_mutex_lock(&heap_mutex);
	__libc_free(block);
	pthread_mutex_unlock(&heap_mutex);
}

#ifdef __x86_64__
extern void __register_frame(void *);
extern void __deregister_frame(void *);

/* int call(pthread_mutex_t *, int (*)(pthread_mutex_t *)): sub rsp, 8; call rsi; add rsp, 8; ret */
static const unsigned char CODE[] = { 0x48, 0x83, 0xec, 0x08, 0xff, 0xd6,
				      0x48, 0x83, 0xc4, 0x08, 0xc3 };

struct frames {
	/* Version 1, no augmentation, alignments 1 and -8, return address in column 16; the CFA is
	 * rsp + 8, the return address at CFA - 8. */
	uint32_t cie_length, cie_id;
	unsigned char cie[16];
	uint32_t fde_length, fde_to_cie;
	uint64_t begin, size;
	/* After 4 bytes of code, the CFA is rsp + 16; after 10, rsp + 8. */
	unsigned char fde[8];
	uint32_t end;
} __attribute__((packed));

static struct frames frames_of(unsigned char *code)
{
	return (struct frames){
		.cie_length = 20, .cie_id = 0,
		.cie = { 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1 },
		.fde_length = 28, .fde_to_cie = 28,
		.begin = (uintptr_t)code, .size = sizeof CODE,
		.fde = { 0x44, 0x0e, 16, 0x46, 0x0e, 8 },
	};
}

static void *generator(void *unused)
{
	unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct frames frames = frames_of(code);
	int (*call)(pthread_mutex_t *, int (*)(pthread_mutex_t *));
	if (code == MAP_FAILED)
		exit(4);
	memcpy(code, CODE, sizeof CODE);
	*(void **)&call = code;
	for (int round = 0; round < 200; round++) {
		__register_frame(&frames);
		for (int turn = 0; turn < 20; turn++) {
			free(malloc(100));
			CHECK(call(&mutex, section) == 0);
		}
		__deregister_frame(&frames);
	}
	munmap(code, 4096);
	return unused;
}

static void *allocator(void *unused)
{
	for (int round = 0; round < 20000; round++)
		free(malloc(64));
	contend(ROUNDS);
	return unused;
}

static void generated(void)
{
	pthread_t others[2];
	atomic_store(&heap_is_contended, 1);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&others[i], NULL, allocator, NULL) == 0);
	in_threads(generator, NULL);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(others[i], NULL) == 0);
}

static _Unwind_Reason_Code count_frame(struct _Unwind_Context *context, void *count)
{
	(void)context;
	++*(int *)count;
	return _URC_NO_REASON;
}

/* libgcc sorts new frames in the first unwinding, in memory from malloc. */
static void first_use(void)
{
	static unsigned char code[sizeof CODE];
	static struct frames frames;
	int count = 0;
	frames = frames_of(code);
	__register_frame(&frames);
	atomic_store(&heap_is_contended, 1);
	_Unwind_Backtrace(count_frame, &count);
	atomic_store(&heap_is_contended, 0);
	__deregister_frame(&frames);
	CHECK(count > 0);
}
#else
static void generated(void)
{
	exit(4);
}

static void first_use(void)
{
	exit(4);
}
#endif

static __thread ucontext_t back, coroutine;

static void in_coroutine(void)
{
	contend(30);
}

static void *switcher(void *unused)
{
	size_t page = sysconf(_SC_PAGESIZE), size = 16384;
	char *room = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(room != MAP_FAILED && mprotect(room + page, size, PROT_READ | PROT_WRITE) == 0);
	for (int round = 0; round < 100; round++) {
		CHECK(getcontext(&coroutine) == 0);
		coroutine.uc_stack.ss_sp = room + page;
		coroutine.uc_stack.ss_size = size;
		coroutine.uc_link = &back;
		makecontext(&coroutine, in_coroutine, 0);
		CHECK(swapcontext(&back, &coroutine) == 0);
	}
	munmap(room, size + 2 * page);
	return unused;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	if (strcmp(name, "handlers") == 0)
		handlers();
	else if (strcmp(name, "loaded") == 0 && argc > 2)
		in_threads(loader, argv[2]);
	else if (strcmp(name, "replaced") == 0 && argc > 3)
		replaced(argv[2], argv[3]);
	else if (strcmp(name, "mapped") == 0 && argc > 2)
		mapped(argv[2]);
	else if (strcmp(name, "generated") == 0)
		generated();
	else if (strcmp(name, "first-use") == 0)
		first_use();
	else if (strcmp(name, "coroutines") == 0)
		in_threads(switcher, NULL);
	else if (strcmp(name, "exec") == 0 || strcmp(name, "once") == 0)
		in_threads(contender, NULL);
	else
		return 2;
	if (strcmp(name, "exec") == 0) {
		execl(argv[0], argv[0], "once", NULL);
		return 3;
	}
	printf("%s %ld\n", name, counted);
	return 0;
}
