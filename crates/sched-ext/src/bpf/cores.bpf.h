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

/* The same as slot() for arrays of MAX_NODES. What the compiler knows of `n` it would leave the mask out for, and the verifier may not know. */
static __always_inline __u32 node_slot(__u32 n)
{
	asm volatile("" : "+r"(n));
	n &= MAX_NODES - 1;
	asm volatile("" : "+r"(n));
	return n;
}

static __always_inline __u32 node_on(__s32 cpu)
{
	return nodes > 1 ? node_of[slot(cpu)] : 0;
}

/* The node that is the `i`th from node `n`, itself the one before the first. */
static __always_inline __u32 nearest(__u32 n, __u32 i)
{
	return node[node_slot(n)].near[node_slot(i)];
}

/* The first place of node `n` that is not in the set; not one of the node's if all are. */
static __always_inline __u32 first_outside(__u32 n)
{
	__u32 bound = bound_of(set);
	__u32 first = node[node_slot(n)].first;

	return first > bound ? first : bound;
}

/* Cores of node `n` for ordinary tasks: those outside of the set, or where there is no such core on any node, all. */
static __always_inline __u32 outside(__u32 n)
{
	__u32 last = node[node_slot(n)].last;
	__u32 first = bound_of(set) < processors ? first_outside(n) : node[node_slot(n)].first;

	return last > first ? last - first : 0;
}

#endif
