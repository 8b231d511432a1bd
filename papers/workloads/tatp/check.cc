/*
 * Invariants of TATP's tables, whatever transactions ran:
 *
 *   1. SUBSCRIBER has exactly the subscribers 1..N, each under its own number.
 *   2. The index on sub_nbr leads from each number to its subscriber, and has no other entry.
 *   3. ACCESS_INFO and SPECIAL_FACILITY have as many rows as were loaded, all with a subscriber.
 *   4. CALL_FORWARDING has the loaded rows plus inserts minus deletes, all with a facility.
 */
#include <cinttypes>

#include "benchmark.h"

using engine::inconsistent;
using engine::Key;
using engine::KeyReader;
using engine::Rows;

namespace tatp {

namespace {

void check_count(const char *table, uint64_t rows, uint64_t expected)
{
	if (rows != expected)
		inconsistent("consistency: %s has %" PRIu64 " rows instead of %" PRIu64, table, rows,
			     expected);
}

/* The rows must be 1..N in order, so a missing row shows as another row in its place. */
void check_subscribers(engine::Database &database, uint32_t subscribers)
{
	uint32_t expected = 0;
	for (Rows at(database, Key(kSubscriber)); at.valid(); at.next()) {
		KeyReader key = at.key();
		uint32_t s_id = key.u32();
		key.end();
		if (s_id != ++expected)
			inconsistent("consistency: SUBSCRIBER %u is missing", expected);
		if (!(at.row<SubscriberRow>().sub_nbr == number_of(s_id)))
			inconsistent("consistency: SUBSCRIBER %u has another subscriber's sub_nbr", s_id);
	}
	check_count(SubscriberRow::kTable, expected, subscribers);

	expected = 0;
	for (Rows at(database, Key(kSubscriberNumber)); at.valid(); at.next()) {
		KeyReader key = at.key();
		Number number = key.text<kNumberDigits>();
		key.end();
		uint32_t s_id = at.row<SubscriberNumberRow>().s_id;
		if (!(number == number_of(++expected)))
			inconsistent("consistency: the index on sub_nbr lacks SUBSCRIBER %u", expected);
		if (s_id != expected)
			inconsistent(
				"consistency: the index on sub_nbr leads from SUBSCRIBER %u's number to %u",
				expected, s_id);
	}
	check_count(SubscriberNumberRow::kTable, expected, subscribers);
}

/* The set of (s_id, type) in a table. */
class Parents {
    public:
	explicit Parents(uint32_t subscribers) : types_(size_t{subscribers} + 1) {}
	void add(uint32_t s_id, uint8_t type) { types_[s_id] |= static_cast<uint8_t>(1u << type); }
	bool has(uint32_t s_id, uint8_t type) const
	{
		return s_id < types_.size() && type < 8 && types_[s_id] >> type & 1;
	}

    private:
	std::vector<uint8_t> types_;
};

/* ACCESS_INFO and SPECIAL_FACILITY have the same form of key. */
template <class Row>
Parents check_children(engine::Database &database, Table table, uint32_t subscribers,
		       uint64_t count)
{
	Parents found(subscribers);
	uint64_t rows = 0;
	for (Rows at(database, Key(table)); at.valid(); at.next(), rows++) {
		KeyReader key = at.key();
		uint32_t s_id = key.u32();
		uint8_t type = key.u8();
		key.end();
		at.row<Row>();
		if (s_id < 1 || s_id > subscribers || type < 1 || type > kTypes)
			inconsistent("consistency: %s (%u, %u) has no SUBSCRIBER or no such type", Row::kTable,
				     s_id, type);
		found.add(s_id, type);
	}
	check_count(Row::kTable, rows, count);
	return found;
}

void check_call_forwarding(engine::Database &database, const Parents &facilities, uint64_t count)
{
	uint64_t rows = 0;
	for (Rows at(database, Key(kCallForwarding)); at.valid(); at.next(), rows++) {
		KeyReader key = at.key();
		uint32_t s_id = key.u32();
		uint8_t type = key.u8(), start = key.u8();
		key.end();
		at.row<CallForwardingRow>();
		if (!facilities.has(s_id, type))
			inconsistent("consistency: CALL_FORWARDING (%u, %u, %u) has no SPECIAL_FACILITY", s_id,
				     type, start);
		if (std::find(std::begin(kStartTimes), std::end(kStartTimes), start) ==
		    std::end(kStartTimes))
			inconsistent("consistency: CALL_FORWARDING (%u, %u, %u) has an impossible start_time",
				     s_id, type, start);
	}
	check_count(CallForwardingRow::kTable, rows, count);
}

} // namespace

void check_tables(engine::Database &database, const engine::Dataset &dataset, const Counts &all)
{
	auto subscribers = static_cast<uint32_t>(dataset.field("subscribers"));
	check_subscribers(database, subscribers);
	check_children<AccessInfoRow>(database, kAccessInfo, subscribers, dataset.field("access_info"));
	Parents facilities = check_children<SpecialFacilityRow>(database, kSpecialFacility, subscribers,
								 dataset.field("special_facility"));
	check_call_forwarding(database, facilities,
			      dataset.field("call_forwarding") + all[kInsertCallForwarding].committed -
				      all[kDeleteCallForwarding].committed);
}

} // namespace tatp
