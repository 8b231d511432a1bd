/*
 * The tasks: processes, or threads of this process. A shared page holds the current phase and each
 * task's account.
 */
#include "tasks.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum crew_phase { CREW_SETUP, CREW_WARM_UP, CREW_MEASURE, CREW_STOP, CREW_HOME };

/* A task's work and cost within the window. */
struct account {
	uint64_t ops;
	double seconds, user, system;
	long voluntary, involuntary;
} __attribute__((aligned(MEASURE_LINE)));

struct crew {
	int phase __attribute__((aligned(MEASURE_LINE)));
	int ready __attribute__((aligned(MEASURE_LINE))), measuring, finished, has_failed;
	uint64_t next __attribute__((aligned(MEASURE_LINE)));
	uint64_t sum __attribute__((aligned(MEASURE_LINE)));
	struct account accounts[];
};

static struct crew *crew;
static const struct load *load;
static pid_t *processes; /* 0: not started, or ended */
/* Serialises starting and killing processes. */
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

uint64_t crew_next(void)
{
	return __atomic_fetch_add(&crew->next, 1, __ATOMIC_RELAXED);
}

void crew_add(uint64_t amount)
{
	__atomic_fetch_add(&crew->sum, amount, __ATOMIC_RELAXED);
}

uint64_t crew_sum(void)
{
	return __atomic_load_n(&crew->sum, __ATOMIC_RELAXED);
}

static enum crew_phase phase(void)
{
	return (enum crew_phase)__atomic_load_n(&crew->phase, __ATOMIC_RELAXED);
}

static void enter(enum crew_phase phase)
{
	__atomic_store_n(&crew->phase, phase, __ATOMIC_RELEASE);
	syscall(SYS_futex, &crew->phase, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Sleeps until the phase is no longer `phase`. */
static void sit_out(enum crew_phase phase)
{
	while (__atomic_load_n(&crew->phase, __ATOMIC_ACQUIRE) == (int)phase)
		syscall(SYS_futex, &crew->phase, FUTEX_WAIT, phase, NULL, NULL, 0);
}

static double seconds_of(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* Adds the task's usage so far times `sign`, including the programs that it ran and waited for. */
static void account_usage(struct account *account, int sign)
{
	const int all[] = { load->is_threaded ? RUSAGE_THREAD : RUSAGE_SELF, RUSAGE_CHILDREN };

	for (int i = 0; i < (load->is_threaded ? 1 : 2); i++) {
		struct rusage usage;
		getrusage(all[i], &usage);
		account->user += sign * seconds_of(usage.ru_utime);
		account->system += sign * seconds_of(usage.ru_stime);
		account->voluntary += sign * usage.ru_nvcsw;
		account->involuntary += sign * usage.ru_nivcsw;
	}
}

static void work(struct task *task)
{
	const uint64_t wanted = (uint64_t)crew_options.operations;
	struct account account = { 0 };

	if (load->begin)
		load->begin(task);
	/* Run one operation even without a warm-up: the first sets up what the later ones reuse. */
	load->operate(task);
	__atomic_fetch_add(&crew->ready, 1, __ATOMIC_RELEASE);
	sit_out(CREW_SETUP);
	while (phase() == CREW_WARM_UP)
		load->operate(task);
	account_usage(&account, -1);
	uint64_t start = now_ns();
	__atomic_fetch_add(&crew->measuring, 1, __ATOMIC_RELEASE);
	do {
		load->operate(task);
		account.ops++;
	} while (wanted ? account.ops < wanted : phase() == CREW_MEASURE);
	account.seconds = (double)(now_ns() - start) / 1e9;
	account_usage(&account, 1);
	crew->accounts[task->index] = account;
	__atomic_fetch_add(&crew->finished, 1, __ATOMIC_RELEASE);
	/* No task cleans up while others still work. */
	for (enum crew_phase now; (now = phase()) != CREW_HOME;)
		sit_out(now);
	if (load->end)
		load->end(task);
}

static void *thread_main(void *task)
{
	work(task);
	return NULL;
}

/*
 * A process calls this before it dies. What ends one process usually ends the others too, and only
 * one of them may print the cause.
 */
static void be_the_only_one(void)
{
	if (__atomic_exchange_n(&crew->has_failed, 1, __ATOMIC_RELAXED))
		_Exit(EXIT_FAILED);
}

static void start_process(struct task *task)
{
	pid_t parent = getpid();

	pthread_mutex_lock(&starting);
	pid_t child = start_child("a process");
	if (child > 0) {
		setpgid(child, child); /* parent and child both call this: the first one wins */
		processes[task->index] = child;
		pthread_mutex_unlock(&starting);
		return;
	}
	sigset_t ending = ending_signals();
	before_death = be_the_only_one; /* the parent cleans up */
	/*
	 * Each task has a process group, so that the programs that it runs, and their children, end
	 * with it.
	 */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_FAILED);
	sigprocmask(SIG_UNBLOCK, &ending, NULL);
	work(task);
	_exit(EXIT_SUCCESS);
}

void crew_kill(void)
{
	if (!processes)
		return;
	pthread_mutex_lock(&starting); /* never released: no process starts after this */
	for (long i = 0; i < crew_options.tasks; i++)
		if (processes[i] > 0)
			kill(-processes[i], SIGKILL);
	for (long i = 0; i < crew_options.tasks; i++)
		if (processes[i] > 0)
			waitpid(processes[i], NULL, 0);
}

/* If a task failed, ends this program with the task's status. The task has printed the reason. */
static void reap(int options)
{
	int status;
	pid_t ended;

	if (!processes)
		return;
	while ((ended = waitpid(-1, &status, options)) > 0) {
		for (long i = 0; i < crew_options.tasks; i++)
			if (processes[i] == ended)
				processes[i] = 0;
		if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS)
			continue;
		if (WIFSIGNALED(status) && !__atomic_load_n(&is_ending, __ATOMIC_RELAXED))
			fprintf(stderr, "tasks %s: a task was ended by signal %d\n", load->name,
				WTERMSIG(status));
		if (before_death)
			before_death();
		_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED);
	}
}

/* Waits until every task has incremented `counter`. */
static void all(const int *counter)
{
	while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < crew_options.tasks) {
		reap(WNOHANG);
		sleep_seconds(0.001);
	}
}

static void clean_up(void)
{
	/* The first caller cleans up; the others wait for the program's end. */
	if (__atomic_exchange_n(&is_ending, 1, __ATOMIC_ACQ_REL))
		for (;;)
			pause();
	crew_kill();
	tool_kill();
	if (load->has_files)
		scratch_remove();
}

static void print(void)
{
	const long tasks = crew_options.tasks;
	uint64_t *ops = line_alloc((size_t)tasks, sizeof *ops);
	struct account total = { 0 };
	double rate = 0;

	for (long i = 0; i < tasks; i++) {
		const struct account *account = &crew->accounts[i];
		double own = account->seconds > 0 ? (double)account->ops / account->seconds : 0;
		/* Fairness compares rates. The index takes integers, hence the factor of 1000. */
		ops[i] = (uint64_t)(own * 1000);
		rate += own;
		total.ops += account->ops;
		total.seconds += account->seconds / (double)tasks;
		total.user += account->user;
		total.system += account->system;
		total.voluntary += account->voluntary;
		total.involuntary += account->involuntary;
	}
	double cpu = total.user + total.system;
	printf("tasks %ld\n", tasks);
	printf("ops %" PRIu64 "\n", total.ops);
	printf("seconds %.6f\n", total.seconds);
	printf("ops_per_sec %.3f\n", rate);
	if (total.ops) {
		printf("jain %.4f\n", jain_index(ops, tasks));
		printf("min_max %.4f\n", min_over_max(ops, tasks));
		printf("cpu_ns_per_op %.1f\n", cpu * 1e9 / (double)total.ops);
	}
	printf("cpu_seconds %.6f\n", cpu);
	printf("user_seconds %.6f\n", total.user);
	printf("system_seconds %.6f\n", total.system);
	printf("voluntary_csw %ld\n", total.voluntary);
	printf("involuntary_csw %ld\n", total.involuntary);
	if (load->report)
		load->report();
}

void crew_run(const struct load *chosen)
{
	const long tasks = crew_options.tasks;
	size_t bytes = sizeof *crew + (size_t)tasks * sizeof *crew->accounts;

	load = chosen;
	crew = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (crew == MAP_FAILED)
		die("out of memory: %zu bytes", bytes);
	hold_signals();
	if (load->has_files)
		scratch_make();
	clean_up_on_signals(clean_up);
	if (load->prepare)
		load->prepare();

	struct task *all_tasks = line_alloc((size_t)tasks, sizeof *all_tasks);
	pthread_t *threads = line_alloc((size_t)tasks, sizeof *threads);
	if (!load->is_threaded)
		processes = line_alloc((size_t)tasks, sizeof *processes);
	fflush(stdout);
	for (long i = 0; i < tasks; i++) {
		all_tasks[i].index = i;
		all_tasks[i].random = (uint64_t)i;
		if (load->is_threaded)
			threads[i] = start_thread(thread_main, &all_tasks[i]);
		else
			start_process(&all_tasks[i]);
	}
	all(&crew->ready);
	enter(CREW_WARM_UP);
	sleep_seconds(crew_options.warm_up);
	enter(CREW_MEASURE);
	/* The last warm-up operation may outlast the window. */
	all(&crew->measuring);
	window_mark("open");
	if (!crew_options.operations) {
		sleep_seconds(crew_options.seconds);
		enter(CREW_STOP);
	}
	all(&crew->finished);
	window_mark("closed");
	enter(CREW_HOME);
	for (long i = 0; load->is_threaded && i < tasks; i++)
		pthread_join(threads[i], NULL);
	reap(0);
	print();
	fflush(stdout);
	clean_up();
}
