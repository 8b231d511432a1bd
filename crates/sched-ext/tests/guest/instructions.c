/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A QEMU plug-in (interface version 4) that counts the guest's instructions on all processors.
 * Unlike the guest's clock, the count excludes time when all processors idle. Counting runs between
 * two instructions without effect, `nopl BEGIN(%rax)` and `nopl END(%rax)`, which load.c executes.
 * Each pair appends its count as a line to the file in the argument `to`.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* From qemu-plugin.h, which need not be installed. */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t,
					   void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned int, void *),
					  int, void *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *,
					    void (*)(unsigned int, void *), int, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *, size_t);
enum { WITHOUT_REGISTERS = 0 };

int qemu_plugin_version = 4;

static const unsigned char begin[] = { 0x0f, 0x1f, 0x80, 'v', 'n', 'c', 'b' };
static const unsigned char end[] = { 0x0f, 0x1f, 0x80, 'v', 'n', 'c', 'e' };

static uint64_t executed, at_begin;
static FILE *counts;

/*
 * Counts all instructions of a block, even if a fault ends it early. It needs no lock, because one
 * thread executes all processors (thread=single).
 */
static void execute(unsigned int processor, void *count)
{
	(void)processor;
	executed += (uintptr_t)count;
}

static void has_begun(unsigned int processor, void *unused)
{
	(void)processor, (void)unused;
	at_begin = executed;
}

static void has_ended(unsigned int processor, void *unused)
{
	(void)processor, (void)unused;
	fprintf(counts, "%llu\n", (unsigned long long)(executed - at_begin));
	fflush(counts);
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	size_t count = qemu_plugin_tb_n_insns(block);

	(void)id;
	qemu_plugin_register_vcpu_tb_exec_cb(block, execute, WITHOUT_REGISTERS, (void *)count);
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
		unsigned char bytes[sizeof begin];

		if (qemu_plugin_insn_data(instruction, bytes, sizeof bytes) != sizeof bytes)
			continue;
		if (!memcmp(bytes, begin, sizeof begin))
			qemu_plugin_register_vcpu_insn_exec_cb(instruction, has_begun,
								WITHOUT_REGISTERS, NULL);
		if (!memcmp(bytes, end, sizeof end))
			qemu_plugin_register_vcpu_insn_exec_cb(instruction, has_ended,
								WITHOUT_REGISTERS, NULL);
	}
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *information, int count, char **arguments)
{
	(void)information;
	if (count != 1 || strncmp(arguments[0], "to=", 3) ||
	    !(counts = fopen(arguments[0] + 3, "w"))) {
		fprintf(stderr, "instructions: expected the argument to=FILE\n");
		return 1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
	return 0;
}
