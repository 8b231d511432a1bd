/* Random values by the definitions of TPC-C and TATP, from the generator of splitmix.h. */
#ifndef UNCONVOY_ENGINE_RANDOM_H
#define UNCONVOY_ENGINE_RANDOM_H

#include <cstdint>

#include "measure.h"
#include "rows.h"

namespace engine {

class Random {
    public:
	/* Equal seed, table and row give equal numbers, in whatever order rows are made. */
	explicit Random(uint64_t seed, uint64_t table = 0, uint64_t row = 0) : state_(seed)
	{
		state_ = random_next(&state_) ^ table;
		state_ = random_next(&state_) ^ row;
	}

	/* Uniform in [low, high], inclusive. */
	uint32_t uniform(uint32_t low, uint32_t high)
	{
		return low + static_cast<uint32_t>(random_below(&state_, uint64_t{high} - low + 1));
	}

	/* TPC-C 2.1.6; TATP's is the same with c = 0. */
	uint32_t nurand(uint32_t a, uint32_t low, uint32_t high, uint32_t c = 0)
	{
		return ((uniform(0, a) | uniform(low, high)) + c) % (high - low + 1) + low;
	}

	bool percent(uint32_t chance) { return uniform(1, 100) <= chance; }

	/* `low` to `high` characters of `alphabet`. */
	template <size_t N> Text<N> text(size_t low, size_t high, std::string_view alphabet)
	{
		Text<N> made{};
		size_t length = uniform(static_cast<uint32_t>(low), static_cast<uint32_t>(high));
		for (size_t i = 0; i < length; i++)
			made.bytes[i] = alphabet[random_below(&state_, alphabet.size())];
		return made;
	}

    private:
	uint64_t state_;
};

constexpr std::string_view kUpperCase = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kAlphanumeric =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

} // namespace engine

#endif
