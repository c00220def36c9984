#include "device/conformance/conformance.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "base/testing/judged_device.h"
#include "base/testing/sanitized.h"
#include "device/ascend/testing/beside.h"
#include "device/checked/checked_device.h"
#include "device/conformance/fake_card.h"
#include "device/conformance/faulty_device.h"
#include "device/conformance/recording_device.h"
#include "device/conformance/remote_device.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/emulated/emulated_cuda_device.h"
#include "device/named_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr CheckedOptions kAscend{.profile = CheckedProfile::ascend};

// --gtest_random_seed=N, so that a script can try many.
std::uint64_t gtest_seed() {
  return static_cast<std::uint64_t>(GTEST_FLAG_GET(random_seed));
}

DeviceUnderTest ascend_fake(const std::string& name, std::uint64_t (*seed)()) {
  return {.name = name,
          .make = [seed] { return FakeCard().open_anew(seed()); },
          .any_alignment = false,
          .exact = false,
          .finish = [] { FakeCard().expect_nothing_left(); }};
}

bool has_round_ops(std::string_view name) {
  const bool without = name == "checked_ascend" || name.starts_with("ascend");
  return !without;
}

std::vector<DeviceUnderTest> all_devices() {
  std::vector<DeviceUnderTest> devices = {
      {"reference_1", [] { return make_reference_device(1); }},
      {"reference_2", [] { return make_reference_device(2); }},
      {"reference_3", [] { return make_reference_device(3); }},
      {"checked", [] { return make_checked_device(make_reference_device()); }},
      {"checked_remote", [] { return make_checked_device(make_remote_device(make_reference_device())); }},
      {"faulty", [] { return std::make_unique<FaultyDevice>(make_reference_device()); }},
      {"recording", [] { return make_recording_device(make_reference_device(), Replay::blind); }},
      {.name = "checked_ascend",
       .make = [] { return make_checked_device(make_reference_device(), kAscend); },
       .any_alignment = false,
       .fewest_rows = 2},
      {"checked_cpu", [] { return make_checked_device(make_cpu_device({.threads = 2})); }},
  };
  for (const Isa isa : supported_isas())
    for (const int threads : kSanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 4})
      devices.push_back({"cpu_" + std::string(name(isa)) + "_" + std::to_string(threads),
                         [=] { return make_cpu_device({.threads = threads, .isa = isa}); }});
#ifndef ESPALIER_SANITIZED  // which do not follow a thread from stack to stack
  devices.push_back({"emulated_cuda", [] { return make_emulated_cuda_device(); }});
#endif
  devices.push_back(ascend_fake("ascend_fake", [] { return std::uint64_t{0}; }));
  devices.push_back(ascend_fake("ascend_fake_seeded", [] { return 1 + gtest_seed(); }));
  if (cuda::list_devices().problem.empty()) devices.push_back({"cuda", [] { return cuda::make_device(); }});
  for (DeviceUnderTest& device : devices) device.round_ops = has_round_ops(device.name);
  return devices;
}

// An NPU has orders of its own; CANN is where the environment says, as for the program itself. ESPALIER_ASCEND_BESIDE=1
// runs the fake beside it: each call that differs fails the test.
DeviceUnderTest judged_npu(const std::string& name) {
  const auto variable = [](const char* key) {
    const char* const value = std::getenv(key);
    return std::string(value == nullptr ? "" : value);
  };
  ascend::LibraryOptions library{.home = variable("ASCEND_HOME_PATH"), .library = variable("ESPALIER_ASCEND_LIBRARY")};
  if (!variable("ESPALIER_ASCEND_BESIDE").empty())
    library.look = ascend::beside_the_fake([](const std::string& difference) { ADD_FAILURE() << difference; });
  return {.name = "ascend",
          .make = [=] { return make_named_device(name, {.ascend = library}); },
          .any_alignment = false,
          .exact = false};
}

// "cpu" is judged with every instruction set and several numbers of threads, so is "reference"; others have one form.
std::vector<DeviceUnderTest> devices_judged(const std::string& name, const std::string& kind) {
  if (kind == "ascend") return {judged_npu(name)};
  std::vector<DeviceUnderTest> devices = all_devices();
  std::erase_if(devices, [&](const DeviceUnderTest& device) {
    return device.name != kind && !device.name.starts_with(kind + "_");
  });
  if (devices.empty() || kind == "cuda")
    devices = {{.name = kind, .make = [=] { return make_named_device(name); }, .round_ops = has_round_ops(kind)}};
  return devices;
}

}  // namespace

std::vector<DeviceUnderTest> devices_with_clusters() {
  std::vector<DeviceUnderTest> devices;
#ifndef ESPALIER_SANITIZED
  if (judged_kind().value_or("emulated_cuda") == "emulated_cuda")
    devices.push_back({"emulated_cuda_in_clusters", [] { return make_emulated_cuda_device({.clusters = true}); }});
#endif
  if (judged_kind().value_or("cuda") == "cuda" && cuda::list_devices().problem.empty())
    devices.push_back({"cuda_in_clusters", [name = judged_device().value_or("cuda")] {
                         return cuda::make_device({.index = device_number(name), .clusters = true});
                       }});
  return devices;
}

std::vector<DeviceUnderTest> devices_with_one_term() {
  std::vector<DeviceUnderTest> devices;
#ifndef ESPALIER_SANITIZED
  if (judged_kind().value_or("emulated_cuda") == "emulated_cuda")
    devices.push_back(
        {"one_term_emulated_cuda", [] { return make_emulated_cuda_device({.activations = Activations::bf16}); }});
#endif
  if (judged_kind().value_or("cuda") == "cuda" && cuda::list_devices().problem.empty())
    devices.push_back({"one_term_cuda", [name = judged_device().value_or("cuda")] {
                         return make_named_device(name, {.activations = Activations::bf16});
                       }});
  return devices;
}

std::vector<DeviceUnderTest> devices_under_test() {
  const std::optional<std::string> judged = judged_device();
  return judged ? devices_judged(*judged, *judged_kind()) : all_devices();
}

DeviceTest::DeviceTest(const DeviceUnderTest& description)
    : description_(description), tested_(description.make()), judge_(make_reference_device()) {}

DeviceTest::~DeviceTest() {
  tested_.reset();
  if (description_.finish) description_.finish();
}

std::vector<std::int64_t> DeviceTest::row_counts() const {
  constexpr std::int64_t kEnough = 64;
  std::vector<std::int64_t> buckets;
  for (std::int64_t bucket : tested_->row_buckets())
    if (bucket <= kEnough) buckets.push_back(bucket);
  if (!buckets.empty()) return buckets;
  return {1, 2, 3, 7, 17, 33, 64};
}

std::int64_t DeviceTest::row_count(std::int64_t n) const {
  const auto buckets = tested_->row_buckets();
  if (buckets.empty()) return n;
  for (std::int64_t bucket : buckets)
    if (bucket >= n) return bucket;
  return buckets.back();
}

std::vector<std::int64_t> DeviceTest::least_company(std::int64_t row, std::int64_t rows) const {
  std::vector<std::int64_t> company;
  for (std::int64_t i = 0; i < fewest_rows(); ++i) company.push_back((row + i) % rows);
  return company;
}

std::vector<Placement> DeviceTest::placements(bool may_be_strided) const {
  std::vector<Placement> all;
  if (may_be_strided) all.push_back({.offset_bytes = 0, .extra_columns = 8});
  if (description_.any_alignment) all.push_back({.offset_bytes = 4, .extra_columns = 0});
  if (description_.any_alignment && may_be_strided) all.push_back({.offset_bytes = 4, .extra_columns = 3});
  if (all.empty()) all.push_back({.offset_bytes = 32, .extra_columns = 0});
  return all;
}

void DeviceTest::expect_conforming(const RowOp& op, std::int64_t rows, bool may_be_strided, const RowBounds& bounds) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<float> expected = op(judge(), all, {});
  std::vector<double> allowed(exact() ? 0 : expected.size(), 0.0);
  if (!exact() && bounds) allowed = bounds(all);
  const std::vector<Placement> others = placements(may_be_strided);
  for (Placement placement : {Placement{}, others[calls_++ % others.size()]}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, offset " << placement.offset_bytes << " bytes, "
                                    << placement.extra_columns << " columns between rows");
    expect_close(op(tested(), all, placement), expected, allowed);
  }
  const std::size_t width = expected.size() / all.size();
  for (std::int64_t r : std::set<std::int64_t>{0, 1 % rows, rows / 2, rows - 1}) {
    SCOPED_TRACE(testing::Message() << "row " << r << " of " << rows << " computed alone");
    const std::size_t begin = static_cast<std::size_t>(r) * width;
    expect_close(op(tested(), {r}, {}), std::span(expected).subspan(begin, width),
                 exact() ? std::span<const double>() : std::span(allowed).subspan(begin, width));
  }
}

void DeviceTest::expect_own_order(const RowOp& op, std::int64_t rows, bool may_be_strided, const RowBounds& bounds) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  SCOPED_TRACE(testing::Message() << rows << " rows");
  const std::vector<float> own = op(tested(), all, {});
  expect_within(own, op(judge(), all, {}), bounds(all));
  const std::vector<Placement> others = placements(may_be_strided);
  expect_same_bits(op(tested(), all, others[calls_++ % others.size()]), own);
  std::vector<std::vector<std::int64_t>> choices = {{rows - 1}, {0}, {rows / 2}, {all.rbegin(), all.rend()}};
  choices.emplace_back(all.begin() + rows / 2, all.end());
  for (const std::vector<std::int64_t>& chosen : choices) {
    SCOPED_TRACE(testing::Message() << chosen.size() << " of them, from row " << chosen[0]);
    expect_same_bits(op(tested(), chosen, {}), select_rows(own, chosen, std::ssize(own) / rows));
  }
}

void DeviceTest::expect_close(std::span<const float> actual, std::span<const float> expected,
                              std::span<const double> bounds) const {
  if (exact()) return expect_same_bits(actual, expected);
  expect_within(actual, expected, bounds);
}

}  // namespace espalier
