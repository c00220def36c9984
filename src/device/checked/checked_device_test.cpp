#include "device/checked/checked_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "device/checked/testing/expect_violation.h"
#include "device/conformance/attention_scenario.h"
#include "device/conformance/random_values.h"
#include "device/conformance/remote_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

using testing::HasSubstr;

constexpr CheckedOptions kAscend{.profile = CheckedProfile::ascend};

class CheckedDeviceTest : public testing::Test {
 protected:
  static Tensor floats(Device& device, std::initializer_list<std::int64_t> shape) {
    Tensor tensor = device.tensor(DType::f32, shape);
    upload<float>(device, RandomValues(3).values(tensor.view.elements()), tensor);
    return tensor;
  }
  static Tensor ints(Device& device, const std::vector<std::int32_t>& values) {
    Tensor tensor = device.tensor(DType::i32, {static_cast<std::int64_t>(values.size())});
    upload<std::int32_t>(device, values, tensor);
    return tensor;
  }
  Tensor floats(std::initializer_list<std::int64_t> shape) { return floats(*device_, shape); }
  Tensor ints(const std::vector<std::int32_t>& values) { return ints(*device_, values); }
  static std::unique_ptr<const Weight> weight(Device& device, std::int64_t outputs, std::int64_t inputs) {
    const std::vector<std::byte> bytes = RandomValues(4).weight(DType::f32, outputs, inputs);
    const WeightPart part{DType::f32, outputs, inputs, bytes};
    return device.load_weight({&part, 1});
  }
  std::vector<float> downloaded(const Tensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.view.elements()));
    download<float>(*device_, tensor, values);
    return values;
  }

  std::unique_ptr<CheckedDevice> device_ = make_checked_device(make_reference_device());
  std::unique_ptr<CheckedDevice> ascend_ = make_checked_device(make_reference_device(), kAscend);
};

TEST_F(CheckedDeviceTest, AViolationNamesOpArgumentRowAndRule) {
  const RuleViolation violation({"attention", "rows.slot", 3}, "R12", "slot 17 is written twice in one call");
  EXPECT_STREQ(violation.what(), "attention: rows.slot row 3: R12: slot 17 is written twice in one call");
  const RuleViolation without_row({"add", "x"}, "R6", "overlaps y");
  EXPECT_STREQ(without_row.what(), "add: x: R6: overlaps y");
}

// --- R4: poison, written elements -----------------------------------------------------------------------------------

TEST_F(CheckedDeviceTest, R4AnElementNobodyWroteIsNotRead) {
  const Tensor x = device_->tensor(DType::f32, {3, 8}), y = floats({3, 8});
  upload<float>(*device_, std::vector<float>(23), View(x.view.data(), DType::f32, {23}));
  expect_violation([&] { device_->add(y, x); }, {"add", "y", 2}, "R4");
  expect_violation([&] { downloaded(x); }, {"download", "from", 2}, "R4");
  upload<float>(*device_, std::vector<float>(8), x.view.rows(2, 1));
  device_->add(y, x);
}

TEST_F(CheckedDeviceTest, R4AnOutputCountsAsWritten) {
  const Tensor x = floats({2, 8}), y = device_->tensor(DType::f32, {2, 4});
  device_->swiglu(x, y);
  EXPECT_EQ(downloaded(y).size(), 8u);
}

TEST_F(CheckedDeviceTest, R4OnlyTheRowsAnOpReadsMustBeWritten) {
  const Tensor x = device_->tensor(DType::f32, {4, 8}), y = device_->tensor(DType::f32, {2, 8});
  upload<float>(*device_, std::vector<float>(16), x.view.rows(1, 2));
  device_->gather_rows(x, ints({2, 1}), y);
  expect_violation([&] { device_->gather_rows(x, ints({2, 3}), y); }, {"gather_rows", "x", 1}, "R4");

  const Tensor head = floats({2, 1, 16});
  const Tensor sine = floats({4, 8});
  device_->rope(head, ints({1, 2}), x, sine);
  expect_violation([&] { device_->rope(head, ints({1, 0}), x, sine); }, {"rope", "cosine", 1}, "R4");
}

TEST_F(CheckedDeviceTest, R4FreshDiscardedAndFreedMemoryHoldsPoison) {
  std::byte* raw = nullptr;
  const auto spy = [&raw](std::string_view, View output) { raw = output.data(); };
  const auto device = make_checked_device(make_remote_device(make_reference_device(), spy));
  Tensor x = floats(*device, {1, 8});
  device->add(x, floats(*device, {1, 8}));
  const auto is_nan = [&raw] {
    float value;
    std::memcpy(&value, raw, sizeof value);
    return std::isnan(value);
  };
  EXPECT_FALSE(is_nan());
  device->discard(x);
  EXPECT_TRUE(is_nan());
  device->add(floats(*device, {1, 8}), floats(*device, {1, 8}));
  EXPECT_TRUE(is_nan()) << "freed at the end of the statement";
  expect_violation([&] { device->add(x, floats(*device, {1, 8})); }, {"add", "x", 0}, "R4");
}

TEST_F(CheckedDeviceTest, R4AscendPoisonIsFiniteSinceHiddenKeysAreMultiplied) {
  std::byte* raw = nullptr;
  const auto spy = [&raw](std::string_view, View output) { raw = output.data(); };
  const auto device = make_checked_device(make_remote_device(make_reference_device(), spy), kAscend);
  const Tensor x = floats(*device, {2, 8});
  device->add(x, floats(*device, {2, 8}));
  device->discard(x);
  float value = 0;
  std::memcpy(&value, raw, sizeof value);
  EXPECT_GT(value, 1e15f);
  EXPECT_TRUE(std::isfinite(value));
  expect_violation([&] { device->add(x, floats(*device, {2, 8})); }, {"add", "x", 0}, "R4");
}

TEST_F(CheckedDeviceTest, R4DiscardTakesASingleSlot) {
  const Tensor x = floats({3, 8}), y = floats({3, 8});
  device_->discard(x.view.rows(1, 1));
  expect_violation([&] { device_->add(y, x); }, {"add", "y", 1}, "R4");
  upload<float>(*device_, std::vector<float>(8), x.view.rows(1, 1));
  device_->add(y, x);
}

// --- R6: overlap ----------------------------------------------------------------------------------------------------

TEST_F(CheckedDeviceTest, R6InputsAndOutputsDoNotOverlap) {
  const Tensor x = floats({4, 8}), w = floats({8});
  expect_violation([&] { device_->rms_norm(x, w, 1e-5f, x); }, {"rms_norm", "y"}, "R6");
  expect_violation([&] { device_->rms_norm(x.view.rows(0, 3), w, 1e-5f, x.view.rows(1, 3)); }, {"rms_norm", "y"}, "R6");
  expect_violation([&] { device_->add(x, x); }, {"add", "x"}, "R6");
  device_->rms_norm(x.view.rows(0, 2), w, 1e-5f, x.view.rows(2, 2));
}

TEST_F(CheckedDeviceTest, R6ColumnsOfOneMatrixMayBeOutputsSideBySide) {
  const auto narrow = weight(*device_, 4, 8);
  const Tensor x = floats({3, 8}), y = device_->tensor(DType::f32, {3, 8});
  const Projection left{narrow.get(), {}, y.view.columns(0, 4)}, right{narrow.get(), {}, y.view.columns(4, 4)};
  const Projection middle{narrow.get(), {}, y.view.columns(3, 4)};
  device_->linear(x, std::vector{left, right});
  EXPECT_EQ(downloaded(y).size(), 24u);
  expect_violation([&] { device_->linear(x, std::vector{left, middle}); }, {"linear", "projections[1].y"}, "R6");
}

// --- R8: live memory of this device ---------------------------------------------------------------------------------

TEST_F(CheckedDeviceTest, R8AFreedBufferIsRecognised) {
  const Tensor x = floats({2, 8});
  View dangling;
  {
    const Tensor y = floats({2, 8});
    dangling = y.view;
  }
  expect_violation([&] { device_->add(x, dangling); }, {"add", "y"}, "R8");
  expect_violation([&] { device_->add(dangling, x); }, {"add", "x"}, "R8");
  expect_violation([&] { device_->discard(dangling); }, {"discard", "memory"}, "R8");
}

TEST_F(CheckedDeviceTest, R8AViewLiesInOneBufferOfThisDevice) {
  const Tensor x = floats({2, 8});
  std::vector<float> host(16);
  const View elsewhere(reinterpret_cast<std::byte*>(host.data()), DType::f32, {2, 8});
  expect_violation([&] { device_->add(x, elsewhere); }, {"add", "y"}, "R8");
  const View too_long(x.view.data(), DType::f32, {2, 9});
  const Tensor y = floats({2, 9});
  expect_violation([&] { device_->add(y, too_long); }, {"add", "y"}, "R8");
  expect_violation([&] { device_->add(x, floats(*ascend_, {2, 8})); }, {"add", "y"}, "R8");
}

TEST_F(CheckedDeviceTest, R8AWeightOfAnotherDeviceIsRefused) {
  const auto foreign = weight(*ascend_, 4, 8);
  const Tensor y = device_->tensor(DType::f32, {1, 4}), row = device_->tensor(DType::f32, {1, 8});
  const Projection projection{foreign.get(), {}, y};
  expect_violation(
      [&] {
        device_->linear(floats({1, 8}), {&projection, 1});
      },
      {"linear", "projections[0].weight"}, "R8");
  expect_violation([&] { device_->embed(*foreign, ints({0}), row); }, {"embed", "table"}, "R8");
}

TEST_F(CheckedDeviceTest, R8ABufferMayOutliveItsDevice) {
  auto device = make_checked_device(make_reference_device());
  Tensor x = floats(*device, {2, 8});
  device.reset();
  x.buffer.reset();
}

// --- R10 to R14: indices --------------------------------------------------------------------------------------------

TEST_F(CheckedDeviceTest, R10IndicesAreInt32) {
  const auto table = weight(*device_, 5, 8);
  const Tensor y = device_->tensor(DType::f32, {1, 8}), token = device_->tensor(DType::i64, {1});
  EXPECT_THAT([&] { device_->embed(*table, token, y); },
              testing::ThrowsMessage<std::logic_error>(HasSubstr("embed: token is i64 [1], expected i32")));
}

TEST_F(CheckedDeviceTest, R11TokensAndGatheredRowsAreInRange) {
  const auto table = weight(*device_, 5, 8);
  const Tensor x = floats({5, 8}), y = device_->tensor(DType::f32, {3, 8});
  expect_violation([&] { device_->embed(*table, ints({0, 4, 5}), y); }, {"embed", "token", 2}, "R11");
  expect_violation([&] { device_->gather_rows(x, ints({0, 5, 4}), y); }, {"gather_rows", "index", 1}, "R11");
  device_->embed(*table, ints({0, 4, 3}), y);
  device_->gather_rows(x, ints({0, 4, 4}), y);
}

TEST_F(CheckedDeviceTest, R13NoSentinels) {
  const auto table = weight(*device_, 5, 8);
  const Tensor x = floats({3, 8}), y = device_->tensor(DType::f32, {3, 8}), head = floats({3, 1, 16});
  expect_violation([&] { device_->embed(*table, ints({0, -1, 0}), y); }, {"embed", "token", 1}, "R13");
  expect_violation([&] { device_->gather_rows(x, ints({-1, 0, 0}), y); }, {"gather_rows", "index", 0}, "R13");
  expect_violation([&] { device_->rope(head, ints({0, 0, -1}), x, x); }, {"rope", "position", 2}, "R13");
}

TEST_F(CheckedDeviceTest, R14PositionsAreInsideTheRopeTable) {
  const Tensor head = floats({2, 1, 16}), cosine = floats({3, 8}), sine = floats({3, 8});
  device_->rope(head, ints({0, 2}), cosine, sine);
  expect_violation([&] { device_->rope(head, ints({0, 3}), cosine, sine); }, {"rope", "position", 1}, "R14");
}

TEST_F(CheckedDeviceTest, R12SlotsAreInRangeAndPairwiseDistinct) {
  const Tensor k = floats({3, 1, 8}), v = floats({3, 1, 8});
  const Tensor kv_k = device_->tensor(DType::f16, {2, 4, 1, 8}), kv_v = device_->tensor(DType::f16, {2, 4, 1, 8});
  const KvViews kv{kv_k, kv_v};
  device_->kv_write(k, v, ints({7, 0, 3}), kv);
  expect_violation([&] { device_->kv_write(k, v, ints({7, 0, 8}), kv); }, {"kv_write", "slot", 2}, "R12");
  expect_violation([&] { device_->kv_write(k, v, ints({7, 0, 7}), kv); }, {"kv_write", "slot", 2}, "R12");
  expect_violation([&] { device_->kv_write(k, v, ints({7, -1, 3}), kv); }, {"kv_write", "slot", 1}, "R13");
}

// KV memory of 2 blocks of 4 slots, of which some are written.
class CheckedKvCopy : public CheckedDeviceTest {
 protected:
  void write(const std::vector<std::int32_t>& slots) { write(slots, {k_, v_}); }
  void write(const std::vector<std::int32_t>& slots, const KvViews& kv) {
    const auto count = static_cast<std::int64_t>(slots.size());
    const Tensor rows = floats({count, 1, 8});
    device_->kv_write(rows, rows, ints(slots), kv);
  }
  void copy(const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to) {
    device_->kv_copy(std::vector<KvViews>{{k_, v_}}, ints(from), ints(to));
  }

  Tensor k_ = device_->tensor(DType::f16, {2, 4, 1, 8});
  Tensor v_ = device_->tensor(DType::f16, {2, 4, 1, 8});
};

TEST_F(CheckedKvCopy, R12SlotsAreInRangeAndTargetsPairwiseDistinct) {
  write({0, 1, 2, 7});
  copy({0, 0, 7}, {3, 4, 5});
  expect_violation([&] { copy({0, 1, 8}, {3, 4, 5}); }, {"kv_copy", "from", 2}, "R12");
  expect_violation([&] { copy({0, 1, 2}, {3, 8, 5}); }, {"kv_copy", "to", 1}, "R12");
  expect_violation([&] { copy({0, 1, 2}, {3, 4, 3}); }, {"kv_copy", "to", 2}, "R12");
  expect_violation([&] { copy({0, -1, 2}, {3, 4, 5}); }, {"kv_copy", "from", 1}, "R13");
  expect_violation([&] { copy({0, 1, 2}, {-1, 4, 5}); }, {"kv_copy", "to", 0}, "R13");
}

TEST_F(CheckedKvCopy, R4OnlyWrittenSlotsMoveAndTheirTargetsAreWritten) {
  write({0, 1});
  expect_violation([&] { copy({0, 2}, {3, 4}); }, {"kv_copy", "layers[0].k", 1}, "R4");
  expect_violation([&] { copy({0, 3}, {3, 4}); }, {"kv_copy", "layers[0].k", 1}, "R4");  // everything is read first
  copy({0, 1}, {3, 4});
  copy({3, 4}, {4, 3});
  device_->discard(k_.view.reshaped({8, 1, 8}).rows(4, 1));
  expect_violation([&] { copy({4}, {5}); }, {"kv_copy", "layers[0].k", 0}, "R4");
  device_->discard(v_.view.reshaped({8, 1, 8}).rows(3, 1));
  expect_violation([&] { copy({3}, {5}); }, {"kv_copy", "layers[0].v", 0}, "R4");
}

TEST_F(CheckedKvCopy, R6MemoriesOfAllLayersLieApart) {
  const Tensor memory = floats({2, 4, 1, 8});
  const Tensor list = ints({0, 1});
  const Tensor values = floats({2, 4, 1, 8}), other = floats({2, 4, 1, 8});
  const auto copy_layers = [&](const std::vector<KvViews>& layers) {
    return [&, layers] { device_->kv_copy(layers, list, list); };
  };
  copy_layers({{memory, values}})();
  expect_violation(copy_layers({{memory, memory}}), {"kv_copy", "layers[0].v"}, "R6");
  expect_violation(copy_layers({{memory, values}, {other, values}}), {"kv_copy", "layers[1].v"}, "R6");
}

TEST_F(CheckedKvCopy, EveryLayerIsLookedAt) {
  const Tensor k = device_->tensor(DType::f16, {2, 4, 1, 8}), v = device_->tensor(DType::f16, {2, 4, 1, 8});
  const std::vector<KvViews> layers = {{k_, v_}, {k, v}};
  const auto copy_both = [&](std::int32_t from, std::int32_t to) {
    return [&, from, to] { device_->kv_copy(layers, ints({from}), ints({to})); };
  };
  write({0, 1});
  write({0}, {k, v});
  expect_violation(copy_both(1, 3), {"kv_copy", "layers[1].k", 0}, "R4");
  copy_both(0, 3)();
  copy_both(3, 5)();
  device_->discard(v.view.reshaped({8, 1, 8}).rows(5, 1));
  expect_violation(copy_both(5, 6), {"kv_copy", "layers[1].v", 0}, "R4");
}

// --- R3: guard zones ------------------------------------------------------------------------------------------------

// A device whose op writes one byte at some distance from its output.
class StrayWrite {
 public:
  explicit StrayWrite(CheckedOptions options = {})
      : device(make_checked_device(make_remote_device(make_reference_device(),
                                                      [this](std::string_view, View output) {
                                                        if (armed) output.data()[distance] ^= std::byte{1};
                                                      }),
                                   options)) {}
  std::ptrdiff_t distance = 0;
  bool armed = false;
  std::unique_ptr<CheckedDevice> device;
};

TEST_F(CheckedDeviceTest, R3AnOpThatLeavesItsBufferIsNamed) {
  for (const std::ptrdiff_t distance : {-64, -1, 64, 127}) {
    StrayWrite stray;
    const Tensor x = floats(*stray.device, {2, 8}), y = floats(*stray.device, {2, 8});
    stray.distance = distance;
    stray.armed = true;
    expect_violation([&] { stray.device->add(x, y); }, {"add", "x"}, "R3");
    stray.armed = false;
    expect_violation([&] { stray.device->verify(); }, {"verify", "buffer"}, "R3");
  }
}

TEST_F(CheckedDeviceTest, R3AnOpThatWritesBesideItsOutputInTheSameBufferIsNamed) {
  for (const std::ptrdiff_t distance : {-1, 16, 48}) {  // before, between and behind the rows
    StrayWrite stray;
    const auto narrow = weight(*stray.device, 4, 8);
    const Tensor x = floats(*stray.device, {2, 8}), y = floats(*stray.device, {4, 8});
    const Projection projection{narrow.get(), {}, y.view.rows(1, 2).columns(0, 4)};
    stray.distance = distance;
    stray.armed = true;
    const auto call = [&] { stray.device->linear(x, {&projection, 1}); };
    expect_violation(call, {"linear", "projections[0].y"}, "R3");
    stray.distance = 15;  // inside the output
    call();
  }
}

TEST_F(CheckedDeviceTest, R3EachNewOpIsWatched) {
  StrayWrite stray;
  Device& device = *stray.device;
  const Tensor x = floats(device, {4, 8}), y = floats(device, {4}), kv_k = floats(device, {4, 1, 1, 8});
  const Tensor kv_v = floats(device, {4, 1, 1, 8}), from = ints(device, {2, 2}), to = ints(device, {0, 3});
  stray.armed = true;
  stray.distance = 96;  // the row behind
  expect_violation([&] { device.silu(x.view.rows(0, 3)); }, {"silu", "x"}, "R3");
  stray.distance = 8;
  expect_violation([&] { device.log_sum_exp(x.view.rows(0, 2), 1.0f, y.view.rows(0, 2)); }, {"log_sum_exp", "y"}, "R3");
  stray.distance = 40;  // slot 1, which is no target
  expect_violation(
      [&] {
        device.kv_copy(std::vector<KvViews>{{kv_k, kv_v}}, from, to);
      },
      {"kv_copy", "layers[0].k"}, "R3");
}

TEST_F(CheckedDeviceTest, R3DamageFoundWhenABufferIsFreedIsReportedByTheNextCall) {
  StrayWrite stray;
  std::byte* behind_other = nullptr;
  const Tensor x = floats(*stray.device, {2, 8}), y = floats(*stray.device, {2, 8});
  {
    const Tensor other = floats(*stray.device, {2, 8});
    behind_other = other.view.data() + 64;
    stray.distance = behind_other - x.view.data();
    stray.armed = true;
    stray.device->add(x, y);
    stray.armed = false;
  }
  expect_violation([&] { stray.device->add(x, y); }, {"free", "buffer"}, "R3");
  stray.device->add(x, y);
}

TEST_F(CheckedDeviceTest, R3AscendBuffersStartOn64BytesAndKernelsMayTouchTheSlackOnly) {
  for (const std::int64_t bytes : {1, 31, 32, 33, 64, 100}) {
    const auto buffer = ascend_->allocate(static_cast<std::size_t>(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
  }
  // 40 bytes: rounded up to 64, and 32 more.
  for (const std::ptrdiff_t distance : {40, 95, 96, -1}) {
    StrayWrite stray(kAscend);
    const Tensor x = floats(*stray.device, {2, 5}), y = floats(*stray.device, {2, 5});
    stray.distance = distance;
    stray.armed = true;
    if (distance == 40 || distance == 95) {
      stray.device->add(x, y);
    } else {
      expect_violation([&] { stray.device->add(x, y); }, {"add", "x"}, "R3");
    }
  }
}

// --- R45: steps and synchronisations --------------------------------------------------------------------------------

TEST_F(CheckedDeviceTest, R45NothingIsMovedOrAllocatedInsideAStep) {
  const Tensor x = floats({2, 8}), y = floats({2, 8});
  const auto recordings = device_->make_recordings();
  const auto in_step = [&](const std::function<void()>& call) {
    return [&, call] { device_->step(*recordings, {}, call); };
  };
  expect_violation(in_step([&] { downloaded(x); }), {"download", "from"}, "R45");
  expect_violation(in_step([&] { device_->lend(x); }), {"lend", "from"}, "R45");
  expect_violation(in_step([&] { upload<float>(*device_, std::vector<float>(16), x); }), {"upload", "to"}, "R45");
  expect_violation(in_step([&] { device_->allocate(4); }), {"allocate", "buffer"}, "R45");
  expect_violation(in_step([&] { weight(*device_, 4, 8); }), {"load_weight", "parts"}, "R45");
  expect_violation(in_step([&] { device_->discard(x); }), {"discard", "memory"}, "R45");
  expect_violation(in_step([&] { device_->step(*recordings, {}, [&] { device_->allocate(4); }); }),
                   {"allocate", "buffer"}, "R45");
  in_step([&] { device_->add(x, y); })();
  downloaded(x);
}

TEST_F(CheckedDeviceTest, R45SynchronisationsAreCounted) {
  const Tensor x = floats({2, 8}), y = floats({2, 8});
  device_->step(*device_->make_recordings(), {}, [&] { device_->add(x, y); });
  EXPECT_EQ(device_->counts().synchronisations, 0);
  downloaded(x);
  downloaded(x);
  EXPECT_EQ(device_->counts().synchronisations, 2);
  std::vector<float> a(8), b(8);
  device_->download(std::vector{part_of_download(x.view.rows(0, 1), std::span(a)),
                                part_of_download(x.view.rows(1, 1), std::span(b))});
  EXPECT_EQ(device_->counts().synchronisations, 3) << "one, however many parts";
  EXPECT_FALSE(device_->lend(x).empty());
  EXPECT_EQ(device_->counts().synchronisations, 4);
}

TEST_F(CheckedDeviceTest, R4EveryPartOfADownloadAndWhatIsLentWasWritten) {
  const Tensor x = floats({2, 8}), y = device_->tensor(DType::f32, {2, 8});
  std::vector<float> a(16), b(16);
  const auto both = [&] {
    device_->download(std::vector{part_of_download(x, std::span(a)), part_of_download(y, std::span(b))});
  };
  expect_violation(both, {"download", "parts[1].from", 0}, "R4");
  expect_violation([&] { device_->lend(y); }, {"lend", "from", 0}, "R4");
}

TEST_F(CheckedDeviceTest, AscendLendsNothing) {
  EXPECT_TRUE(ascend_->lend(floats(*ascend_, {2, 8})).empty());
  EXPECT_EQ(ascend_->counts().synchronisations, 0) << "and nobody waited";
}

TEST_F(CheckedDeviceTest, RowsWithNanOrInfinityEnteringALinearAreCountedAndComputed) {
  const auto square = weight(*device_, 8, 8);
  const Tensor x = device_->tensor(DType::f32, {4, 8}), y = device_->tensor(DType::f32, {4, 8});
  std::vector<float> values(32, 1.0f);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[16] = std::numeric_limits<float>::infinity();
  values[23] = std::numeric_limits<float>::quiet_NaN();
  upload<float>(*device_, values, x);
  const Projection projection{square.get(), {}, y};
  device_->linear(x, {&projection, 1});
  EXPECT_EQ(device_->counts().non_finite_rows, 2);
}

// --- the Ascend profile ---------------------------------------------------------------------------------------------

TEST_F(CheckedDeviceTest, R1AscendRefusesTensorsWithoutElements) {
  const Tensor x = floats(*ascend_, {1, 8});
  expect_violation([&] { ascend_->upload({}, x.view.rows(0, 0)); }, {"upload", "to"}, "R1");
  expect_violation([&] { ascend_->download(x.view.rows(0, 0), {}); }, {"download", "from"}, "R1");
  EXPECT_THROW(ascend_->allocate(0), std::logic_error);
  const Tensor plain = floats({1, 8});
  device_->upload({}, plain.view.rows(0, 0));
}

TEST_F(CheckedDeviceTest, R2AscendOperandsStartOn32Bytes) {
  const Tensor x = floats(*ascend_, {2, 8}), y = floats(*ascend_, {3, 12});
  const View aligned(y.view.data() + 64, DType::f32, {2, 8}), unaligned(y.view.data() + 48, DType::f32, {2, 8});
  ascend_->add(x, aligned);
  expect_violation([&] { ascend_->add(x, unaligned); }, {"add", "y"}, "R2");
}

TEST_F(CheckedDeviceTest, R5AttentionSwigluAndKvWriteTakeDenseOperandsAndStridedOnesElsewhereAreCounted) {
  const Tensor wide = floats(*ascend_, {8, 32});
  const Tensor y = ascend_->tensor(DType::f32, {8, 8}), ids = ascend_->tensor(DType::i32, {8});
  EXPECT_THAT([&] { ascend_->swiglu(wide.view.columns(0, 16), y); },
              testing::ThrowsMessage<std::logic_error>(HasSubstr("swiglu: x is f32 [8, 16] row stride 32")));
  ascend_->argmax(wide, ids);
  EXPECT_EQ(ascend_->counts().strided_copies, 0);
  ascend_->argmax(wide.view.columns(8, 16), ids);
  EXPECT_EQ(ascend_->counts().strided_copies, 1);
  ascend_->log_sum_exp(wide.view.columns(8, 16), 1.0f, ascend_->tensor(DType::f32, {8}));
  EXPECT_EQ(ascend_->counts().strided_copies, 2);
}

TEST_F(CheckedDeviceTest, R32AscendKvBlocksHold128To512Slots) {
  const Tensor k = floats(*ascend_, {2, 1, 8}), v = floats(*ascend_, {2, 1, 8}), slot = ints(*ascend_, {0, 1});
  for (const std::int64_t size : {16, 64, 192, 640, 128, 384, 512}) {
    const Tensor kv_k = ascend_->tensor(DType::f16, {2, size, 1, 8}),
                 kv_v = ascend_->tensor(DType::f16, {2, size, 1, 8});
    const auto call = [&] { ascend_->kv_write(k, v, slot, {kv_k, kv_v}); };
    if (size % 128 == 0 && size <= 512) {
      call();
    } else {
      expect_violation(call, {"kv_write", "kv.k"}, "R32");
    }
  }
}

TEST_F(CheckedDeviceTest, AscendPrefersDenseMasks) {
  EXPECT_TRUE(ascend_->prefers_dense_mask());
  EXPECT_FALSE(device_->prefers_dense_mask());
}

TEST_F(CheckedDeviceTest, R32AndR46AscendCopiesKvInBlocksOf128AndInBuckets) {
  const Tensor list = ints(*ascend_, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  for (const std::int64_t size : {64, 128}) {
    const Tensor k = floats(*ascend_, {2, size, 1, 8}), v = floats(*ascend_, {2, size, 1, 8});
    for (const std::int64_t n : {1, 2, 8, 9}) {
      const auto call = [&] {
        ascend_->kv_copy(std::vector<KvViews>{{k, v}}, list.view.rows(0, n), list.view.rows(0, n));
      };
      if (n == 9) {
        expect_violation(call, {"kv_copy", "from"}, "R46");
      } else if (size == 64) {
        expect_violation(call, {"kv_copy", "layers[0].k"}, "R32");
      } else {
        call();
      }
    }
  }
}

TEST_F(CheckedDeviceTest, R37SwigluTakesGateAndUpInOneTensor) {
  const Tensor x = floats(*ascend_, {2, 15}), y = ascend_->tensor(DType::f32, {2, 8});
  EXPECT_THAT([&] { ascend_->swiglu(x, y); }, testing::ThrowsMessage<std::logic_error>(HasSubstr("swiglu: x is")));
}

TEST_F(CheckedDeviceTest, AscendDeclaresWhereTensorsOfOneBufferStart) {
  EXPECT_EQ(ascend_->memory_layout().alignment, 64);
  EXPECT_EQ(ascend_->memory_layout().slack, 32);
  EXPECT_EQ(device_->memory_layout().slack, 0);
}

TEST_F(CheckedDeviceTest, R46AscendRowCountsAreBuckets) {
  EXPECT_THAT(ascend_->row_buckets(), testing::ElementsAre(2, 8, 16, 32, 64));
  EXPECT_THAT(device_->row_buckets(), testing::IsEmpty());
  for (const std::int64_t rows : {2, 3, 8, 9, 16, 32, 63, 64, 65}) {
    const Tensor x = floats(*ascend_, {rows, 8}), y = floats(*ascend_, {rows, 8});
    const auto call = [&] { ascend_->add(x, y); };
    if (rows == 2 || rows == 8 || rows == 16 || rows == 32 || rows == 64) {
      call();
    } else {
      expect_violation(call, {"add", "x"}, "R46");
    }
  }
}

TEST_F(CheckedDeviceTest, R46ASingleRowIsNoStepOfAscendAndHasNoAttention) {
  const Tensor x = floats(*ascend_, {1, 8}), y = floats(*ascend_, {1, 8});
  ascend_->add(x, y);
  const auto step = [&] { ascend_->step(*ascend_->make_recordings(), {}, [&] { ascend_->add(x, y); }); };
  expect_violation(step, {"add", "x"}, "R46");
  const ScenarioShape shape{.rows = 1, .sequences = 1, .longest_prefix = 4, .block_size = 128, .dim = 8};
  const AttentionScenario scenario(shape, 1);
  const auto attend = [&](AttentionForm form) {
    return [&, form] { run_attention(*ascend_, scenario, DType::f16, form, 1); };
  };
  expect_violation(attend(AttentionForm::mask), {"attention", "q"}, "R46");
  expect_violation(attend(AttentionForm::eager), {"attention_eager", "q"}, "R46");
  EXPECT_NO_THROW(run_attention(*device_, scenario, DType::f16, AttentionForm::mask, 1));
}

}  // namespace
}  // namespace espalier
