/*
 * TPC-C's five transactions, clauses 2.4 to 2.8.
 *
 * A transaction locks the rows that it changes when it reads them, and reads all other rows as last
 * committed. This satisfies the standard's isolation levels (clause 3.4.1), because rows read
 * without a lock either never change (tax, discount, price, names) or come from one snapshot
 * (Order-Status, Stock-Level). The stock of an order's lines is locked in the order in which the
 * lines were drawn, so two New-Orders can deadlock. One of them is then rolled back and repeated.
 */
#include <ctime>
#include <set>

#include "benchmark.h"

using engine::Outcome;
using engine::Session;
using rocksdb::Slice;

namespace tpcc {

const Terminal::TypeInfo Terminal::kTypeInfo[kTypeCount] = {
	{"new_order", 45, &Terminal::new_order},	{"payment", 43, &Terminal::payment},
	{"order_status", 4, &Terminal::order_status},	{"delivery", 4, &Terminal::delivery},
	{"stock_level", 4, &Terminal::stock_level},
};

Company::Company(uint64_t warehouse_count, uint64_t load_seed, uint64_t run_seed)
	: warehouses(static_cast<uint16_t>(warehouse_count)), delivered(warehouse_count * kDistricts)
{
	engine::Random random(run_seed, UINT64_MAX);
	uint32_t loaded = loaded_name_constant(load_seed), distance;
	/* Clause 2.1.6.1. */
	do {
		name_constant = random.uniform(0, 255);
		distance = name_constant > loaded ? name_constant - loaded : loaded - name_constant;
	} while (distance < 65 || distance > 119 || distance == 96 || distance == 112);
	customer_constant = random.uniform(0, 1023);
	item_constant = random.uniform(0, 8191);
}

/* Spreads home warehouses, then districts, over the threads. */
Terminal::Terminal(engine::Database &database, const engine::Commits &commits, Company &company,
		   uint64_t seed, uint32_t number)
	: session_(database, commits), random_(seed, number), company_(company),
	  home_(static_cast<uint16_t>(number % company.warehouses + 1)),
	  writer_(static_cast<uint16_t>(number + 1)),
	  district_(static_cast<uint8_t>(number / company.warehouses % kDistricts + 1))
{
}

/* Without Delivery, the other types keep their shares relative to each other. */
unsigned Terminal::choose()
{
	for (;;) {
		unsigned type = engine::choose_by_share(random_, kTypeInfo);
		if (type != kDelivery || company_.delivers)
			return type;
	}
}

uint16_t Terminal::random_customer()
{
	return static_cast<uint16_t>(random_.nurand(1023, 1, kCustomers, company_.customer_constant));
}

/* Returns the home warehouse if there is no other. */
uint16_t Terminal::random_other_warehouse()
{
	if (company_.warehouses == 1)
		return home_;
	auto drawn = static_cast<uint16_t>(random_.uniform(1, company_.warehouses - 1u));
	return drawn < home_ ? drawn : static_cast<uint16_t>(drawn + 1);
}

Terminal::Buyer Terminal::random_buyer(uint16_t w, uint8_t d)
{
	if (random_.percent(60))
		return {w, d, true, last_name(random_.nurand(255, 0, 999, company_.name_constant)), 0};
	return {w, d, false, {}, random_customer()};
}

/*
 * Clause 2.5.2.2: the middle one of all customers with that last name, in the order of first names.
 */
uint16_t Terminal::find(Session &session, const Buyer &buyer)
{
	if (!buyer.by_name)
		return buyer.c;
	std::vector<uint16_t> found;
	engine::Key from = customer_name_prefix(buyer.w, buyer.d, buyer.last), to = from;
	session.scan(from, to.u8(0xff), [&](const Slice &key, const Slice &) {
		found.push_back(engine::KeyReader(Slice(key.data() + key.size() - 2, 2)).u16());
		return true;
	});
	if (found.empty())
		engine::inconsistent("no customer of district %u of warehouse %u is called %.*s", buyer.d,
				     buyer.w, static_cast<int>(buyer.last.view().size()), buyer.last.bytes);
	return found[(found.size() + 1) / 2 - 1];
}

Outcome Terminal::new_order()
{
	struct Line {
		uint32_t i;
		uint16_t supply_w;
		uint8_t quantity;
	} lines[kMaxLines];
	uint8_t d = random_district();
	uint16_t c = random_customer();
	auto count = static_cast<uint8_t>(random_.uniform(kMinLines, kMaxLines));
	bool all_local = true;
	for (uint8_t n = 0; n < count; n++) {
		lines[n].i = random_.nurand(8191, 1, kItems, company_.item_constant);
		lines[n].supply_w = random_.percent(1) ? random_other_warehouse() : home_;
		lines[n].quantity = static_cast<uint8_t>(random_.uniform(1, 10));
		all_local &= lines[n].supply_w == home_;
	}
	/* Clause 2.4.1.4: one in a hundred orders ends with an unknown item. */
	if (random_.percent(1))
		lines[count - 1].i = kItems + 1;
	int64_t date = time(nullptr);

	return session_.transact([&](Session &session) {
		WarehouseRow warehouse = session.need<WarehouseRow>(warehouse_key(home_));
		DistrictRow district = session.need_lock<DistrictRow>(district_key(home_, d));
		CustomerRow customer = session.need<CustomerRow>(customer_key(home_, d, c));
		uint32_t o = district.next_o_id;
		district.next_o_id = o + 1;
		session.put(district_key(home_, d), district);
		session.put(order_key(home_, d, o), OrderRow{c, date, 0, count, all_local});
		session.put(order_customer_key(home_, d, c, o), no_columns());
		session.put(new_order_key(home_, d, o), no_columns());

		int64_t total = 0, brands = 0;
		for (uint8_t n = 0; n < count; n++) {
			const Line &line = lines[n];
			std::optional<ItemRow> item = session.get<ItemRow>(item_key(line.i));
			if (!item)
				return false;
			engine::Key key = stock_key(line.supply_w, line.i);
			StockRow stock = session.need_lock<StockRow>(key);
			int left = stock.quantity - line.quantity;
			stock.quantity = static_cast<int16_t>(left >= 10 ? left : left + 91);
			stock.ytd += line.quantity;
			stock.order_cnt++;
			stock.remote_cnt += line.supply_w != home_;
			session.put(key, stock);

			int32_t amount = line.quantity * item->price;
			session.put(
				order_line_key(home_, d, o, static_cast<uint8_t>(n + 1)),
				OrderLineRow{line.i, line.supply_w, 0, line.quantity, amount, stock.dist[d - 1]});
			total += amount;
			brands += item->data.view().find("ORIGINAL") != std::string_view::npos &&
				  stock.data.view().find("ORIGINAL") != std::string_view::npos;
		}
		shown_ = total * (10000 - customer.discount) / 10000 *
				 (10000 + warehouse.tax + district.tax) / 10000 +
			 brands;
		return true;
	});
}

Outcome Terminal::payment()
{
	uint8_t d = random_district();
	/* Clause 2.5.1.2: 85 % pay at their own warehouse. */
	bool local = random_.percent(85);
	Buyer buyer =
		random_buyer(local ? home_ : random_other_warehouse(), local ? d : random_district());
	int64_t amount = random_.uniform(100, 500000), date = time(nullptr);
	uint32_t number = ++payments_;

	return session_.transact([&](Session &session) {
		WarehouseRow warehouse = session.need_lock<WarehouseRow>(warehouse_key(home_));
		warehouse.ytd += amount;
		session.put(warehouse_key(home_), warehouse);
		DistrictRow district = session.need_lock<DistrictRow>(district_key(home_, d));
		district.ytd += amount;
		session.put(district_key(home_, d), district);

		uint16_t c = find(session, buyer);
		engine::Key key = customer_key(buyer.w, buyer.d, c);
		CustomerRow customer = session.need_lock<CustomerRow>(key);
		customer.balance -= amount;
		customer.ytd_payment += amount;
		customer.payment_cnt++;
		if (customer.credit == engine::Text<2>::of("BC")) {
			char note[64];
			int length = snprintf(note, sizeof note, "%u %u %u %u %u %.2f|", c, buyer.d, buyer.w, d,
					      home_, static_cast<double>(amount) / 100);
			customer.data = engine::Text<500>::of(std::string(note, static_cast<size_t>(length)) +
							      std::string(customer.data.view()));
		}
		session.put(key, customer);

		std::string where =
			std::string(warehouse.name.view()) + "    " + std::string(district.name.view());
		session.put(history_key(home_, d, writer_, number),
			    HistoryRow{buyer.w, buyer.d, c, date, amount, engine::Text<24>::of(where)});
		shown_ = customer.balance;
		return true;
	});
}

Outcome Terminal::order_status()
{
	Buyer buyer = random_buyer(home_, random_district());
	return session_.transact([&](Session &session) {
		session.freeze();
		uint16_t c = find(session, buyer);
		int64_t sum = session.need<CustomerRow>(customer_key(buyer.w, buyer.d, c)).balance;
		uint32_t o = 0;
		session.scan(order_customer_key(buyer.w, buyer.d, c, UINT32_MAX),
			     order_customer_key(buyer.w, buyer.d, c, 0), [&](const Slice &key, const Slice &) {
				     o = engine::KeyReader(Slice(key.data() + key.size() - 4, 4)).descending_u32();
				     return false;
			     });
		OrderRow order = session.need<OrderRow>(order_key(buyer.w, buyer.d, o));
		unsigned lines = 0;
		session.scan(order_line_key(buyer.w, buyer.d, o, 1),
			     order_line_key(buyer.w, buyer.d, o + 1, 1),
			     [&](const Slice &, const Slice &value) {
				     sum += engine::decode<OrderLineRow>(value).amount;
				     lines++;
				     return true;
			     });
		if (order.c_id != c || lines != order.ol_cnt)
			engine::inconsistent("Order-Status: order %u of district %u of warehouse %u "
					     "is customer %u's with %u lines; "
					     "found customer %u and %u lines",
					     o, buyer.d, buyer.w, order.c_id, order.ol_cnt, c, lines);
		shown_ = sum;
		return true;
	});
}

uint32_t Terminal::take_oldest_new_order(Session &session, uint8_t d)
{
	for (;;) {
		uint32_t o = 0;
		session.scan(new_order_key(home_, d,
					   company_.delivered_in(home_, d).load(std::memory_order_relaxed)),
			     new_order_key(home_, d, UINT32_MAX), [&](const Slice &key, const Slice &) {
				     o = engine::KeyReader(Slice(key.data() + key.size() - 4, 4)).u32();
				     return false;
			     });
		/* Another delivery may have taken the order before this one locked it. */
		if (o == 0 || session.lock_key(new_order_key(home_, d, o)))
			return o;
	}
}

/* All ten districts in one transaction, the largest choice that clause 2.7.2.1 allows. */
Outcome Terminal::delivery()
{
	auto carrier = static_cast<uint8_t>(random_.uniform(1, 10));
	int64_t date = time(nullptr);
	uint32_t taken[kDistricts + 1];

	Outcome outcome = session_.transact([&](Session &session) {
		for (uint8_t d = 1; d <= kDistricts; d++) {
			uint32_t o = taken[d] = take_oldest_new_order(session, d);
			if (o == 0)
				continue;
			session.erase(new_order_key(home_, d, o));
			OrderRow order = session.need_lock<OrderRow>(order_key(home_, d, o));
			order.carrier_id = carrier;
			session.put(order_key(home_, d, o), order);

			int64_t sum = 0;
			std::vector<OrderLineRow> lines;
			session.scan(order_line_key(home_, d, o, 1), order_line_key(home_, d, o + 1, 1),
				     [&](const Slice &, const Slice &value) {
					     lines.push_back(engine::decode<OrderLineRow>(value));
					     return true;
				     });
			for (size_t n = 0; n < lines.size(); n++) {
				sum += lines[n].amount;
				lines[n].delivery_d = date;
				session.put(order_line_key(home_, d, o, static_cast<uint8_t>(n + 1)), lines[n]);
			}

			engine::Key key = customer_key(home_, d, order.c_id);
			CustomerRow customer = session.need_lock<CustomerRow>(key);
			customer.balance += sum;
			customer.delivery_cnt++;
			session.put(key, customer);
		}
		return true;
	});
	for (uint8_t d = 1; d <= kDistricts; d++) {
		if (taken[d] == 0) {
			company_.skipped_deliveries.fetch_add(1, std::memory_order_relaxed);
			continue;
		}
		/* Two threads may store in either order; the lower value is also valid. */
		company_.delivered_in(home_, d).store(taken[d] + 1, std::memory_order_relaxed);
	}
	return outcome;
}

Outcome Terminal::stock_level()
{
	auto threshold = static_cast<int>(random_.uniform(10, 20));
	return session_.transact([&](Session &session) {
		session.freeze();
		uint32_t next = session.need<DistrictRow>(district_key(home_, district_)).next_o_id;
		std::set<uint32_t> items;
		session.scan(order_line_key(home_, district_, next - 20, 1),
			     order_line_key(home_, district_, next, 1), [&](const Slice &, const Slice &value) {
				     items.insert(engine::decode<OrderLineRow>(value).i_id);
				     return true;
			     });
		int64_t low = 0;
		for (uint32_t i : items)
			low += session.need<StockRow>(stock_key(home_, i)).quantity < threshold;
		shown_ = low;
		return true;
	});
}

} // namespace tpcc
