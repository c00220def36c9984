/* The control interface of the recording fake of the Ascend C API (libascend_fake.so), for tests.
 *
 * The fake exports the C symbols of AscendCL and aclnn, judges every call by the rules F1 to F60 and computes it with
 * plain loops. It has three kinds of answer: a call returns the code a card would return; a fault of a queued task is
 * returned by the next synchronise; and what is undefined or silent on a card is written to a list of violations that a
 * test must find empty at its end. No figure of speed may be taken from it.
 *
 * Plain C, so that a program which loads the library with dlopen can find all of this with dlsym. Calls of this header
 * may come from any thread, do not count as calls of the API and need no aclInit. Texts live until the next reset.
 *
 * A process that cannot call reset (a command line) sets ASCEND_FAKE="seed=3 profile=85 ...": the names of the fields
 * below; and ASCEND_FAKE_REPORT=FILE, to which violations, live objects and counters are written when it ends. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(ASCEND_FAKE_BUILDS)
#define ASCEND_FAKE_API __attribute__((visibility("default")))
#else
#define ASCEND_FAKE_API
#endif

struct AscendFakeOptions {
  /* 0: sums in one order whatever the number of rows, ties by index, no queue pressure, workspaces of plain sizes.
   * Others: order of sums depends on rows (F59), ties in any order (F31 to F33), odd workspaces (F18), queue pressure
   * (F21), all reproducible: same seed, same calls, same bits. */
  uint64_t seed;
  int32_t profile;       /* 81, 85 or 91: CANN 8.1, 8.5, 9.1 (F4); the library's own name decides the default */
  const char* soc_name;  /* copied; default "Ascend910B4" */
  int32_t device_count;  /* default 1 */
  uint64_t memory_bytes; /* of the device; default 8 GiB; an allocation beyond it answers 207001 */
  int32_t stream_limit;  /* default 1984; the next one answers 207008 */
  int32_t graph_limit;   /* live graphs; capture begin beyond it answers 207008 (F51); default 64 */
  int32_t
      f32_from_16_bit; /* 1 (default): Mm of 16-bit inputs into an f32 output is unrounded; 0: refused, 161002 (F28) */
  /* How far the known bug of masks goes: attention over up to so many rows does not look at them from key 512 on.
   * Default 1; of this type of keys alone (1 f16, 27 bf16), 0 (default): of both. */
  int32_t mask_ignored_rows;
  int32_t mask_ignored_type;

  /* Faults on demand; 0: none. Numbers count from 1 since the reset. */
  uint64_t fail_allocation;     /* the n-th aclrtMalloc or aclrtMallocHost answers 207001 (F11) */
  uint64_t fail_call;           /* the n-th call of the API answers fail_code and does nothing, except where it gives
                                   something back: see below */
  int32_t fail_code;            /* default 507015 (361001 from aclnn calls) */
  int32_t fail_operators;       /* phase 1 of every operator answers this code: kernels that are not found */
  uint64_t fault_at_task;       /* the n-th task that runs faults: the next synchronise answers 507015 (F25) */
  uint64_t lose_device_at_call; /* from the n-th call on the device is lost: runtime calls answer 507015, synchronise
                                   507046, both phases of aclnn 361001; descriptors and the current context need no
                                   device. Free, destroy, reset, finalise and the end of a capture answer 507015 too,
                                   but what they name leaves the ledger: the caller did what it could. Nor is it asked
                                   any more to wait before it frees (F7, F21, F48); the same after a synchronise that
                                   failed by fail_call. */
};

struct AscendFakeCounters {
  uint64_t calls;                   /* of the API, since the reset */
  uint64_t synchronisations;        /* F53: of streams and events, blocking copies, pageable copies */
  uint64_t hidden_synchronisations; /* F53: the part that no synchronise call asked for */
  uint64_t allocations;             /* of device memory */
  uint64_t allocations_after_warm;  /* F54 */
  uint64_t internal_copies;         /* F55: of strided operands */
  uint64_t shapes;                  /* distinct (op, shapes, types) */
  uint64_t shapes_after_warm;       /* F56: those first seen after ascend_fake_warm */
  uint64_t phase_one_calls;         /* F57 */
  uint64_t launches;                /* phase 2 calls, captured ones included */
  uint64_t tasks_run;               /* tasks that ran, those of replays included */
  uint64_t captures;                /* ended well */
  uint64_t replays;                 /* aclmdlRIExecuteAsync */
  uint64_t bytes_to_device;         /* F58 */
  uint64_t bytes_to_host;
  uint64_t bytes_on_device;   /* copied between device addresses */
  uint64_t live_device_bytes; /* allocated now, as rounded up */
  uint64_t peak_device_bytes;
};

/* Marks the library as the fake: "ascend (fake)". */
ASCEND_FAKE_API const char* ascend_fake_name(void);

ASCEND_FAKE_API void ascend_fake_default_options(struct AscendFakeOptions* options);
/* Forgets everything (objects, violations, counters, contexts of all threads) and begins with these options; null: the
 * defaults. The process is then as before its first aclInit. */
ASCEND_FAKE_API void ascend_fake_reset(const struct AscendFakeOptions* options);
/* Changes the fields under "faults on demand" and nothing else; their numbers still count since the reset. */
ASCEND_FAKE_API void ascend_fake_set_faults(const struct AscendFakeOptions* options);

/* What the test must find empty: how many, and each as "F15 at call 123 (aclnnAdd): output overlaps ...". */
ASCEND_FAKE_API size_t ascend_fake_violations(void);
ASCEND_FAKE_API const char* ascend_fake_violation(size_t index);  /* null past the end */
ASCEND_FAKE_API int32_t ascend_fake_violation_rule(size_t index); /* 15 for F15; 0 past the end */
ASCEND_FAKE_API void ascend_fake_clear_violations(void);

/* The ledger: what is alive, each as "stream of call 12 (aclrtCreateStream)". Default contexts do not count. */
ASCEND_FAKE_API size_t ascend_fake_live_objects(void);
ASCEND_FAKE_API const char* ascend_fake_live_object(size_t index); /* null past the end */

ASCEND_FAKE_API void ascend_fake_counters(struct AscendFakeCounters* counters);
/* Warm-up is over: from now on allocations and new shapes are counted (F54, F56). */
ASCEND_FAKE_API void ascend_fake_warm(void);
/* The name of the n-th call since the reset, from 1; null if there was none. */
ASCEND_FAKE_API const char* ascend_fake_call(uint64_t number);

/* Tests' own look at device memory, in whatever state it is: no call, no synchronise, no violation. 0: done, 1: the
 * range is not inside one live allocation. Unwritten bytes read 0xFF 0x7F: NaN, huge integers (F6). */
ASCEND_FAKE_API int32_t ascend_fake_peek(const void* device, void* host, size_t bytes);

#ifdef __cplusplus
}
#endif
