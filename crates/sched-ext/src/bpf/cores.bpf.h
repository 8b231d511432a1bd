/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The cores by their place in the order of cores (6), and the kind of task that runs on each.
 */
#ifndef UNCONVOY_CORES_H
#define UNCONVOY_CORES_H

/* Kind of task that a processor runs. */
#define ON_ANY 0
#define ON_SPECIAL 1
#define ON_BORROWER 2
__u8 on[MAX_CPUS];

static __always_inline __u32 bound_of(__u64 packed)
{
	return (__u32)packed;
}

/*
 * An index into an array of MAX_CPUS entries. A mask proves to the verifier that the index is in
 * range. A comparison would not: the verifier forgets its result when the compiler continues with a
 * copy of the compared value.
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

/*
 * Like slot(), for arrays of MAX_NODES entries. Without the barriers, the compiler would drop the
 * mask wherever it can prove that `n` is in range, even if the verifier cannot.
 */
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

/* The `i`th nearest node to node `n`; index 0 is `n` itself. */
static __always_inline __u32 nearest(__u32 n, __u32 i)
{
	return node[node_slot(n)].near[node_slot(i)];
}

/*
 * First place of node `n` outside the set. If the set covers the node, the result lies after the
 * node's places.
 */
static __always_inline __u32 first_outside(__u32 n)
{
	__u32 bound = bound_of(set);
	__u32 first = node[node_slot(n)].first;

	return first > bound ? first : bound;
}

/*
 * Number of cores on node `n` for ordinary tasks: those outside the set, or all if the set covers
 * every node.
 */
static __always_inline __u32 outside(__u32 n)
{
	__u32 last = node[node_slot(n)].last;
	__u32 first = bound_of(set) < processors ? first_outside(n) : node[node_slot(n)].first;

	return last > first ? last - first : 0;
}

#endif
