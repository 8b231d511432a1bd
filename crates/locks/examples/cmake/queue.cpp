// A bounded queue between two producers and two consumers. The class makes an unconvoy mutex
// Lockable, so that the standard library's guards and std::condition_variable_any take it.
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include <unconvoy.h>

class Mutex {
public:
	Mutex() = default;
	Mutex(const Mutex &) = delete;
	Mutex &operator=(const Mutex &) = delete;
	void lock() { unconvoy_mutex_lock(&mutex); }
	bool try_lock() { return unconvoy_mutex_trylock(&mutex); }
	void unlock() { unconvoy_mutex_unlock(&mutex); }

private:
	unconvoy_mutex_t mutex = UNCONVOY_MUTEX_INIT;
};

class Queue {
public:
	void put(int value)
	{
		std::unique_lock guard(mutex);
		changed.wait(guard, [this] { return values.size() < capacity; });
		values.push(value);
		changed.notify_all();
	}

	int take()
	{
		std::unique_lock guard(mutex);
		changed.wait(guard, [this] { return !values.empty(); });
		int value = values.front();
		values.pop();
		changed.notify_all();
		return value;
	}

private:
	static constexpr std::size_t capacity = 8;
	Mutex mutex;
	std::condition_variable_any changed;
	std::queue<int> values;
};

int main()
{
	constexpr int values = 10000;
	Queue queue;
	Mutex mutex;
	long sum = 0;
	std::vector<std::thread> threads;
	for (int i = 0; i < 2; i++) {
		threads.emplace_back([&] {
			for (int value = 1; value <= values; value++)
				queue.put(value);
		});
		threads.emplace_back([&] {
			for (int taken = 0; taken < values; taken++) {
				int value = queue.take();
				std::lock_guard guard(mutex);
				sum += value;
			}
		});
	}
	for (std::thread &thread : threads)
		thread.join();
	std::printf("sum %ld\n", sum);
	return sum != 2L * values * (values + 1) / 2;
}
