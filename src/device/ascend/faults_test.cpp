// Whatever fails while an Ascend device opens or runs is one error, and nothing is left behind.
#include <map>
#include <set>

#include "base/testing/sanitized.h"
#include "device/ascend/testing/ascend_device_fixture.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using AscendFaults = AscendDeviceTest;

// Where one of these fails, nobody can help it.
bool gives_back(const std::string& call) {
  return call.starts_with("aclDestroy") || call.starts_with("aclrtFree") || call.starts_with("aclrtDestroy") ||
         call.starts_with("aclrtReset");
}

// Which chip and version it is nobody needs to know, destructors go on, and an operator that refuses is done without.
bool is_done_without(const std::string& call, std::int32_t code) {
  static const std::set<std::string> calls = {"aclrtGetSocName", "aclrtGetVersion", "aclrtSetCurrentContext",
                                              "aclrtSynchronizeStreamWithTimeout"};
  return calls.contains(call) || code == 561003;
}

// Descriptors are made by the hundred, and operators alike: under sanitizers of each call the first ones, then every
// seventh.
std::vector<std::uint64_t> calls_that_may_fail(const std::vector<std::string>& names, std::int32_t code) {
  constexpr int kAll = 12, kStep = 7;
  std::map<std::string, int> seen;
  std::vector<std::uint64_t> chosen;
  for (std::uint64_t n = 1; n <= names.size(); ++n) {
    const std::string& name = names[n - 1];
    if (gives_back(name) || (code == 561003 && !name.ends_with("GetWorkspaceSize"))) continue;
    const int count = ++seen[name];
    if (!kSanitized || count <= kAll || count % kStep == 0) chosen.push_back(n);
  }
  return chosen;
}

TEST_F(AscendFaults, WhicheverCallFailsWhileItOpensIsOneErrorAndNothingIsLeft) {
  card_.open_anew();
  const std::vector<std::string> names = calls(card_);
  for (const std::int32_t code : {507015, 561003})
    for (const std::uint64_t n : calls_that_may_fail(names, code)) {
      fail([&](AscendFakeOptions& options) {
        options.fail_call = n;
        options.fail_code = code;
      });
      const std::string said = complaint();
      if (said != "nothing" || !is_done_without(names[n - 1], code)) {
        EXPECT_THAT(said, HasSubstr("Ascend: ")) << "call " << n << ", " << names[n - 1];
      }
      SCOPED_TRACE(testing::Message() << "call " << n << ", " << names[n - 1]);
      card_.expect_nothing_left();
    }
}

// An operator whose workspace cannot be had is given up: no document says what else to do with it (F17).
TEST_F(AscendFaults, WhicheverAllocationFailsBehindTheFirstOperatorNothingIsLeft) {
  for (const std::uint64_t seed : {0, 1}) {
    bool done = false;
    std::size_t given_up = 0;
    for (std::uint64_t n = 1; !done; ++n) {
      fail([&](AscendFakeOptions& options) {
        options.seed = seed;
        options.fail_allocation = n;
      });
      ascend::Options options = FakeCard::device_options();
      options.arena_bytes = 64;
      done = complaint(options) == "nothing";
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", allocation " << n);
      EXPECT_THAT(card_.live_objects(), IsEmpty());
      for (const std::string& violation : card_.violations())
        EXPECT_THAT(violation, HasSubstr("(aclDestroyAclOpExecutor): destroys an executor that is not repeatable"));
      given_up += card_.violations().size();
      ASSERT_LT(n, 100u);
    }
    EXPECT_GT(given_up, 0u);
  }
}

TEST_F(AscendFaults, AFaultOnTheCardIsToldByTheNextDownloadWithItsCallAndCode) {
  auto device = card_.open_anew();
  Tensor x = device->tensor(DType::f32, {2, 8}), index = device->tensor(DType::i32, {2}),
         y = device->tensor(DType::f32, {2, 8});
  const std::vector<std::int32_t> outside = {0, 2};
  upload<std::int32_t>(*device, outside, index);
  device->gather_rows(x, index, y);
  std::vector<float> read(16);
  try {
    download<float>(*device, y, read);
    ADD_FAILURE() << "nothing was said";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("aclrtSynchronizeStreamWithTimeout: error 507035"),
                                    HasSubstr("a fault on the NPU: an index outside of its table): ")))
        << "and the runtime's own words";
  }
  EXPECT_THROW(download<float>(*device, x, read), DeviceError) << "nothing runs behind a fault";
}

TEST_F(AscendFaults, AStepThatFailsWhileItIsCapturedLeavesADeviceThatGoesOn) {
  const auto device = card_.open_anew();
  const Tensor x = device->tensor(DType::f32, {2, 8}), y = device->tensor(DType::f32, {2, 8});
  upload<float>(*device, std::vector<float>(16, 1.0f), y);
  const auto recordings = device->make_recordings();
  const auto step = [&](bool fails) {
    device->step(*recordings, {.rows = 2}, [&] {
      device->add(x, y);
      if (fails) throw std::runtime_error("in the middle");
    });
  };
  step(false);
  EXPECT_THROW(step(true), std::runtime_error);
  step(false);
  step(false);
  std::vector<float> read(16);
  download<float>(*device, x, read);
  EXPECT_EQ(read, std::vector<float>(16, 3.0f));
}

}  // namespace
}  // namespace espalier
