/*
 * The layout of rows in the key-value store.
 *
 * A key is the table's number and the primary key's columns, of fixed width and big-endian, so
 * RocksDB's bytewise order is the order of the columns, and a range of rows is a range of keys. A
 * value is a packed struct in native byte order: files do not move between machines. Every read
 * checks its size.
 */
#ifndef UNCONVOY_ENGINE_ROWS_H
#define UNCONVOY_ENGINE_ROWS_H

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include <rocksdb/slice.h>

#include "scratch.h"

namespace engine {

/* At most N characters, padded with zero bytes. Unaligned, so that packed rows can contain it. */
template <size_t N> struct Text {
	char bytes[N];

	static Text of(std::string_view text)
	{
		Text made{};
		memcpy(made.bytes, text.data(), std::min(text.size(), N));
		return made;
	}

	std::string_view view() const { return {bytes, strnlen(bytes, N)}; }
	bool operator==(const Text &other) const { return !memcmp(bytes, other.bytes, N); }
};

class Key {
    public:
	explicit Key(uint8_t table) { u8(table); }

	Key &u8(uint8_t value) { return number(value, 1); }
	Key &u16(uint16_t value) { return number(value, 2); }
	Key &u32(uint32_t value) { return number(value, 4); }
	/* Orders the largest number first. */
	Key &descending_u32(uint32_t value) { return u32(~value); }
	template <size_t N> Key &text(const Text<N> &value)
	{
		memcpy(bytes_.data() + size_, value.bytes, N);
		size_ += N;
		return *this;
	}

	operator rocksdb::Slice() const { return {bytes_.data(), size_}; }

    private:
	Key &number(uint32_t value, size_t width)
	{
		for (size_t i = width; i-- > 0; value >>= 8)
			bytes_[size_ + i] = static_cast<char>(value & 0xff);
		size_ += width;
		return *this;
	}

	/* The longest key is TPC-C's customer by name: 1 + 2 + 1 + 16 + 16 + 2 bytes. */
	std::array<char, 40> bytes_;
	size_t size_ = 0;
};

/* Reads a key's columns in the order in which Key wrote them. */
class KeyReader {
    public:
	explicit KeyReader(const rocksdb::Slice &key) : rest_(key) {}

	uint8_t u8() { return static_cast<uint8_t>(number(1)); }
	uint16_t u16() { return static_cast<uint16_t>(number(2)); }
	uint32_t u32() { return number(4); }
	uint32_t descending_u32() { return ~u32(); }
	template <size_t N> Text<N> text()
	{
		Text<N> value;
		need(N);
		memcpy(value.bytes, rest_.data(), N);
		rest_.remove_prefix(N);
		return value;
	}

	/* Checks that the whole key was read. */
	void end() const
	{
		if (!rest_.empty())
			inconsistent("a key is %zu bytes too long", rest_.size());
	}

    private:
	void need(size_t width) const
	{
		if (rest_.size() < width)
			inconsistent("a key is %zu bytes too short", width - rest_.size());
	}

	uint32_t number(size_t width)
	{
		uint32_t value = 0;
		need(width);
		for (size_t i = 0; i < width; i++)
			value = value << 8 | static_cast<uint8_t>(rest_[i]);
		rest_.remove_prefix(width);
		return value;
	}

	rocksdb::Slice rest_;
};

/* A row's struct names its table for messages: `static constexpr const char *kTable`. */
template <class Row> rocksdb::Slice encode(const Row &row)
{
	static_assert(std::is_trivially_copyable<Row>::value && alignof(Row) == 1,
		      "rows are packed structs");
	return {reinterpret_cast<const char *>(&row), sizeof row};
}

template <class Row> Row decode(const rocksdb::Slice &value)
{
	Row row;
	if (value.size() != sizeof row)
		inconsistent("a row of %s has %zu bytes instead of %zu", Row::kTable, value.size(),
			     sizeof row);
	memcpy(&row, value.data(), sizeof row);
	return row;
}

} // namespace engine

#endif
