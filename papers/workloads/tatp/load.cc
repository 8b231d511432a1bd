/*
 * The population of TATP's tables. Each row is a function of the seed, its table and its
 * subscriber, so tables can be written one after the other in key order.
 */
#include "benchmark.h"

using engine::Random;

namespace tatp {

namespace {

/*
 * Calls `each` for 1 to 4 distinct types in ascending order; returns the sum of its results. Every
 * number of types and every choice of them is equally likely.
 */
template <class Each> uint64_t for_some_types(Random &random, Each each)
{
	uint64_t sum = 0;
	uint32_t left = random.uniform(1, kTypes);
	for (uint8_t type = 1; type <= kTypes; type++)
		if (random.uniform(1, kTypes + 1u - type) <= left) {
			left--;
			sum += each(type);
		}
	return sum;
}

uint8_t random_byte(Random &random) { return static_cast<uint8_t>(random.uniform(0, 255)); }

SubscriberRow make_subscriber(uint64_t seed, uint32_t s_id)
{
	Random random(seed, kSubscriber, s_id);
	SubscriberRow row;
	row.sub_nbr = number_of(s_id);
	for (int i = 0; i < 10; i++) {
		row.bit[i] = static_cast<uint8_t>(random.uniform(0, 1));
		row.hex[i] = static_cast<uint8_t>(random.uniform(0, 15));
		row.byte2[i] = random_byte(random);
	}
	row.msc_location = random.uniform(1, UINT32_MAX);
	row.vlr_location = random.uniform(1, UINT32_MAX);
	return row;
}

/* Writes one subscriber's rows of ACCESS_INFO; returns their number. */
uint64_t add_access_info(engine::Loader &loader, uint64_t seed, uint32_t s_id)
{
	Random types(seed, kAccessInfo, s_id), random(~seed, kAccessInfo, s_id);
	return for_some_types(types, [&](uint8_t type) {
		AccessInfoRow row;
		row.data1 = random_byte(random);
		row.data2 = random_byte(random);
		row.data3 = random.text<3>(3, 3, engine::kUpperCase);
		row.data4 = random.text<5>(5, 5, engine::kUpperCase);
		loader.add(access_info_key(s_id, type), row);
		return 1;
	});
}

uint64_t add_special_facilities(engine::Loader &loader, uint64_t seed, uint32_t s_id)
{
	Random types(seed, kSpecialFacility, s_id), random(~seed, kSpecialFacility, s_id);
	return for_some_types(types, [&](uint8_t type) {
		SpecialFacilityRow row;
		row.is_active = random.percent(85);
		row.error_cntrl = random_byte(random);
		row.data_a = random_byte(random);
		row.data_b = random.text<5>(5, 5, engine::kUpperCase);
		loader.add(special_facility_key(s_id, type), row);
		return 1;
	});
}

/* Uses the same types as add_special_facilities(). */
uint64_t add_call_forwarding(engine::Loader &loader, uint64_t seed, uint32_t s_id)
{
	Random types(seed, kSpecialFacility, s_id), random(~seed, kCallForwarding, s_id);
	return for_some_types(types, [&](uint8_t type) {
		/* 0 to 3 distinct start times, every number equally likely. */
		uint32_t count = random.uniform(0, 3), left = count, to_see = 3;
		for (uint8_t start : kStartTimes) {
			if (random.uniform(1, to_see--) > left)
				continue;
			left--;
			CallForwardingRow row;
			row.end_time = static_cast<uint8_t>(start + random.uniform(1, 8));
			row.numberx = random.text<kNumberDigits>(kNumberDigits, kNumberDigits, engine::kDigits);
			loader.add(call_forwarding_key(s_id, type, start), row);
		}
		return count;
	});
}

} // namespace

engine::Dataset::Fields load(const std::string &path, uint64_t scale, uint64_t seed)
{
	engine::Loader loader(path);
	auto subscribers = static_cast<uint32_t>(scale);
	for (uint32_t s_id = 1; s_id <= subscribers; s_id++)
		loader.add(subscriber_key(s_id), make_subscriber(seed, s_id));
	for (uint32_t s_id = 1; s_id <= subscribers; s_id++)
		loader.add(subscriber_number_key(number_of(s_id)), SubscriberNumberRow{s_id});

	auto add_all = [&](uint64_t (*add)(engine::Loader &, uint64_t, uint32_t)) {
		uint64_t count = 0;
		for (uint32_t s_id = 1; s_id <= subscribers; s_id++)
			count += add(loader, seed, s_id);
		return count;
	};
	uint64_t access_info = add_all(add_access_info);
	uint64_t special_facilities = add_all(add_special_facilities);
	uint64_t call_forwarding = add_all(add_call_forwarding);
	loader.finish();
	return {{"subscribers", subscribers},
		{"seed", seed},
		{"access_info", access_info},
		{"special_facility", special_facilities},
		{"call_forwarding", call_forwarding}};
}

} // namespace tatp
