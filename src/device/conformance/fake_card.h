// The recording fake of the Ascend C API (tests/ascend_fake/) as tests control it. It is one library for the whole
// process, or one for each version of CANN: an object of this class is only a way to it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ascend_fake/ascend_fake.h"
#include "device/ascend/ascend_device.h"

namespace espalier {

class FakeCard {
 public:
  // The newest version; the others are called after theirs: "ascend_fake_8_1".
  explicit FakeCard(const std::string& name = "ascend_fake");

  // Little memory, and a library that is the fake.
  static ascend::Options device_options(const std::string& name = "ascend_fake");
  static AscendFakeOptions default_options(const std::string& name = "ascend_fake");
  // A folder that looks like that of CANN.
  static std::string home();

  // Forgets everything and begins with these.
  void reset(const AscendFakeOptions& options) const;
  void set_faults(const AscendFakeOptions& options) const;
  // Resets it to the defaults, with this order of sums and ties, and opens a device.
  std::unique_ptr<Device> open_anew(std::uint64_t seed = 0) const;

  AscendFakeCounters counters() const;
  // Warm-up is over: from here on allocations and new shapes are counted.
  void warm() const;
  std::string call(std::uint64_t number) const;  // its name, of the n-th since the reset; empty: there was none
  // What is at an address of the device, in whatever state it is.
  void peek(const void* address, std::span<std::byte> to) const;
  std::vector<std::string> violations() const;
  std::vector<std::string> live_objects() const;
  // No rule was broken and everything was given back; fails the running test.
  void expect_nothing_left() const;

 private:
  template <typename Function>
  Function* control(const char* name) const;
  void* library_;
};

}  // namespace espalier
