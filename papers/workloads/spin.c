/*
 * The adversary: threads that only burn processor time.
 *
 * Johnson et al., ASPLOS 2010, section 5.5: a process under load control may lose to one "whose
 * only purpose is to consume CPU time". This one takes no lock and makes no system call, so it is
 * equally greedy under any library.
 *
 * cpu_seconds is the processor time; jain and min_max say how evenly the threads share it.
 */
#include "measure.h"

/*
 * Iterations between two checks of the window's phase. They take some microseconds, so a check
 * costs next to nothing.
 */
enum { TURNS_PER_OP = 10000 };

struct worker {
	struct window *window;
	struct counter *counter;
	pthread_t thread;
};

static void *worker_main(void *argument)
{
	struct worker *self = argument;

	pthread_barrier_wait(&self->window->start_barrier);
	while (window_phase(self->window) != PHASE_STOP) {
		for (volatile int turn = 0; turn < TURNS_PER_OP; turn = turn + 1)
			;
		counter_increment(self->counter);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = 2;
	double seconds = 2;
	const struct option_row rows[] = {
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096, "threads that burn processor time" },
		{ "seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window" },
	};
	const struct program program = { "spin", "Threads only burn processor time.", rows,
					 sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);

	struct window *window = line_alloc(1, sizeof *window);
	window_init(window, threads, threads);
	struct worker *workers = line_alloc((size_t)threads, sizeof *workers);
	for (long i = 0; i < threads; i++) {
		workers[i].window = window;
		workers[i].counter = &window->counters[i];
		workers[i].thread = start_thread(worker_main, &workers[i]);
	}
	window_run(window, seconds);
	for (long i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	window_report(window);
	return EXIT_SUCCESS;
}
