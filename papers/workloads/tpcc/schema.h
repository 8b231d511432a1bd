/*
 * The nine tables of TPC-C (TPC Benchmark C, Standard Specification, revision 5.11, clause 1.3) and
 * two indexes for its transactions. A warehouse has 10 districts of 3000 customers and 3000 orders
 * each, and the stock of all 100000 items.
 *
 * Money is in cents and rates in ten-thousandths, so that the sums in the consistency conditions
 * are exact. A null date or carrier is 0. Keys begin with the warehouse and the district, where a
 * table has them, so a district's rows of a table are one range.
 */
#ifndef UNCONVOY_TPCC_SCHEMA_H
#define UNCONVOY_TPCC_SCHEMA_H

#include <cstdint>

#include "../engine/rows.h"

namespace tpcc {

/* Raise with any change of the rows, the keys or the population. */
constexpr uint64_t kFormat = 1;

enum Table : uint8_t {
	kItem = 1,
	kWarehouse,
	kDistrict,
	kCustomer,
	kCustomerName,
	kHistory,
	kOrder,
	kOrderCustomer,
	kNewOrder,
	kOrderLine,
	kStock
};

/* Clause 1.2. */
constexpr uint32_t kItems = 100000;
constexpr uint8_t kDistricts = 10;
constexpr uint16_t kCustomers = 3000; /* of a district */
constexpr uint32_t kOrders = 3000;    /* per district, initially */
constexpr uint32_t kDelivered = 2100; /* the first orders, delivered initially */
constexpr uint8_t kMinLines = 5, kMaxLines = 15;

struct __attribute__((packed)) Address {
	engine::Text<20> street_1, street_2, city;
	engine::Text<2> state;
	engine::Text<9> zip;
};

struct __attribute__((packed)) ItemRow {
	static constexpr const char *kTable = "ITEM";
	uint32_t im_id;
	engine::Text<24> name;
	int32_t price;
	engine::Text<50> data;
};

struct __attribute__((packed)) WarehouseRow {
	static constexpr const char *kTable = "WAREHOUSE";
	engine::Text<10> name;
	Address address;
	uint16_t tax;
	int64_t ytd;
};

struct __attribute__((packed)) DistrictRow {
	static constexpr const char *kTable = "DISTRICT";
	engine::Text<10> name;
	Address address;
	uint16_t tax;
	int64_t ytd;
	uint32_t next_o_id;
};

struct __attribute__((packed)) CustomerRow {
	static constexpr const char *kTable = "CUSTOMER";
	engine::Text<16> first;
	engine::Text<2> middle;
	engine::Text<16> last;
	Address address;
	engine::Text<16> phone;
	int64_t since;
	engine::Text<2> credit; /* GC or BC: good, bad */
	int64_t credit_lim;
	uint16_t discount;
	int64_t balance, ytd_payment;
	uint32_t payment_cnt, delivery_cnt;
	engine::Text<500> data;
};

/* The standard gives no primary key; here it is the writing thread and that thread's row number. */
struct __attribute__((packed)) HistoryRow {
	static constexpr const char *kTable = "HISTORY";
	uint16_t c_w_id;
	uint8_t c_d_id;
	uint16_t c_id;
	int64_t date, amount;
	engine::Text<24> data;
};

struct __attribute__((packed)) OrderRow {
	static constexpr const char *kTable = "ORDER";
	uint16_t c_id;
	int64_t entry_d;
	uint8_t carrier_id, ol_cnt, all_local;
};

struct __attribute__((packed)) OrderLineRow {
	static constexpr const char *kTable = "ORDER-LINE";
	uint32_t i_id;
	uint16_t supply_w_id;
	int64_t delivery_d;
	uint8_t quantity;
	int32_t amount;
	engine::Text<24> dist_info;
};

struct __attribute__((packed)) StockRow {
	static constexpr const char *kTable = "STOCK";
	int16_t quantity;
	engine::Text<24> dist[kDistricts];
	uint32_t ytd, order_cnt, remote_cnt;
	engine::Text<50> data;
};

/* NEW-ORDER and the two indexes have keys only. */
inline rocksdb::Slice no_columns() { return {}; }

inline engine::Key item_key(uint32_t i) { return engine::Key(kItem).u32(i); }
inline engine::Key warehouse_key(uint16_t w) { return engine::Key(kWarehouse).u16(w); }
inline engine::Key district_key(uint16_t w, uint8_t d)
{
	return engine::Key(kDistrict).u16(w).u8(d);
}
inline engine::Key stock_key(uint16_t w, uint32_t i) { return engine::Key(kStock).u16(w).u32(i); }

inline engine::Key customer_key(uint16_t w, uint8_t d, uint16_t c)
{
	return engine::Key(kCustomer).u16(w).u8(d).u16(c);
}

/* Prefix of the keys of all customers of a last name; first name and c_id follow. */
inline engine::Key customer_name_prefix(uint16_t w, uint8_t d, const engine::Text<16> &last)
{
	return engine::Key(kCustomerName).u16(w).u8(d).text(last);
}

inline engine::Key history_key(uint16_t w, uint8_t d, uint16_t writer, uint32_t number)
{
	return engine::Key(kHistory).u16(w).u8(d).u16(writer).u32(number);
}

inline engine::Key order_key(uint16_t w, uint8_t d, uint32_t o)
{
	return engine::Key(kOrder).u16(w).u8(d).u32(o);
}

/* A customer's orders, latest first. */
inline engine::Key order_customer_key(uint16_t w, uint8_t d, uint16_t c, uint32_t o)
{
	return engine::Key(kOrderCustomer).u16(w).u8(d).u16(c).descending_u32(o);
}

inline engine::Key new_order_key(uint16_t w, uint8_t d, uint32_t o)
{
	return engine::Key(kNewOrder).u16(w).u8(d).u32(o);
}

inline engine::Key order_line_key(uint16_t w, uint8_t d, uint32_t o, uint8_t number)
{
	return engine::Key(kOrderLine).u16(w).u8(d).u32(o).u8(number);
}

} // namespace tpcc

#endif
