/*
 * Tests two transactions in a deadlock, and one that waits too long for a row. All must repeat
 * until they commit, and keep nothing of an earlier round. The argument is a directory that does
 * not exist yet.
 */
#include <thread>

#include "engine/session.h"
#include "measure.h"

using engine::Key;
using engine::Outcome;
using engine::Session;

struct __attribute__((packed)) Row {
	static constexpr const char *kTable = "ROW";
	uint64_t count;
};

static Key key(uint8_t n) { return Key(1).u8(n); }

static void add_one(Session &session, uint8_t n)
{
	Row row = session.need_lock<Row>(key(n));
	row.count++;
	session.put(key(n), row);
}

int main(int, char **argv)
{
	engine::start_program("conflicts");
	before_death = engine::remove_doomed;
	engine::Dataset dataset(argv[1], 1);
	engine::Loader loader(dataset.begin_load());
	loader.add(key(1), Row{0});
	loader.add(key(2), Row{0});
	loader.finish();
	dataset.finish_load({});
	engine::Database database(dataset, argv[1]);

	pthread_barrier_t met;
	pthread_barrier_init(&met, nullptr, 2);
	Outcome outcomes[2];
	/* Each holds its first row when the other asks for it. */
	auto cross = [&](int self) {
		Session session(database, {false, 0});
		int round = 0;
		outcomes[self] = session.transact([&](Session &in) {
			add_one(in, static_cast<uint8_t>(1 + self));
			if (round++ == 0)
				pthread_barrier_wait(&met);
			add_one(in, static_cast<uint8_t>(2 - self));
			return true;
		});
	};
	std::thread other(cross, 0);
	cross(1);
	other.join();
	uint64_t deadlocks = outcomes[0].deadlocks + outcomes[1].deadlocks;
	if (!outcomes[0].committed || !outcomes[1].committed || deadlocks < 1)
		die("a deadlock of two was not counted");

	/* Holds the row for longer than RocksDB's lock time-out of 1 s. */
	std::thread holder([&] {
		Session session(database, {false, 1.5});
		session.transact([&](Session &in) {
			add_one(in, 1);
			pthread_barrier_wait(&met);
			return true;
		});
	});
	pthread_barrier_wait(&met);
	Session waiter(database, {false, 0});
	Outcome waited = waiter.transact([&](Session &in) {
		add_one(in, 1);
		return true;
	});
	holder.join();
	if (!waited.committed || waited.timeouts != 1)
		die("a wait of 1.5 s had %" PRIu64 " time-outs instead of 1", waited.timeouts);

	waiter.transact([&](Session &in) {
		uint64_t one = in.need<Row>(key(1)).count, two = in.need<Row>(key(2)).count;
		if (one != 4 || two != 2)
			die("the rows count %" PRIu64 " and %" PRIu64 " instead of 4 and 2", one, two);
		return true;
	});
	return EXIT_SUCCESS;
}
