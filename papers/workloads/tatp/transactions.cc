/*
 * TATP's seven transactions, statement by statement as in the standard's SQL.
 *
 * A transaction fails by the standard's rules if it finds no row to return or change, or if its new
 * row would violate a key. Such failures are part of the load and have an expected rate. They are
 * rolled back.
 */
#include "benchmark.h"

using engine::Outcome;
using engine::Session;

namespace tatp {

/*
 * The expected rates follow from the population. Each of the 4 types exists with probability 2.5/4,
 * and each start time of an existing facility with 1/2, because 0, 1, 2 and 3 rows are equally
 * likely.
 *
 * GET_NEW_DESTINATION(start, end) needs the facility, active (0.625 * 0.85 = 0.53125), and a row
 * with start_time <= start and end < end_time. A row that begins at t ends at t+1..t+8, and the end
 * drawn is 1..24, so the row fits with probability (t + 3.5)/24 on average. A row ends at t+8 at
 * the latest, and the next one at t+9 at the earliest. So if any row fits, the latest row that
 * begins by `start` does:
 *
 *    start   latest row at 0   at 8   at 16   fits
 *      0          1/2                         (3.5/2) / 24                          = 0.0729
 *      8          1/6          1/2            (3.5/6 + 11.5/2) / 24                 = 0.2639
 *     16          1/12         1/6     1/2    (3.5/12 + 11.5/6 + 19.5/2) / 24       = 0.4983
 *
 * 1/6 is the probability of "this row and not the next": 1/3 if the facility has one row, 1/3 if it
 * has two, and each of the four numbers of rows has probability 1/4. 1/12 is the probability of
 * "this row alone": 1/3 if there is one row. The mean, 0.2784, times 0.53125 is 0.1479. The often
 * quoted 23.9 % does not follow from these rules. A long run tends to another rate:
 * INSERT_CALL_FORWARDING draws end_time from 1..24 whatever the start, so with all rows replaced,
 * each existing with probability 1/2, the rate would be 0.2042. Every run begins with the
 * population.
 */
const Terminal::TypeInfo Terminal::kTypeInfo[kTypeCount] = {
	{"get_subscriber_data", 35, 100, &Terminal::get_subscriber_data},
	{"get_new_destination", 10, 14.79, &Terminal::get_new_destination},
	{"get_access_data", 35, 62.5, &Terminal::get_access_data},
	{"update_subscriber_data", 2, 62.5, &Terminal::update_subscriber_data},
	{"update_location", 14, 100, &Terminal::update_location},
	{"insert_call_forwarding", 2, 31.25, &Terminal::insert_call_forwarding},
	{"delete_call_forwarding", 2, 31.25, &Terminal::delete_call_forwarding},
};

/*
 * The standard's non-uniform draw. Its A is 65535 up to a million subscribers, and grows with them.
 */
uint32_t Terminal::random_subscriber()
{
	uint32_t a = subscribers_ <= 1000000 ? 65535 : subscribers_ <= 10000000 ? 1048575 : 2097151;
	return random_.nurand(a, 1, subscribers_);
}

Outcome Terminal::get_subscriber_data()
{
	uint32_t s_id = random_subscriber();
	return session_.transact([&](Session &session) {
		SubscriberRow row = session.need<SubscriberRow>(subscriber_key(s_id));
		if (!(row.sub_nbr == number_of(s_id)))
			engine::inconsistent("SUBSCRIBER %u has another subscriber's number", s_id);
		return true;
	});
}

Outcome Terminal::get_new_destination()
{
	uint32_t s_id = random_subscriber();
	uint8_t sf_type = random_type(), start = random_start(), end = random_end();
	return session_.transact([&](Session &session) {
		auto facility = session.get<SpecialFacilityRow>(special_facility_key(s_id, sf_type));
		if (!facility || !facility->is_active)
			return false;
		bool found = false;
		/* Scan the rows up to and including `start`. */
		session.scan(call_forwarding_key(s_id, sf_type, 0),
			     call_forwarding_key(s_id, sf_type, start + 1),
			     [&](const rocksdb::Slice &, const rocksdb::Slice &value) {
				     found |= end < engine::decode<CallForwardingRow>(value).end_time;
				     return true;
			     });
		return found;
	});
}

Outcome Terminal::get_access_data()
{
	uint32_t s_id = random_subscriber();
	uint8_t ai_type = random_type();
	return session_.transact([&](Session &session) {
		return session.get<AccessInfoRow>(access_info_key(s_id, ai_type)).has_value();
	});
}

Outcome Terminal::update_subscriber_data()
{
	uint32_t s_id = random_subscriber();
	uint8_t sf_type = random_type();
	auto bit = static_cast<uint8_t>(random_.uniform(0, 1)),
	     data_a = static_cast<uint8_t>(random_.uniform(0, 255));
	return session_.transact([&](Session &session) {
		SubscriberRow subscriber = session.need_lock<SubscriberRow>(subscriber_key(s_id));
		subscriber.bit[0] = bit;
		session.put(subscriber_key(s_id), subscriber);
		auto facility = session.lock<SpecialFacilityRow>(special_facility_key(s_id, sf_type));
		if (!facility)
			return false;
		facility->data_a = data_a;
		session.put(special_facility_key(s_id, sf_type), *facility);
		return true;
	});
}

namespace {

uint32_t find_by_number(Session &session, const Number &sub_nbr)
{
	return session.need<SubscriberNumberRow>(subscriber_number_key(sub_nbr)).s_id;
}

} // namespace

Outcome Terminal::update_location()
{
	Number sub_nbr = number_of(random_subscriber());
	uint32_t vlr_location = random_.uniform(1, UINT32_MAX);
	return session_.transact([&](Session &session) {
		engine::Key key = subscriber_key(find_by_number(session, sub_nbr));
		SubscriberRow subscriber = session.need_lock<SubscriberRow>(key);
		subscriber.vlr_location = vlr_location;
		session.put(key, subscriber);
		return true;
	});
}

Outcome Terminal::insert_call_forwarding()
{
	Number sub_nbr = number_of(random_subscriber());
	uint8_t sf_type = random_type(), start = random_start();
	CallForwardingRow row;
	row.end_time = random_end();
	row.numberx = random_.text<kNumberDigits>(kNumberDigits, kNumberDigits, engine::kDigits);
	return session_.transact([&](Session &session) {
		uint32_t s_id = find_by_number(session, sub_nbr);
		/*
		 * Selects all facilities of the subscriber, then inserts for an independently drawn
		 * type.
		 */
		bool has_parent = false;
		session.scan(special_facility_key(s_id, 1), special_facility_key(s_id, kTypes + 1),
			     [&](const rocksdb::Slice &key, const rocksdb::Slice &) {
				     has_parent |= key == rocksdb::Slice(special_facility_key(s_id, sf_type));
				     return true;
			     });
		/*
		 * Checks the foreign key, without a lock since no transaction removes facilities,
		 * then the primary key.
		 */
		engine::Key key = call_forwarding_key(s_id, sf_type, start);
		if (!has_parent || session.lock_key(key))
			return false;
		session.put(key, row);
		return true;
	});
}

Outcome Terminal::delete_call_forwarding()
{
	Number sub_nbr = number_of(random_subscriber());
	uint8_t sf_type = random_type(), start = random_start();
	return session_.transact([&](Session &session) {
		engine::Key key = call_forwarding_key(find_by_number(session, sub_nbr), sf_type, start);
		if (!session.lock_key(key))
			return false;
		session.erase(key);
		return true;
	});
}

} // namespace tatp
