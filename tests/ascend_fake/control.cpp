// The control interface (ascend_fake.h).
#include <algorithm>
#include <mutex>

#include "ascend_fake.h"
#include "fake.h"

using ascend_fake::Fake;
using ascend_fake::fake;

const char* ascend_fake_name(void) {
  return "ascend (fake)";
}

void ascend_fake_default_options(AscendFakeOptions* options) {
  *options = ascend_fake::default_options();
}

void ascend_fake_reset(const AscendFakeOptions* options) {
  Fake& f = fake();
  const std::lock_guard lock(f.mutex);
  f.reset(options == nullptr ? ascend_fake::default_options() : *options);
}

void ascend_fake_set_faults(const AscendFakeOptions* options) {
  Fake& f = fake();
  const std::lock_guard lock(f.mutex);
  f.options.fail_allocation = options->fail_allocation;
  f.options.fail_call = options->fail_call;
  f.options.fail_code = options->fail_code;
  f.options.fail_operators = options->fail_operators;
  f.options.fault_at_task = options->fault_at_task;
  f.options.lose_device_at_call = options->lose_device_at_call;
}

size_t ascend_fake_violations(void) {
  const std::lock_guard lock(fake().mutex);
  return fake().ledger.violations().size();
}

const char* ascend_fake_violation(size_t index) {
  const std::lock_guard lock(fake().mutex);
  const auto& all = fake().ledger.violations();
  return index < all.size() ? all[index].text.c_str() : nullptr;
}

int32_t ascend_fake_violation_rule(size_t index) {
  const std::lock_guard lock(fake().mutex);
  const auto& all = fake().ledger.violations();
  return index < all.size() ? all[index].rule : 0;
}

void ascend_fake_clear_violations(void) {
  const std::lock_guard lock(fake().mutex);
  fake().ledger.clear_violations();
}

size_t ascend_fake_live_objects(void) {
  const std::lock_guard lock(fake().mutex);
  fake().listed = fake().live_objects(-1);
  return fake().listed.size();
}

const char* ascend_fake_live_object(size_t index) {
  const std::lock_guard lock(fake().mutex);
  return index < fake().listed.size() ? fake().listed[index].c_str() : nullptr;
}

void ascend_fake_counters(AscendFakeCounters* counters) {
  const std::lock_guard lock(fake().mutex);
  *counters = fake().counters;
  counters->shapes = fake().shapes.size();
  counters->live_device_bytes = fake().memory.live_bytes();
  counters->peak_device_bytes = fake().memory.peak_bytes();
}

void ascend_fake_warm(void) {
  const std::lock_guard lock(fake().mutex);
  fake().warm = true;
}

const char* ascend_fake_call(uint64_t number) {
  const std::lock_guard lock(fake().mutex);
  return fake().ledger.call(number);
}

int32_t ascend_fake_peek(const void* device, void* host, size_t bytes) {
  const std::lock_guard lock(fake().mutex);
  const uint64_t address = reinterpret_cast<uint64_t>(device);
  ascend_fake::Allocation* home = fake().memory.containing({address, address + bytes});
  if (home == nullptr) return 1;
  std::copy_n(home->at(address), bytes, static_cast<uint8_t*>(host));
  return 0;
}
