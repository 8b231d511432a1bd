/*
 * The tables of TATP ("Telecom Application Transaction Processing Benchmark Description", version
 * 1.0), formerly TM-1: a phone network's register of subscribers.
 *
 *   SUBSCRIBER        s_id 1..N, unique sub_nbr: s_id in 15 digits
 *   ACCESS_INFO       1 to 4 per subscriber, ai_type 1..4
 *   SPECIAL_FACILITY  1 to 4 per subscriber, sf_type 1..4
 *   CALL_FORWARDING   0 to 3 per special facility, start_time 0, 8 or 16
 *
 * SUB_NBR is the secondary index on SUBSCRIBER's number. Table numbers put parents before children,
 * so one pass in key order meets them in that order.
 */
#ifndef UNCONVOY_TATP_SCHEMA_H
#define UNCONVOY_TATP_SCHEMA_H

#include <cstdint>

#include "../engine/rows.h"

namespace tatp {

/* Raise with any change of the rows, the keys or the population. */
constexpr uint64_t kFormat = 1;

enum Table : uint8_t {
	kSubscriber = 1,
	kSubscriberNumber,
	kAccessInfo,
	kSpecialFacility,
	kCallForwarding
};

constexpr uint32_t kTypes = 4;		    /* of access info and of special facilities, from 1 */
constexpr uint8_t kStartTimes[] = {0, 8, 16};
constexpr uint32_t kHours = 24;
constexpr size_t kNumberDigits = 15;

using Number = engine::Text<kNumberDigits>;

struct __attribute__((packed)) SubscriberRow {
	static constexpr const char *kTable = "SUBSCRIBER";
	Number sub_nbr;
	uint8_t bit[10];   /* 0 or 1 */
	uint8_t hex[10];   /* 0 to 15 */
	uint8_t byte2[10]; /* 0 to 255 */
	uint32_t msc_location, vlr_location;
};

struct __attribute__((packed)) SubscriberNumberRow {
	static constexpr const char *kTable = "SUBSCRIBER's index on sub_nbr";
	uint32_t s_id;
};

struct __attribute__((packed)) AccessInfoRow {
	static constexpr const char *kTable = "ACCESS_INFO";
	uint8_t data1, data2;
	engine::Text<3> data3;
	engine::Text<5> data4;
};

struct __attribute__((packed)) SpecialFacilityRow {
	static constexpr const char *kTable = "SPECIAL_FACILITY";
	uint8_t is_active, error_cntrl, data_a;
	engine::Text<5> data_b;
};

struct __attribute__((packed)) CallForwardingRow {
	static constexpr const char *kTable = "CALL_FORWARDING";
	uint8_t end_time;
	Number numberx;
};

inline engine::Key subscriber_key(uint32_t s_id) { return engine::Key(kSubscriber).u32(s_id); }

inline engine::Key subscriber_number_key(const Number &sub_nbr)
{
	return engine::Key(kSubscriberNumber).text(sub_nbr);
}

inline engine::Key access_info_key(uint32_t s_id, uint8_t ai_type)
{
	return engine::Key(kAccessInfo).u32(s_id).u8(ai_type);
}

inline engine::Key special_facility_key(uint32_t s_id, uint8_t sf_type)
{
	return engine::Key(kSpecialFacility).u32(s_id).u8(sf_type);
}

inline engine::Key call_forwarding_key(uint32_t s_id, uint8_t sf_type, uint8_t start_time)
{
	return engine::Key(kCallForwarding).u32(s_id).u8(sf_type).u8(start_time);
}

inline Number number_of(uint32_t s_id)
{
	Number digits;
	for (size_t i = kNumberDigits; i-- > 0; s_id /= 10)
		digits.bytes[i] = static_cast<char>('0' + s_id % 10);
	return digits;
}

} // namespace tatp

#endif
