/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "helpers.h"

#define BUCKETS 256

/* The same buckets as crates/profile/src/histogram.rs. */
INLINE u32 bucket(u64 ns)
{
	u32 octave = 0;
	u64 rest = ns;

	if (ns < 64)
		return 0;
	for (u32 bits = 32; bits; bits >>= 1) {
		if (rest >> bits) {
			octave += bits;
			rest >>= bits;
		}
	}
	u32 found = ((octave - 6) << 3) + ((ns >> (octave - 3)) & 7);
	return found < BUCKETS ? found : BUCKETS - 1;
}
