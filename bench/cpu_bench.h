// What the programs about the CPU device share: their command line and how they take times.
//
// The time of a pass is the sum of the best time of each of its calls over many passes: the machine may be shared, and
// noise only ever adds.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/cpu/cpu_device.h"

namespace espalier {

inline constexpr int kPasses = 15;

// The device that the first two arguments of a program ask for, [isa] [threads]. Without them, or with an unknown isa,
// the fastest and one thread per core.
class CpuUnderTest {
 public:
  CpuUnderTest(int argc, char** argv)
      : threads_(argc > 2 ? std::atoi(argv[2]) : static_cast<int>(std::thread::hardware_concurrency())),
        device_(make_cpu_device({.threads = threads_, .isa = argc > 1 ? parse_isa(argv[1]) : std::nullopt})) {}

  int threads() const { return threads_; }
  Device& device() const { return *device_; }
  std::string describe() const { return fmt::format("isa {}, {} threads", device_->isa(), threads_); }

 private:
  int threads_;
  std::unique_ptr<Device> device_;
};

template <typename Call>
double seconds_of(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Sums, over the calls of a pass, the best time each of them took in many passes.
class BestOfPasses {
 public:
  template <typename Call>
  void time(const Call& call) {
    if (next_ == best_.size()) best_.push_back(1e30);
    best_[next_] = std::min(best_[next_], seconds_of(call));
    ++next_;
  }
  void end_pass() { next_ = 0; }
  double seconds() const { return std::accumulate(best_.begin(), best_.end(), 0.0); }

 private:
  std::vector<double> best_;
  std::size_t next_ = 0;
};

}  // namespace espalier
