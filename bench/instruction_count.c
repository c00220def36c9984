/*
 * A plugin of qemu-aarch64 that counts the instructions a program executes, by kind, between calls of certain functions.
 * bench/arm_instructions.py builds and uses it; by hand:
 *
 *   gcc -O2 -shared -fPIC -o instruction_count.so bench/instruction_count.c
 *   qemu-aarch64 -d plugin -plugin ./instruction_count.so,out=FILE,mark=FUNCTION,... PROGRAM ...
 *
 * Functions go by their (mangled) names in the program's symbol table, which qemu reads only when it logs, hence -d. Each
 * line of FILE is a JSON object: what was executed since the line before, and which call ended that stretch, "exit" at
 * last. Instructions are counted block by block, at the block's first one. For one thread: counters are not atomic.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* What is used of version 1 of the plugin interface; Debian packages no header for it. */
struct qemu_plugin_tb;
struct qemu_plugin_insn;
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int add_u64, void *counter, uint64_t amount);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*executed)(unsigned, void *), int no_registers,
                                            void *argument);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*exited)(uint64_t, void *), void *argument);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *);
__attribute__((visibility("default"))) int qemu_plugin_version = 1;

enum counter { DOT, MATRIX, VECTOR, LOAD, STORE, PREFETCH, BRANCH, OTHER, SVE, LOADED_BYTES, COUNTERS };
static const char *const names[COUNTERS] = {"dot",      "matrix", "vector", "load", "store",
                                            "prefetch", "branch", "other",  "sve",  "loaded_bytes"};
enum { MAX_MARKS = 8 };

static uint64_t counters[COUNTERS], reported[COUNTERS];
static struct mark {
  char *function;
  uint64_t entry; /* the first of its instructions ever translated, for that is where calls arrive */
} marks[MAX_MARKS];
static int mark_count;
static FILE *out;

/* The field of `width` bits at `low`. */
static uint32_t field(uint32_t instruction, int low, int width) {
  return instruction >> low & ((1u << width) - 1);
}

/* Loads and stores, as the Arm manual divides them by bits 29 to 27 and 24. */
static bool is_structure(uint32_t i) {
  return field(i, 27, 3) == 1 && field(i, 26, 1) == 1;
}
static bool is_literal(uint32_t i) {
  return field(i, 27, 3) == 3 && field(i, 24, 1) == 0;
}
static bool is_pair(uint32_t i) {
  return field(i, 27, 3) == 5;
}
static bool is_single(uint32_t i) {
  return field(i, 27, 3) == 7;
}
static bool is_vector(uint32_t i) {
  return field(i, 26, 1) == 1;
}

static enum counter memory_kind(uint32_t i) {
  const uint32_t size = field(i, 30, 2), opc = field(i, 22, 2);
  if (is_literal(i)) return size == 3 && !is_vector(i) ? PREFETCH : LOAD;
  if (!is_single(i)) return opc & 1 ? LOAD : STORE;
  if (is_vector(i)) return opc & 1 ? LOAD : STORE;
  if (opc == 2 && size == 3) return PREFETCH;
  return opc == 0 ? STORE : LOAD;
}

/* ld1 to ld4: of whole registers (bit 24 clear), or of one element each, perhaps copied to all lanes. */
static uint32_t structure_bytes(uint32_t i) {
  static const uint8_t registers[16] = {[0] = 4, [2] = 4, [4] = 3, [6] = 3, [7] = 1, [8] = 2, [10] = 2};
  const uint32_t opcode = field(i, 13, 3), size = field(i, 10, 2);
  if (field(i, 24, 1) == 0) return registers[field(i, 12, 4)] * (field(i, 30, 1) ? 16u : 8u);
  const uint32_t elements = ((opcode & 1) << 1 | field(i, 21, 1)) + 1;
  if (opcode >= 6) return elements << size;
  return elements << (opcode < 2 ? 0 : opcode < 4 ? 1 : size == 1 ? 3 : 2);
}

static uint32_t loaded_bytes(uint32_t i) {
  const uint32_t size = field(i, 30, 2);
  if (is_structure(i)) return structure_bytes(i);
  if (is_literal(i)) return is_vector(i) ? 4u << size : size == 1 ? 8 : 4;
  if (is_pair(i)) return is_vector(i) ? 8u << size : size == 2 ? 16 : 8;
  if (is_vector(i) && field(i, 23, 1)) return 16;
  return 1u << size;
}

static enum counter vector_kind(uint32_t i) {
  const bool dot = (i & 0x9fe0fc00) == 0x0e809400, dot_by_element = (i & 0x9fc0f400) == 0x0f80e000;
  const bool matrix = (i & 0xdfe0fc00) == 0x4e80a400, matrix_mixed = (i & 0xffe0fc00) == 0x4e80ac00;
  return dot || dot_by_element ? DOT : matrix || matrix_mixed ? MATRIX : VECTOR;
}

/* By bits 28 to 25, the outermost division of the instruction set. */
static enum counter kind(uint32_t i) {
  const uint32_t group = field(i, 25, 4);
  if ((group & 5) == 4) return memory_kind(i);
  if ((group & 7) == 7) return vector_kind(i);
  if ((group & 14) == 10) return BRANCH;
  return group == 2 ? SVE : OTHER;
}

static void report(const char *call) {
  fprintf(out, "{\"until\": \"%s\"", call);
  for (int i = 0; i < COUNTERS; ++i) fprintf(out, ", \"%s\": %llu", names[i], (unsigned long long)(counters[i] - reported[i]));
  fprintf(out, "}\n");
  memcpy(reported, counters, sizeof counters);
}

static void called(unsigned processor, void *mark) {
  (void)processor;
  report(((const struct mark *)mark)->function);
}

static void exited(uint64_t id, void *nothing) {
  (void)id, (void)nothing;
  report("exit");
  fclose(out);
}

static void watch_entry(struct qemu_plugin_insn *instruction) {
  const char *const function = qemu_plugin_insn_symbol(instruction);
  if (function == NULL) return;
  for (struct mark *mark = marks; mark < marks + mark_count; ++mark) {
    if (strcmp(function, mark->function) != 0) continue;
    const uint64_t address = qemu_plugin_insn_vaddr(instruction);
    if (mark->entry == 0) mark->entry = address;
    if (mark->entry == address) qemu_plugin_register_vcpu_insn_exec_cb(instruction, called, 0, mark);
  }
}

static void translated(uint64_t id, struct qemu_plugin_tb *block) {
  (void)id;
  uint64_t amounts[COUNTERS] = {0};
  for (size_t k = 0; k < qemu_plugin_tb_n_insns(block); ++k) {
    struct qemu_plugin_insn *const instruction = qemu_plugin_tb_get_insn(block, k);
    uint32_t bits;
    memcpy(&bits, qemu_plugin_insn_data(instruction), sizeof bits);
    const enum counter counter = kind(bits);
    ++amounts[counter];
    if (counter == LOAD) amounts[LOADED_BYTES] += loaded_bytes(bits);
    watch_entry(instruction);
  }
  for (int i = 0; i < COUNTERS; ++i)
    if (amounts[i] != 0) qemu_plugin_register_vcpu_tb_exec_inline(block, 0, &counters[i], amounts[i]);
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv) {
  (void)info;
  for (int i = 0; i < argc; ++i) {
    if (strncmp(argv[i], "out=", 4) == 0) {
      out = fopen(argv[i] + 4, "w");
    } else if (strncmp(argv[i], "mark=", 5) == 0 && mark_count < MAX_MARKS) {
      marks[mark_count++].function = strdup(argv[i] + 5);
    } else {
      fprintf(stderr, "instruction_count: unknown argument '%s', expected out=FILE or mark=FUNCTION\n", argv[i]);
      return 1;
    }
  }
  if (out == NULL) {
    fprintf(stderr, "instruction_count: no file to write, expected out=FILE\n");
    return 1;
  }
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, exited, NULL);
  return 0;
}
