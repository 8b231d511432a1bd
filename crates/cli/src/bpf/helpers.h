/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Numbers from <linux/bpf.h>, whose architecture-dependent half a cross-compiler may not find, and
 * the notation for maps.
 */

#ifndef UNCONVOY_HELPERS_H
#define UNCONVOY_HELPERS_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef long long s64;
typedef unsigned long long u64;

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_MAP_TYPE_TASK_STORAGE 29
#define BPF_NOEXIST 1
#define BPF_F_NO_PREALLOC (1U << 0)
#define BPF_F_MMAPABLE (1U << 10)
#define BPF_LOCAL_STORAGE_GET_F_CREATE (1ULL << 0)
#define BPF_RB_NO_WAKEUP (1ULL << 0)

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static __inline __attribute__((always_inline))
/* Encode a map's definition in its type (BTF). */
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) type *name
/* A structure of the kernel, to whose fields the loader relocates accesses. */
#define RELOCATED __attribute__((preserve_access_index))

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunused-variable"
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
					 u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_get_stack)(void *context, void *to, u32 size, u64 flags) = (void *)67;
static long (*const bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static void *(*const bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *record, u64 flags) = (void *)132;
static void *(*const bpf_task_storage_get)(void *map, void *task, void *value,
					   u64 flags) = (void *)156;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
static long (*const bpf_task_pt_regs)(struct task_struct *task) = (void *)175;
#pragma clang diagnostic pop

#endif
