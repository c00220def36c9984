// What a selftest has found, as one JSON object and as lines for a terminal; selftest_page.h has it as a page. It has
// what somebody else needs to judge it: device, driver, build, machine; no path and no name of the host. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_report.h"
#include "device/cuda/cuda_device.h"
#include "selftest/selftest_parts.h"

namespace espalier {

inline constexpr int kSelftestSchema = 1;

struct SelftestSpeed {
  std::optional<BenchResult> result = {};
  std::string left_out = {};  // why nothing was measured, where nothing had to be
  std::string problem = {};   // what went wrong; empty: nothing
};

struct SelftestReport {
  std::string date = {};   // ISO 8601
  std::string title = {};  // of the device: "cuda:0, NVIDIA H200"
  // JSON objects: device_facts(), build_facts(), machine_json().
  std::string device = "null", build = "null", machine = "null";
  std::vector<PartResult> parts = {};
  std::vector<std::string> left_out = {};  // parts that nobody asked for
  SelftestSpeed speed = {};

  bool held() const;
};

// Of a device that --device calls `name`.
nlohmann::ordered_json device_facts(const std::string& name, const Device& device, const cuda::Devices& gpus);
// "cuda:0, NVIDIA H200"; the name alone where there is no more to say.
std::string device_title(const nlohmann::ordered_json& facts);
nlohmann::ordered_json build_facts();

nlohmann::ordered_json selftest_json(const SelftestReport& report);

// "60 answers equal, 2 part at near-ties (margins up to 0.0310)"; empty where none were compared.
std::string answers_text(const TestResults& tests);
// One line of a part, and below it the tests that failed.
std::string part_text(const PartResult& part);
// "everything held on ...", or how many parts did not.
std::string verdict_text(const SelftestReport& report);

}  // namespace espalier
