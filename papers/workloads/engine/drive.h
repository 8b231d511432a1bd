/*
 * The threads of a measured run.
 *
 * Each thread works on a Terminal: `unsigned choose()` draws the type of the next transaction, and
 * `Outcome execute(unsigned type)` draws its input and runs it.
 */
#ifndef UNCONVOY_ENGINE_DRIVE_H
#define UNCONVOY_ENGINE_DRIVE_H

#include <array>
#include <memory>
#include <new>
#include <vector>

#include "measure.h"
#include "options.h"
#include "random.h"
#include "session.h"

namespace engine {

/* Draws a transaction type by its `share`, a percentage. */
template <class Info, size_t Types>
unsigned choose_by_share(Random &random, const Info (&types)[Types])
{
	uint32_t draw = random.uniform(0, 99);
	unsigned type = 0;
	while (draw >= types[type].share)
		draw -= types[type++].share;
	return type;
}

/* Counts of one transaction type. */
struct Count {
	uint64_t committed, failed, deadlocks, timeouts;

	void add(const Outcome &outcome)
	{
		++(outcome.committed ? committed : failed);
		deadlocks += outcome.deadlocks;
		timeouts += outcome.timeouts;
	}

	void add(const Count &other)
	{
		committed += other.committed;
		failed += other.failed;
		deadlocks += other.deadlocks;
		timeouts += other.timeouts;
	}
};

template <size_t Types> using Counts = std::array<Count, Types>;

/*
 * `measured` counts the transactions that ended within the window. It may differ from window.ops by
 * one or two per thread at the window's edges. `all` counts from the start of the threads.
 */
template <size_t Types> struct Counters {
	Counts<Types> measured{}, all{};
};

template <class Terminal, size_t Types> class Driver {
    public:
	/* Runs the terminals, one per thread, for the measured window. With --checkpoint, a thread may
	 * sleep for load at the end of a transaction. */
	Driver(std::vector<std::unique_ptr<Terminal>> terminals, const CommonOptions &options)
	{
		long threads = static_cast<long>(terminals.size());
		window_init(&window_, threads, threads);
		/* Each thread has its own cache lines, so that no two write the same line. */
		std::vector<Thread *> running;
		for (long i = 0; i < threads; i++) {
			auto *thread = new (line_alloc(1, sizeof(Thread))) Thread;
			thread->window = &window_;
			thread->checkpoint = options.checkpoint;
			thread->counter = &window_.counters[i];
			thread->terminal = std::move(terminals[static_cast<size_t>(i)]);
			thread->id = start_thread(run, thread);
			running.push_back(thread);
		}
		window_run(&window_, options.seconds);
		for (Thread *thread : running) {
			pthread_join(thread->id, nullptr);
			for (size_t type = 0; type < Types; type++) {
				sums_.measured[type].add(thread->counts.measured[type]);
				sums_.all[type].add(thread->counts.all[type]);
			}
			thread->~Thread();
			free(thread);
		}
	}

	const struct window &window() const { return window_; }
	const Counters<Types> &sums() const { return sums_; }
	double per_second(uint64_t count) const { return static_cast<double>(count) / window_.seconds; }

    private:
	struct alignas(MEASURE_LINE) Thread {
		struct window *window;
		struct counter *counter;
		bool checkpoint;
		std::unique_ptr<Terminal> terminal;
		Counters<Types> counts;
		pthread_t id;
	};

	static void *run(void *argument)
	{
		Thread &self = *static_cast<Thread *>(argument);
		pthread_barrier_wait(&self.window->start_barrier);
		while (window_phase(self.window) != PHASE_STOP) {
			unsigned type = self.terminal->choose();
			Outcome outcome = self.terminal->execute(type);
			counter_increment(self.counter);
			self.counts.all[type].add(outcome);
			if (window_phase(self.window) == PHASE_MEASURE)
				self.counts.measured[type].add(outcome);
			if (self.checkpoint)
				unconvoy_checkpoint_if_loaded();
		}
		return nullptr;
	}

	struct window window_;
	Counters<Types> sums_;
};

} // namespace engine

#endif
