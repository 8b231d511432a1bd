/*
 * The parts of the TATP program: load, terminals, check.
 */
#ifndef UNCONVOY_TATP_BENCHMARK_H
#define UNCONVOY_TATP_BENCHMARK_H

#include <cstdint>

#include "../engine/dataset.h"
#include "../engine/drive.h"
#include "../engine/options.h"
#include "../engine/random.h"
#include "schema.h"

namespace tatp {

/*
 * Makes the database at `path` for `scale` subscribers by the standard's population rules; returns
 * the fields that describe it.
 */
engine::Dataset::Fields load(const std::string &path, uint64_t scale, uint64_t seed);

enum Type {
	kGetSubscriberData,
	kGetNewDestination,
	kGetAccessData,
	kUpdateSubscriberData,
	kUpdateLocation,
	kInsertCallForwarding,
	kDeleteCallForwarding,
	kTypeCount
};

using Counts = engine::Counts<kTypeCount>;

class Terminal {
    public:
	Terminal(engine::Database &database, const engine::Commits &commits, uint32_t subscribers,
		     uint64_t seed, uint64_t number)
		: session_(database, commits), random_(seed, number), subscribers_(subscribers)
	{
	}

	unsigned choose() { return engine::choose_by_share(random_, kTypeInfo); }
	engine::Outcome execute(unsigned type) { return (this->*kTypeInfo[type].run)(); }

	struct TypeInfo {
		const char *name;
		unsigned share; /* percent of the standard mix */
		double success; /* expected percentage that finds or changes rows */
		engine::Outcome (Terminal::*run)();
	};
	static const TypeInfo kTypeInfo[kTypeCount];

    private:
	uint32_t random_subscriber();
	uint8_t random_type() { return static_cast<uint8_t>(random_.uniform(1, kTypes)); }
	uint8_t random_start() { return kStartTimes[random_.uniform(0, 2)]; }
	uint8_t random_end() { return static_cast<uint8_t>(random_.uniform(1, kHours)); }

	engine::Outcome get_subscriber_data();
	engine::Outcome get_new_destination();
	engine::Outcome get_access_data();
	engine::Outcome update_subscriber_data();
	engine::Outcome update_location();
	engine::Outcome insert_call_forwarding();
	engine::Outcome delete_call_forwarding();

	engine::Session session_;
	engine::Random random_;
	uint32_t subscribers_;
};

/* Fails, naming the error, unless the tables match the data set and the transactions. */
void check_tables(engine::Database &database, const engine::Dataset &dataset, const Counts &all);

} // namespace tatp

#endif
