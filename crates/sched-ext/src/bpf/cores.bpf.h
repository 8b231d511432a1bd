/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cores by their places in the order (6), and what runs on each.
 */
#ifndef UNCONVOY_CORES_H
#define UNCONVOY_CORES_H

/* What runs on a processor. */
#define ON_ANY 0
#define ON_SPECIAL 1
#define ON_GUEST 2
__u8 on[MAX_CPUS];

static __always_inline __u32 bound_of(__u64 packed)
{
	return (__u32)packed;
}

/*
 * An index into an array of MAX_CPUS. The verifier believes a mask; a comparison it forgets where the compiler goes on with a copy of
 * what was compared.
 */
static __always_inline __u32 slot(__u32 cpu)
{
	cpu &= MAX_CPUS - 1;
	asm volatile("" : "+r"(cpu));
	return cpu;
}

static __always_inline __u32 rank(__s32 cpu)
{
	return rank_of[slot(cpu)];
}

static __always_inline __u32 cpu_at(__u32 place)
{
	return cpu_of[slot(place)];
}

static __always_inline bool in_set(__s32 cpu)
{
	return rank(cpu) < bound_of(set);
}

#endif
