// Judges one device: opens it, runs the parts that are tests, measures its speed, and gathers what they found in a
// report. What happens is told in lines as it happens. One thread.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/benchmark.h"
#include "device/cuda/cuda_device.h"
#include "engine/engine.h"
#include "selftest/selftest_parts.h"
#include "selftest/selftest_report.h"

namespace espalier {

struct SelftestOptions {
  EngineOptions engine = {};  // model, threads, places, where CANN is
  std::string device = "auto";
  std::vector<std::string> only = {};         // names of parts; none: all
  std::filesystem::path program = {};         // the file of this program: the tests lie beside it
  std::vector<std::string> environment = {};  // of this process, "NAME=value"
};

// Of all parts, the speed table too.
std::vector<std::string> selftest_part_names();

class Selftest {
 public:
  using Say = std::function<void(std::string_view)>;

  // Opens the device and finds the test programs. Throws InputError and DeviceError. The listener must outlive this.
  Selftest(SelftestOptions options, Listener& listener, Say say);

  // False: it was cancelled.
  bool run(const std::function<bool()>& cancelled);
  const SelftestReport& report() const { return report_; }

 private:
  bool asked_for(std::string_view part) const;
  std::string device_of(const cuda::Devices& gpus) const;
  void find_programs();
  void leave_out();
  bool run_tests(const SelftestPart& part, const std::function<bool()>& cancelled);
  std::string why_no_speed() const;
  bool measure(const std::function<bool()>& cancelled);
  std::optional<BenchResult> measured(const std::function<bool()>& cancelled);

  SelftestOptions options_;
  Listener* listener_;
  Say say_;
  SelftestPlaces places_;
  std::string device_;  // as --device names it
  std::string kind_;    // as the device does
  std::vector<SelftestPart> parts_;
  SelftestReport report_;
};

}  // namespace espalier
