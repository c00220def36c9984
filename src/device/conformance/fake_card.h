// The recording fake of the Ascend C API (tests/ascend_fake/) as tests control it. It is one library for the whole
// process: an object of this class is only a way to it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ascend_fake/ascend_fake.h"
#include "device/ascend/ascend_device.h"

namespace espalier {

class FakeCard {
 public:
  FakeCard();

  // Small pinned memory, and a library that is the fake.
  static ascend::Options device_options();
  static AscendFakeOptions default_options();

  // Forgets everything and begins with these.
  void reset(const AscendFakeOptions& options) const;
  void set_faults(const AscendFakeOptions& options) const;
  // Resets it to the defaults and opens a device.
  std::unique_ptr<Device> open_anew() const;

  AscendFakeCounters counters() const;
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
