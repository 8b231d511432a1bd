/*
 * The consistency conditions of TPC-C, clause 3.3.2, by one pass over each table.
 *
 *    1  W_YTD is the sum of D_YTD
 *    2  D_NEXT_O_ID - 1 is the largest O_ID, and the largest NO_O_ID if there is one
 *    3  a district's rows of NEW-ORDER have successive numbers
 *    4  the sum of O_OL_CNT is the number of rows of ORDER-LINE
 *    5  O_CARRIER_ID is null if and only if there is a row in NEW-ORDER
 *    6  O_OL_CNT is the number of the order's rows in ORDER-LINE
 *    7  OL_DELIVERY_D is null if and only if O_CARRIER_ID is
 *    8  W_YTD is the sum of H_AMOUNT
 *    9  D_YTD is the sum of H_AMOUNT
 *   10  C_BALANCE is the sum of OL_AMOUNT of what was delivered, minus that of H_AMOUNT
 *   12  C_BALANCE + C_YTD_PAYMENT is the sum of OL_AMOUNT of what was delivered
 *
 * Condition 11 counts orders that only the initial population has. Also checked: tables that no
 * transaction grows keep their number of rows, and both indexes have one entry per row of their
 * table.
 */
#include <cinttypes>
#include <functional>

#include "benchmark.h"

using engine::inconsistent;
using engine::Key;
using engine::KeyReader;
using engine::Rows;

namespace tpcc {

namespace {

struct Money {
	char text[32];

	explicit Money(int64_t cents)
	{
		snprintf(text, sizeof text, "%s%" PRId64 ".%02" PRId64, cents < 0 ? "-" : "",
			 std::abs(cents) / 100, std::abs(cents) % 100);
	}
};

struct OrderId {
	uint16_t w;
	uint8_t d;
	uint32_t o;

	explicit OrderId(KeyReader &key) : w(key.u16()), d(key.u8()), o(key.u32()) {}
	uint64_t number() const { return uint64_t{w} << 40 | uint64_t{d} << 32 | o; }
};

std::string describe(const char *condition, uint16_t w, uint8_t d, const char *what, int64_t one,
		     int64_t other)
{
	char text[256];
	snprintf(text, sizeof text,
		 "consistency condition %s, warehouse %u, district %u: %s: %" PRId64 " and %" PRId64,
		 condition, w, d, what, one, other);
	return text;
}

[[noreturn]] void violation(const char *condition, uint16_t w, uint8_t d, const char *what,
			    int64_t one, int64_t other)
{
	inconsistent("%s", describe(condition, w, d, what, one, other).c_str());
}

[[noreturn]] void money_violation(const char *condition, uint16_t w, uint8_t d, const char *what,
				  int64_t one, int64_t other)
{
	inconsistent("consistency condition %s, warehouse %u, district %u: %s: %s and %s", condition, w,
		     d, what, Money(one).text, Money(other).text);
}

struct District {
	int64_t ytd = 0, paid = 0;
	uint32_t next_o_id = 0;
	std::vector<uint16_t> customer_of; /* by o_id - 1; condition 2 excludes gaps */
	uint64_t new_orders = 0, first_new_order = 0, last_new_order = 0, lines = 0, lines_expected = 0;
};

struct Customer {
	int64_t delivered = 0, paid = 0;
	size_t name = 0; /* a hash */
};

class Checker {
    public:
	Checker(engine::Database &database, uint16_t warehouses)
		: database_(database), warehouses_(warehouses), districts_(size_t{warehouses} * kDistricts),
		  customers_(districts_.size() * kCustomers)
	{
	}

	void check()
	{
		check_fixed();
		read_districts();
		read_history();
		check_orders();
		check_warehouses();
		check_districts();
		if (!orders_violation_.empty())
			inconsistent("%s", orders_violation_.c_str());
		check_customers();
		check_customer_names();
		check_order_customers();
	}

    private:
	District &district(uint16_t w, uint8_t d, const char *table)
	{
		if (w < 1 || w > warehouses_ || d < 1 || d > kDistricts)
			inconsistent("consistency: a row of %s is of district %u of warehouse %u, "
				     "which does not exist",
				     table, d, w);
		return districts_[size_t{w - 1u} * kDistricts + d - 1u];
	}

	Customer &customer(uint16_t w, uint8_t d, uint16_t c, const char *table)
	{
		auto index = static_cast<size_t>(&district(w, d, table) - districts_.data());
		if (c < 1 || c > kCustomers)
			inconsistent("consistency: a row of %s is of customer %u, who does not exist", table,
				     c);
		return customers_[index * kCustomers + c - 1u];
	}

	/* ITEM and STOCK have no gaps in their keys: each row must be the next. */
	void check_fixed()
	{
		auto next_is = [](const char *table, uint16_t w, uint32_t found, uint32_t expected) {
			if (found != expected)
				inconsistent("consistency: %s, warehouse %u: item %u is missing", table, w,
					     expected);
		};
		uint32_t items = 0;
		for (Rows at(database_, Key(kItem)); at.valid(); at.next())
			next_is(ItemRow::kTable, 0, at.key().u32(), ++items);
		next_is(ItemRow::kTable, 0, kItems, items);

		uint64_t rows = 0;
		for (Rows at(database_, Key(kStock)); at.valid(); at.next(), rows++) {
			KeyReader key = at.key();
			auto w = static_cast<uint16_t>(rows / kItems + 1);
			uint32_t i = static_cast<uint32_t>(rows % kItems) + 1;
			next_is(StockRow::kTable, w, key.u16() == w ? key.u32() : 0, i);
		}
		if (rows != uint64_t{kItems} * warehouses_)
			inconsistent("consistency: STOCK has %" PRIu64 " rows instead of %" PRIu64, rows,
				     uint64_t{kItems} * warehouses_);
	}

	void read_districts()
	{
		size_t rows = 0;
		for (Rows at(database_, Key(kDistrict)); at.valid(); at.next(), rows++) {
			KeyReader key = at.key();
			uint16_t w = key.u16();
			uint8_t d = key.u8();
			DistrictRow row = at.row<DistrictRow>();
			District &found = district(w, d, DistrictRow::kTable);
			found.ytd = row.ytd;
			found.next_o_id = row.next_o_id;
		}
		if (rows != districts_.size())
			inconsistent("consistency: DISTRICT has %zu rows instead of %zu", rows,
				     districts_.size());
	}

	void read_history()
	{
		for (Rows at(database_, Key(kHistory)); at.valid(); at.next()) {
			KeyReader key = at.key();
			uint16_t w = key.u16();
			HistoryRow row = at.row<HistoryRow>();
			district(w, key.u8(), HistoryRow::kTable).paid += row.amount;
			customer(row.c_w_id, row.c_d_id, row.c_id, HistoryRow::kTable).paid += row.amount;
		}
	}

	/*
	 * Keeps the first violation of 5, 6 or 7. A violation of 2 to 4, if there is one, says more
	 * about the cause.
	 */
	void keep_violation(const char *condition, const OrderId &id, const char *what, int64_t one,
			    int64_t other)
	{
		if (orders_violation_.empty())
			orders_violation_ = describe(condition, id.w, id.d, what, one, other) + ", order " +
					    std::to_string(id.o);
	}

	/*
	 * Checks 5, 6 and 7, and computes the sums for 2, 3, 4, 10 and 12. The three tables have the
	 * same key order, so one pass merges them.
	 */
	void check_orders()
	{
		Rows lines(database_, Key(kOrderLine)), new_orders(database_, Key(kNewOrder));
		for (Rows at(database_, Key(kOrder)); at.valid(); at.next()) {
			KeyReader key = at.key();
			OrderId id(key);
			OrderRow order = at.row<OrderRow>();
			District &in = district(id.w, id.d, OrderRow::kTable);
			if (id.o != in.customer_of.size() + 1)
				violation("2", id.w, id.d, "O_ID found and O_ID that should be next", id.o,
					  static_cast<int64_t>(in.customer_of.size()) + 1);
			in.customer_of.push_back(order.c_id);
			in.lines_expected += order.ol_cnt;

			bool is_new = take_new_order(new_orders, id, in);
			if (is_new != (order.carrier_id == 0))
				keep_violation("5", id, "rows in NEW-ORDER and O_CARRIER_ID", is_new,
					       order.carrier_id);
			take_lines(lines, id, order, in);
		}
		if (lines.valid() || new_orders.valid())
			orphan(lines.valid() ? lines : new_orders,
			       lines.valid() ? OrderLineRow::kTable : "NEW-ORDER");
	}

	[[noreturn]] static void orphan(const Rows &at, const char *table)
	{
		KeyReader key = at.key();
		OrderId id(key);
		inconsistent("consistency: %s has a row of order %u of district %u of warehouse %u, "
			     "which does not exist",
			     table, id.o, id.d, id.w);
	}

	static bool take_new_order(Rows &at, const OrderId &order, District &in)
	{
		if (!at.valid())
			return false;
		KeyReader key = at.key();
		OrderId id(key);
		if (id.number() < order.number())
			orphan(at, "NEW-ORDER");
		if (id.number() > order.number())
			return false;
		in.first_new_order = in.new_orders++ ? in.first_new_order : id.o;
		in.last_new_order = id.o;
		at.next();
		return true;
	}

	void take_lines(Rows &at, const OrderId &id, const OrderRow &order, District &in)
	{
		unsigned count = 0;
		int64_t sum = 0;
		for (; at.valid(); at.next(), count++) {
			KeyReader key = at.key();
			OrderId of(key);
			if (of.number() < id.number())
				orphan(at, OrderLineRow::kTable);
			if (of.number() > id.number())
				break;
			OrderLineRow line = at.row<OrderLineRow>();
			if ((line.delivery_d == 0) != (order.carrier_id == 0))
				keep_violation("7", id, "OL_DELIVERY_D and O_CARRIER_ID", line.delivery_d,
					       order.carrier_id);
			sum += line.amount;
		}
		in.lines += count;
		if (count != order.ol_cnt)
			keep_violation("6", id, "O_OL_CNT and rows in ORDER-LINE", order.ol_cnt, count);
		if (order.carrier_id)
			customer(id.w, id.d, order.c_id, OrderRow::kTable).delivered += sum;
	}

	void check_districts()
	{
		for (size_t i = 0; i < districts_.size(); i++) {
			const District &in = districts_[i];
			auto w = static_cast<uint16_t>(i / kDistricts + 1);
			auto d = static_cast<uint8_t>(i % kDistricts + 1);
			auto orders = static_cast<int64_t>(in.customer_of.size());
			if (in.next_o_id - int64_t{1} != orders)
				violation("2", w, d, "D_NEXT_O_ID - 1 and the largest O_ID",
					  in.next_o_id - int64_t{1}, orders);
			if (in.new_orders && in.last_new_order != in.customer_of.size())
				violation("2", w, d, "the largest NO_O_ID and O_ID",
					  static_cast<int64_t>(in.last_new_order), orders);
			if (in.new_orders && in.last_new_order - in.first_new_order + 1 != in.new_orders)
				violation("3", w, d, "the span of NO_O_ID and the rows of NEW-ORDER",
					  static_cast<int64_t>(in.last_new_order - in.first_new_order + 1),
					  static_cast<int64_t>(in.new_orders));
			if (in.lines != in.lines_expected)
				violation("4", w, d, "the sum of O_OL_CNT and the rows of ORDER-LINE",
					  static_cast<int64_t>(in.lines_expected), static_cast<int64_t>(in.lines));
			if (in.ytd != in.paid)
				money_violation("9", w, d, "D_YTD and the sum of H_AMOUNT", in.ytd, in.paid);
		}
	}

	void check_warehouses()
	{
		uint16_t rows = 0;
		for (Rows at(database_, Key(kWarehouse)); at.valid(); at.next()) {
			uint16_t w = at.key().u16();
			if (w != ++rows)
				inconsistent("consistency: WAREHOUSE %u is missing", rows);
			int64_t ytd = at.row<WarehouseRow>().ytd, sum = 0, paid = 0;
			for (uint8_t d = 1; d <= kDistricts; d++) {
				sum += district(w, d, WarehouseRow::kTable).ytd;
				paid += district(w, d, WarehouseRow::kTable).paid;
			}
			if (ytd != sum)
				money_violation("1", w, 0, "W_YTD and the sum of D_YTD", ytd, sum);
			if (ytd != paid)
				money_violation("8", w, 0, "W_YTD and the sum of H_AMOUNT", ytd, paid);
		}
		if (rows != warehouses_)
			inconsistent("consistency: WAREHOUSE has %u rows instead of %u", rows, warehouses_);
	}

	template <size_t N, size_t M>
	static size_t hash_name(const engine::Text<N> &last, const engine::Text<M> &first)
	{
		std::string both(last.bytes, N);
		return std::hash<std::string>()(both.append(first.bytes, M));
	}

	void check_customers()
	{
		size_t rows = 0;
		for (Rows at(database_, Key(kCustomer)); at.valid(); at.next(), rows++) {
			KeyReader key = at.key();
			uint16_t w = key.u16();
			uint8_t d = key.u8();
			CustomerRow row = at.row<CustomerRow>();
			Customer &found = customer(w, d, key.u16(), CustomerRow::kTable);
			found.name = hash_name(row.last, row.first);
			if (row.balance != found.delivered - found.paid)
				money_violation("10", w, d, "a C_BALANCE, and OL_AMOUNT delivered minus H_AMOUNT",
						row.balance, found.delivered - found.paid);
			if (row.balance + row.ytd_payment != found.delivered)
				money_violation("12", w, d, "a C_BALANCE + C_YTD_PAYMENT, and OL_AMOUNT delivered",
						row.balance + row.ytd_payment, found.delivered);
		}
		need_rows(CustomerRow::kTable, rows, customers_.size());
	}

	void check_customer_names()
	{
		size_t rows = 0;
		for (Rows at(database_, Key(kCustomerName)); at.valid(); at.next(), rows++) {
			KeyReader key = at.key();
			uint16_t w = key.u16();
			uint8_t d = key.u8();
			auto last = key.text<16>(), first = key.text<16>();
			uint16_t c = key.u16();
			if (customer(w, d, c, "the index on names").name != hash_name(last, first))
				inconsistent(
					"consistency: the index on names has customer %u of district %u of "
					"warehouse %u under another name",
					c, d, w);
		}
		need_rows("the index on names", rows, customers_.size());
	}

	/*
	 * The index is right if it has as many entries as there are orders, and each entry is under
	 * its order's customer.
	 */
	void check_order_customers()
	{
		size_t rows = 0, orders = 0;
		for (const District &in : districts_)
			orders += in.customer_of.size();
		for (Rows at(database_, Key(kOrderCustomer)); at.valid(); at.next(), rows++) {
			KeyReader key = at.key();
			uint16_t w = key.u16();
			uint8_t d = key.u8();
			uint16_t c = key.u16();
			uint32_t o = key.descending_u32();
			const District &in = district(w, d, "the index on orders");
			if (o < 1 || o > in.customer_of.size() || in.customer_of[o - 1] != c)
				inconsistent(
					"consistency: the index on orders has order %u of district %u of "
					"warehouse %u under another customer",
					o, d, w);
		}
		need_rows("the index on orders", rows, orders);
	}

	static void need_rows(const char *table, size_t rows, size_t expected)
	{
		if (rows != expected)
			inconsistent("consistency: %s has %zu rows instead of %zu", table, rows, expected);
	}

	engine::Database &database_;
	uint16_t warehouses_;
	std::vector<District> districts_;
	std::vector<Customer> customers_;
	std::string orders_violation_;
};

} // namespace

void check_tables(engine::Database &database, const engine::Dataset &dataset)
{
	Checker(database, static_cast<uint16_t>(dataset.field("warehouses"))).check();
}

} // namespace tpcc
