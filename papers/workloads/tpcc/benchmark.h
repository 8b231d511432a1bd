/*
 * The parts of the TPC-C program: load, terminals, check.
 */
#ifndef UNCONVOY_TPCC_BENCHMARK_H
#define UNCONVOY_TPCC_BENCHMARK_H

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "../engine/dataset.h"
#include "../engine/drive.h"
#include "../engine/options.h"
#include "../engine/random.h"
#include "schema.h"

namespace tpcc {

using LastName = engine::Text<16>;

/* Clause 4.3.2.3: three syllables, one per digit of a number below 1000. */
LastName last_name(uint32_t number);

/* Clause 2.1.6: NURand's C for last names, in the data of `seed`. */
uint32_t loaded_name_constant(uint64_t seed);

/* Fills the data set by clause 4.3.3; returns the fields that describe it. */
engine::Dataset::Fields load(const std::string &path, uint64_t warehouses, uint64_t seed);

enum Type { kNewOrderType, kPayment, kOrderStatus, kDelivery, kStockLevel, kTypeCount };

using Counts = engine::Counts<kTypeCount>;

/* State shared by all terminals. */
struct Company {
	/* A run's C must differ from the load's (clause 2.1.6.1), hence both seeds. */
	Company(uint64_t warehouses, uint64_t load_seed, uint64_t run_seed);

	uint16_t warehouses;
	uint32_t name_constant, customer_constant, item_constant; /* the C of NURand */

	/*
	 * Per district, an order number below which all orders are delivered. The search for the
	 * oldest undelivered order starts there, because a log-structured engine keeps a deletion
	 * mark for each delivered order. The number is only a hint, because it rises after the
	 * delivery has committed.
	 */
	std::vector<std::atomic<uint32_t>> delivered;
	std::atomic<uint64_t> skipped_deliveries{0};
	bool delivers = true; /* whether Delivery is in the mix */

	std::atomic<uint32_t> &delivered_in(uint16_t w, uint8_t d)
	{
		return delivered[size_t{w - 1u} * kDistricts + d - 1u];
	}
};

class Terminal {
    public:
	Terminal(engine::Database &database, const engine::Commits &commits, Company &company,
		     uint64_t seed, uint32_t number);

	unsigned choose();
	engine::Outcome execute(unsigned type) { return (this->*kTypeInfo[type].run)(); }

	struct TypeInfo {
		const char *name;
		unsigned share; /* percent of the mix, clause 5.2.3 */
		engine::Outcome (Terminal::*run)();
	};
	static const TypeInfo kTypeInfo[kTypeCount];

    private:
	/* The customer of a transaction: by name if `by_name`, else by c_id. */
	struct Buyer {
		uint16_t w;
		uint8_t d;
		bool by_name;
		LastName last;
		uint16_t c;
	};

	engine::Outcome new_order();
	engine::Outcome payment();
	engine::Outcome order_status();
	engine::Outcome delivery();
	engine::Outcome stock_level();

	uint8_t random_district() { return static_cast<uint8_t>(random_.uniform(1, kDistricts)); }
	uint16_t random_customer();
	uint16_t random_other_warehouse();
	/* Clauses 2.5.1.2 and 2.6.1.2: 60 % by last name. */
	Buyer random_buyer(uint16_t w, uint8_t d);
	static uint16_t find(engine::Session &session, const Buyer &buyer);
	/* Returns 0 if the district has no undelivered order. */
	uint32_t take_oldest_new_order(engine::Session &session, uint8_t d);

	engine::Session session_;
	engine::Random random_;
	Company &company_;
	uint16_t home_, writer_;
	uint8_t district_; /* of Stock-Level */
	uint32_t payments_ = 0;
	/* The transaction's output, stored so that the compiler keeps the computation. */
	volatile int64_t shown_ = 0;
};

/*
 * Fails, naming the condition, the place and both values, unless the conditions 1 to 10 and 12 of
 * clause 3.3.2 hold and the indexes have exactly the right rows.
 */
void check_tables(engine::Database &database, const engine::Dataset &dataset);

} // namespace tpcc

#endif
