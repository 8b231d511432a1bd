/*
 * TATP on RocksDB's TransactionDB: seven very small transactions, four fifths of them read-only.
 *
 * Threads hardly contend for rows. They contend in the engine: for the shards of its block cache,
 * the stripes of its row locks, and the commit queue. The studies ran TATP, under its old name
 * TM-1, with 100000 subscribers.
 */
#include <cinttypes>

#include "benchmark.h"

using namespace tatp;

namespace {

void report(const engine::Driver<Terminal, kTypeCount> &driver, long subscribers)
{
	const Counts &measured = driver.sums().measured;
	uint64_t committed = 0, retries = 0;
	for (const engine::Count &count : measured) {
		committed += count.committed;
		retries += count.deadlocks + count.timeouts;
	}
	window_report(&driver.window());
	printf("subscribers %ld\n", subscribers);
	/*
	 * Transactions that fail by the standard's rules are part of the mix: they count in tps and
	 * ops, not in mqth.
	 */
	printf("tps %.1f\n", driver.per_second(window_ops(&driver.window())));
	printf("mqth %.1f\n", driver.per_second(committed));
	for (unsigned type = 0; type < kTypeCount; type++) {
		const engine::Count &count = measured[type];
		const char *name = Terminal::kTypeInfo[type].name;
		uint64_t ended = count.committed + count.failed;
		printf("tps_%s %.1f\n", name, driver.per_second(ended));
		printf("failed_%s %" PRIu64 "\n", name, count.failed);
		printf("success_percent_%s %.2f\n", name,
		       ended ? 100 * static_cast<double>(count.committed) / static_cast<double>(ended) : 0);
		printf("expected_percent_%s %g\n", name, Terminal::kTypeInfo[type].success);
	}
	printf("retries %" PRIu64 "\n", retries);
}

} // namespace

int main(int argc, char **argv)
{
	engine::CommonOptions common;
	long subscribers = 0;
	std::vector<option_row> rows = common.rows();
	rows.push_back({"subscribers", "N", OPTION_COUNT, &subscribers, 1, 1e8,
			"subscribers to load, default 100000; without --load, the number that DIR must have"});
	const struct program program = {"tatp", "The TATP (TM-1) benchmark on RocksDB's TransactionDB.",
					rows.data(), rows.size()};
	parse_options(&program, argc, argv);
	before_death = engine::remove_doomed;
	engine::Dataset dataset =
		engine::prepare(program, common, kFormat, {"subscribers", subscribers, 100000}, load);

	subscribers = static_cast<long>(dataset.field("subscribers"));
	engine::Database database(dataset, common.scratch_parent());
	if (common.check) {
		check_tables(database, dataset, Counts{});
		return EXIT_SUCCESS;
	}
	std::vector<std::unique_ptr<Terminal>> terminals;
	for (long i = 0; i < common.threads; i++)
		terminals.push_back(std::make_unique<Terminal>(database, engine::Commits{common.sync, 0},
							       static_cast<uint32_t>(subscribers),
							       static_cast<uint64_t>(common.seed),
							       static_cast<uint64_t>(i)));
	engine::Driver<Terminal, kTypeCount> driver(std::move(terminals), common);
	check_tables(database, dataset, driver.sums().all);
	report(driver, subscribers);
	return EXIT_SUCCESS;
}
