/*
 * A mutex for C and C++ under many threads: unconvoy_mutex_t, absl::Mutex or std::mutex. Built by
 * scripts/bench-mutexes.sh, because it needs Abseil and libunconvoy.a.
 *
 * A section increments a counter on each of four cache lines and then computes for --section steps
 * of about a nanosecond; so does the pause after it. At the end each counter must equal the sum of
 * all threads' operations.
 */
#include "measure.h"

#include <absl/synchronization/mutex.h>

#include <mutex>
#include <vector>

namespace {

constexpr int kLines = 4;

struct alignas(MEASURE_LINE) Line {
	uint64_t counter;
};

/* The mutex of unconvoy.h, with the interface of std::mutex. */
class UnconvoyMutex {
public:
	void lock() { unconvoy_mutex_lock(&mutex_); }
	void unlock() { unconvoy_mutex_unlock(&mutex_); }

private:
	unconvoy_mutex_t mutex_ = UNCONVOY_MUTEX_INIT;
};

class AbslMutex {
public:
	void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_.Lock(); }
	void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_.Unlock(); }

private:
	absl::Mutex mutex_;
};

struct Bench {
	struct window window;
	long section = 100;
	long pause = 0;
};

template <class Mutex> struct Shared : Bench {
	alignas(MEASURE_LINE) Mutex mutex;
	volatile Line lines[kLines] = {};
};

template <class Mutex> struct Worker {
	Shared<Mutex> *shared;
	struct counter *counter;
	pthread_t thread;
};

void compute(long steps)
{
	uint64_t value = static_cast<uint64_t>(steps);
	for (long i = 0; i < steps; i++)
		value = value * 6364136223846793005u + 1;
	asm volatile("" : : "r"(value));
}

template <class Mutex> void *run_worker(void *argument)
{
	auto *self = static_cast<Worker<Mutex> *>(argument);
	Shared<Mutex> &shared = *self->shared;

	pthread_barrier_wait(&shared.window.start_barrier);
	while (window_phase(&shared.window) != PHASE_STOP) {
		shared.mutex.lock();
		for (volatile Line &line : shared.lines)
			line.counter = line.counter + 1;
		compute(shared.section);
		shared.mutex.unlock();
		compute(shared.pause);
		counter_increment(self->counter);
	}
	return nullptr;
}

template <class Mutex> void run(const Bench &options, long threads, double seconds)
{
	static Shared<Mutex> shared;

	shared.section = options.section;
	shared.pause = options.pause;
	window_init(&shared.window, threads, threads);
	std::vector<Worker<Mutex>> workers(static_cast<size_t>(threads));
	for (size_t i = 0; i < workers.size(); i++) {
		workers[i].shared = &shared;
		workers[i].counter = &shared.window.counters[i];
		workers[i].thread = start_thread(run_worker<Mutex>, &workers[i]);
	}
	window_run(&shared.window, seconds);
	uint64_t operations = 0;
	for (const Worker<Mutex> &worker : workers) {
		pthread_join(worker.thread, nullptr);
		operations += counter_read(worker.counter);
	}
	for (volatile Line &line : shared.lines)
		if (line.counter != operations)
			die_inconsistent("an increment was lost: the lock did not exclude");
	window_report(&shared.window);
}

} // namespace

int main(int argc, char **argv)
{
	static const char *const kNames[] = { "unconvoy", "absl", "std" };
	long threads = 2;
	double seconds = 2;
	const char *name = "unconvoy";
	Bench bench;
	const struct option_row rows[] = {
		{ "mutex", "NAME", OPTION_TEXT, &name, 0, 0, "unconvoy, absl or std" },
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096, "threads that take the mutex" },
		{ "seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window" },
		{ "section", "N", OPTION_COUNT, &bench.section, 0, 1e9, "steps in the section" },
		{ "pause", "N", OPTION_COUNT, &bench.pause, 0, 1e9, "steps after the section" },
	};
	const struct program program = { "cpp_mutex", "Threads take one mutex in a loop.", rows,
					 sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);
	switch (parse_choice(&program, "mutex", name, kNames, 3)) {
	case 0:
		run<UnconvoyMutex>(bench, threads, seconds);
		break;
	case 1:
		run<AbslMutex>(bench, threads, seconds);
		break;
	default:
		run<std::mutex>(bench, threads, seconds);
	}
	return EXIT_SUCCESS;
}
