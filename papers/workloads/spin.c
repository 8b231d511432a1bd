/*
 * The adversary: threads that burn processor time and do nothing else.
 *
 * Johnson et al., ASPLOS 2010, section 5.5: a process under load control may lose to one "whose only purpose is
 * to consume CPU time". It takes no lock and makes no system call, so it is as greedy under any library.
 *
 * cpu_seconds is what it got of the processors; jain and min_max say how its own threads shared that.
 */
#include "measure.h"

/* So rarely does a thread look whether it is to end that the look costs nothing: every few us. */
enum { TURNS_PER_OP = 10000 };

struct worker {
	struct window *window;
	struct tally *tally;
	pthread_t thread;
};

static void *worker_main(void *argument)
{
	struct worker *self = argument;

	pthread_barrier_wait(&self->window->gate);
	while (window_phase(self->window) != PHASE_STOP) {
		for (volatile int turn = 0; turn < TURNS_PER_OP; turn = turn + 1)
			;
		tally_one(self->tally);
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
	const struct program program = { "spin", "Threads burn processor time and do nothing else.", rows,
					 sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);

	struct window *window = line_alloc(1, sizeof *window);
	window_init(window, threads, threads);
	struct worker *workers = line_alloc((size_t)threads, sizeof *workers);
	for (long i = 0; i < threads; i++) {
		workers[i].window = window;
		workers[i].tally = &window->tallies[i];
		workers[i].thread = start_thread(worker_main, &workers[i]);
	}
	window_run(window, seconds);
	for (long i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	window_report(window);
	return EXIT_SUCCESS;
}
