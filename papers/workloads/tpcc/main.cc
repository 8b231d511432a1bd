/*
 * TPC-C on RocksDB's TransactionDB: five transactions of an order-entry company, small to fairly
 * large.
 *
 * Terminals have no keying and think times: each thread runs one transaction after the other.
 * `tpmC` is therefore not the standard's metric, which is at most 12.86 per warehouse. Threads
 * contend for the rows of their warehouse and district, where they wait for each other's
 * transactions, and in the engine. With --io-ms each commit takes at least that long, with its
 * locks held. The studies delayed each disk request by 6 ms while the files were in tmpfs, so that
 * threads blocked as with a large disk array. --without-delivery leaves that transaction out of the
 * mix, as in section 5.4 of "Decoupling Contention Management from Scheduling" (ASPLOS 2010).
 */
#include <cinttypes>

#include "benchmark.h"

using namespace tpcc;

namespace {

void report(const engine::Driver<Terminal, kTypeCount> &driver, const Company &company,
	    double io_ms)
{
	const Counts &measured = driver.sums().measured;
	uint64_t retries = 0;
	window_report(&driver.window());
	printf("warehouses %u\n", company.warehouses);
	printf("io_ms %g\n", io_ms);
	printf("delivers %d\n", company.delivers);
	/* Excludes transactions rolled back by the rules, which `ops` includes. */
	printf("tpmC %.1f\n", 60 * driver.per_second(measured[kNewOrderType].committed));
	for (unsigned type = 0; type < kTypeCount; type++) {
		const engine::Count &count = measured[type];
		const char *name = Terminal::kTypeInfo[type].name;
		printf("tps_%s %.1f\n", name, driver.per_second(count.committed + count.failed));
		printf("rolled_back_%s %" PRIu64 "\n", name, count.failed);
		printf("deadlocks_%s %" PRIu64 "\n", name, count.deadlocks);
		printf("timeouts_%s %" PRIu64 "\n", name, count.timeouts);
		retries += count.deadlocks + count.timeouts;
	}
	printf("retries %" PRIu64 "\n", retries);
	printf("skipped_deliveries %" PRIu64 "\n", company.skipped_deliveries.load());
}

} // namespace

int main(int argc, char **argv)
{
	engine::CommonOptions common;
	long warehouses = 0;
	double io_ms = 0;
	bool without_delivery = false;
	std::vector<option_row> rows = common.rows();
	rows.push_back({"warehouses", "N", OPTION_COUNT, &warehouses, 1, 10000,
			"warehouses to load, default 2; without --load, the number that DIR must have"});
	rows.push_back({"io-ms", "MS", OPTION_REAL, &io_ms, 0, 10000,
			"sleep in each commit that wrote, with its row locks held"});
	rows.push_back({"without-delivery", "", OPTION_FLAG, &without_delivery, 0, 0,
			"leave the Delivery transaction out of the mix"});
	const struct program program = {"tpcc",
					"The TPC-C benchmark on RocksDB's TransactionDB, without keying and think "
					"times.",
					rows.data(), rows.size()};
	parse_options(&program, argc, argv);
	before_death = engine::remove_doomed;
	engine::Dataset dataset =
		engine::prepare(program, common, kFormat, {"warehouses", warehouses, 2}, load);

	engine::Database database(dataset, common.scratch_parent());
	if (common.check) {
		check_tables(database, dataset);
		return EXIT_SUCCESS;
	}
	auto seed = static_cast<uint64_t>(common.seed);
	Company company(dataset.field("warehouses"), dataset.field("seed"), seed);
	company.delivers = !without_delivery;
	std::vector<std::unique_ptr<Terminal>> terminals;
	for (long i = 0; i < common.threads; i++)
		terminals.push_back(std::make_unique<Terminal>(database,
							       engine::Commits{common.sync, io_ms / 1e3},
							       company, seed, static_cast<uint32_t>(i)));
	engine::Driver<Terminal, kTypeCount> driver(std::move(terminals), common);
	check_tables(database, dataset);
	report(driver, company, io_ms);
	return EXIT_SUCCESS;
}
