/*
 * The population of TPC-C's tables, clause 4.3.3. Each row is a function of the seed, its table and
 * its key, so tables can be written one after the other in key order, and an index comes from the
 * same rows as its table.
 */
#include <algorithm>
#include <numeric>

#include "benchmark.h"

using engine::kAlphanumeric;
using engine::kDigits;
using engine::Loader;
using engine::Random;
using engine::Text;

namespace tpcc {

namespace {

/*
 * All dates of the population, so that equal seeds give equal data: January 2010, a month before
 * the standard's revision.
 */
constexpr int64_t kLoadDate = 1262304000;

uint64_t row_number(uint16_t w, uint8_t d, uint32_t n)
{
	return uint64_t{w} << 40 | uint64_t{d} << 32 | n;
}

Address random_address(Random &random)
{
	Address address;
	address.street_1 = random.text<20>(10, 20, kAlphanumeric);
	address.street_2 = random.text<20>(10, 20, kAlphanumeric);
	address.city = random.text<20>(10, 20, kAlphanumeric);
	address.state = random.text<2>(2, 2, engine::kUpperCase);
	address.zip = random.text<9>(4, 4, kDigits);
	memcpy(address.zip.bytes + 4, "11111", 5);
	return address;
}

/* One in ten contains the word ORIGINAL. */
Text<50> random_data(Random &random)
{
	constexpr std::string_view kOriginal = "ORIGINAL";
	Text<50> data = random.text<50>(26, 50, kAlphanumeric);
	if (random.percent(10)) {
		auto last = static_cast<uint32_t>(data.view().size() - kOriginal.size());
		memcpy(data.bytes + random.uniform(0, last), kOriginal.data(), kOriginal.size());
	}
	return data;
}

ItemRow make_item(uint64_t seed, uint32_t i)
{
	Random random(seed, kItem, i);
	ItemRow row;
	row.im_id = random.uniform(1, 10000);
	row.name = random.text<24>(14, 24, kAlphanumeric);
	row.price = static_cast<int32_t>(random.uniform(100, 10000));
	row.data = random_data(random);
	return row;
}

/* The columns that warehouses and districts share. */
template <class Row> Row make_place(Random &random, int64_t ytd)
{
	Row row{};
	row.name = random.text<10>(6, 10, kAlphanumeric);
	row.address = random_address(random);
	row.tax = static_cast<uint16_t>(random.uniform(0, 2000));
	row.ytd = ytd;
	return row;
}

WarehouseRow make_warehouse(uint64_t seed, uint16_t w)
{
	Random random(seed, kWarehouse, w);
	return make_place<WarehouseRow>(random, 30000000);
}

DistrictRow make_district(uint64_t seed, uint16_t w, uint8_t d)
{
	Random random(seed, kDistrict, row_number(w, d, 0));
	DistrictRow row = make_place<DistrictRow>(random, 3000000);
	row.next_o_id = kOrders + 1;
	return row;
}

struct Name {
	LastName last;
	Text<16> first;
	uint16_t c;
};

Name make_name(uint64_t seed, uint16_t w, uint8_t d, uint16_t c)
{
	Random random(seed, kCustomerName, row_number(w, d, c));
	/*
	 * The first thousand customers have a thousand different names, so a search by name always
	 * finds a customer.
	 */
	uint32_t number = c <= 1000 ? c - 1u : random.nurand(255, 0, 999, loaded_name_constant(seed));
	return {last_name(number), random.text<16>(8, 16, kAlphanumeric), c};
}

CustomerRow make_customer(uint64_t seed, uint16_t w, uint8_t d, uint16_t c)
{
	Name name = make_name(seed, w, d, c);
	Random random(seed, kCustomer, row_number(w, d, c));
	CustomerRow row;
	row.first = name.first;
	row.middle = Text<2>::of("OE");
	row.last = name.last;
	row.address = random_address(random);
	row.phone = random.text<16>(16, 16, kDigits);
	row.since = kLoadDate;
	row.credit = Text<2>::of(random.percent(10) ? "BC" : "GC");
	row.credit_lim = 5000000;
	row.discount = static_cast<uint16_t>(random.uniform(0, 5000));
	row.balance = -1000;
	row.ytd_payment = 1000;
	row.payment_cnt = 1;
	row.delivery_cnt = 0;
	row.data = random.text<500>(300, 500, kAlphanumeric);
	return row;
}

HistoryRow make_history(uint64_t seed, uint16_t w, uint8_t d, uint16_t c)
{
	Random random(seed, kHistory, row_number(w, d, c));
	return {w, d, c, kLoadDate, 1000, random.text<24>(12, 24, kAlphanumeric)};
}

/* A district's initial orders: their customers are a permutation. */
std::vector<OrderRow> make_orders(uint64_t seed, uint16_t w, uint8_t d)
{
	Random random(seed, kOrder, row_number(w, d, 0));
	std::vector<uint16_t> customers(kCustomers);
	std::iota(customers.begin(), customers.end(), uint16_t{1});
	for (uint32_t left = kCustomers; left > 1; left--)
		std::swap(customers[left - 1], customers[random.uniform(0, left - 1)]);

	std::vector<OrderRow> rows;
	for (uint32_t o = 1; o <= kOrders; o++) {
		auto carrier = static_cast<uint8_t>(random.uniform(1, 10));
		rows.push_back({customers[o - 1], kLoadDate, o <= kDelivered ? carrier : uint8_t{0},
				static_cast<uint8_t>(random.uniform(kMinLines, kMaxLines)), 1});
	}
	return rows;
}

void add_order_lines(Loader &loader, uint64_t seed, uint16_t w, uint8_t d, uint32_t o,
		     uint8_t count)
{
	Random random(seed, kOrderLine, row_number(w, d, o));
	for (uint8_t number = 1; number <= count; number++) {
		OrderLineRow row;
		bool delivered = o <= kDelivered;
		row.i_id = random.uniform(1, kItems);
		row.supply_w_id = w;
		row.delivery_d = delivered ? kLoadDate : 0;
		row.quantity = 5;
		row.amount = delivered ? 0 : static_cast<int32_t>(random.uniform(1, 999999));
		row.dist_info = random.text<24>(24, 24, kAlphanumeric);
		loader.add(order_line_key(w, d, o, number), row);
	}
}

StockRow make_stock(uint64_t seed, uint16_t w, uint32_t i)
{
	Random random(seed, kStock, row_number(w, 0, i));
	StockRow row{};
	row.quantity = static_cast<int16_t>(random.uniform(10, 100));
	for (Text<24> &dist : row.dist)
		dist = random.text<24>(24, 24, kAlphanumeric);
	row.data = random_data(random);
	return row;
}

void add_customer_names(Loader &loader, uint64_t seed, uint16_t w, uint8_t d)
{
	std::vector<Name> names;
	for (uint16_t c = 1; c <= kCustomers; c++)
		names.push_back(make_name(seed, w, d, c));
	std::sort(names.begin(), names.end(), [](const Name &a, const Name &b) {
		int order = memcmp(a.last.bytes, b.last.bytes, sizeof a.last);
		order = order ? order : memcmp(a.first.bytes, b.first.bytes, sizeof a.first);
		return order ? order < 0 : a.c < b.c;
	});
	for (const Name &name : names)
		loader.add(customer_name_prefix(w, d, name.last).text(name.first).u16(name.c),
			   no_columns());
}

void add_order_customers(Loader &loader, uint64_t seed, uint16_t w, uint8_t d)
{
	std::vector<OrderRow> orders = make_orders(seed, w, d);
	/* Each customer has one order. */
	std::vector<uint32_t> order_of(kCustomers + 1u);
	for (uint32_t o = 1; o <= kOrders; o++)
		order_of[orders[o - 1].c_id] = o;
	for (uint16_t c = 1; c <= kCustomers; c++)
		loader.add(order_customer_key(w, d, c, order_of[c]), no_columns());
}

} // namespace

LastName last_name(uint32_t number)
{
	static constexpr const char *kSyllables[] = {"BAR", "OUGHT", "ABLE",  "PRI",   "PRES",
						     "ESE", "ANTI",  "CALLY", "ATION", "EING"};
	return LastName::of(std::string(kSyllables[number / 100]) + kSyllables[number / 10 % 10] +
			    kSyllables[number % 10]);
}

uint32_t loaded_name_constant(uint64_t seed) { return Random(seed).uniform(0, 255); }

engine::Dataset::Fields load(const std::string &path, uint64_t warehouses, uint64_t seed)
{
	Loader loader(path);
	auto for_warehouses = [&](auto each) {
		for (uint16_t w = 1; w <= warehouses; w++)
			each(w);
	};
	auto for_districts = [&](auto each) {
		for_warehouses([&](uint16_t w) {
			for (uint8_t d = 1; d <= kDistricts; d++)
				each(w, d);
		});
	};

	/* Fill the tables in the order of their numbers. */
	for (uint32_t i = 1; i <= kItems; i++)
		loader.add(item_key(i), make_item(seed, i));
	for_warehouses([&](uint16_t w) { loader.add(warehouse_key(w), make_warehouse(seed, w)); });
	for_districts(
		[&](uint16_t w, uint8_t d) { loader.add(district_key(w, d), make_district(seed, w, d)); });
	for_districts([&](uint16_t w, uint8_t d) {
		for (uint16_t c = 1; c <= kCustomers; c++)
			loader.add(customer_key(w, d, c), make_customer(seed, w, d, c));
	});
	for_districts([&](uint16_t w, uint8_t d) { add_customer_names(loader, seed, w, d); });
	for_districts([&](uint16_t w, uint8_t d) {
		for (uint16_t c = 1; c <= kCustomers; c++)
			loader.add(history_key(w, d, 0, c), make_history(seed, w, d, c));
	});
	for_districts([&](uint16_t w, uint8_t d) {
		uint32_t o = 0;
		for (const OrderRow &order : make_orders(seed, w, d))
			loader.add(order_key(w, d, ++o), order);
	});
	for_districts([&](uint16_t w, uint8_t d) { add_order_customers(loader, seed, w, d); });
	for_districts([&](uint16_t w, uint8_t d) {
		for (uint32_t o = kDelivered + 1; o <= kOrders; o++)
			loader.add(new_order_key(w, d, o), no_columns());
	});
	for_districts([&](uint16_t w, uint8_t d) {
		uint32_t o = 0;
		for (const OrderRow &order : make_orders(seed, w, d))
			add_order_lines(loader, seed, w, d, ++o, order.ol_cnt);
	});
	for_warehouses([&](uint16_t w) {
		for (uint32_t i = 1; i <= kItems; i++)
			loader.add(stock_key(w, i), make_stock(seed, w, i));
	});
	loader.finish();
	return {{"warehouses", warehouses}, {"seed", seed}};
}

} // namespace tpcc
