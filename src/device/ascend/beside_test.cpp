// A card beside the fake (testing/beside.h): fakes of two versions, of which one stands for the card.
#include "device/ascend/testing/beside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "device/ascend/testing/ascend_device_fixture.h"
#include "device/ascend/testing/tolerances.h"
#include "device/conformance/attention_scenario.h"
#include "device/conformance/random_values.h"

namespace espalier {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kCard = "ascend_fake_8_5";

class BesideTest : public testing::Test {
 protected:
  void SetUp() override {
    options_ = FakeCard::default_options(kCard);
    options_.seed = 3;  // another order of sums, ties and workspaces than the fake's
  }
  void TearDown() override {
    card_.expect_nothing_left();
    fake_.expect_nothing_left();
  }
  std::unique_ptr<Device> opened() {
    card_.reset(options_);
    ascend::Options options = FakeCard::device_options(kCard);
    options.library.look = ascend::beside_the_fake([this](const std::string& told) { told_.push_back(told); });
    return ascend::make_device(options);
  }

  FakeCard card_{kCard}, fake_;
  AscendFakeOptions options_{};
  std::vector<std::string> told_;
};

// A step of the ops that add up numbers, and of some that move them.
void run_a_bit_of_everything(Device& device) {
  constexpr std::int64_t kRows = 8, kWidth = 64;
  RandomValues random(7);
  const auto floats = [&](std::initializer_list<std::int64_t> shape) {
    Tensor tensor = device.tensor(DType::f32, shape);
    upload<float>(device, random.values(tensor.view.elements()), tensor);
    return tensor;
  };
  const std::vector<std::byte> bytes = random.weight(DType::bf16, kWidth, kWidth);
  const WeightPart part{DType::bf16, kWidth, kWidth, bytes};
  const auto weight = device.load_weight({&part, 1});
  const Tensor x = floats({kRows, kWidth}), y = floats({kRows, kWidth}), gates = floats({kRows, 2 * kWidth});
  const Tensor gamma = floats({kWidth}), cosine = floats({kRows, 8}), sine = floats({kRows, 8});
  const Tensor best = device.tensor(DType::i32, {kRows}), sums = device.tensor(DType::f32, {kRows});
  const Tensor position = device.tensor(DType::i32, {kRows});
  upload<std::int32_t>(device, std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}, position);
  const Projection projection{weight.get(), {}, y};
  device.rms_norm(x, gamma, 1e-5f, y);
  device.linear(x, {&projection, 1});
  device.add(x, y);
  device.swiglu(gates, y);
  device.silu(y);
  device.rope(View(x.view.data(), DType::f32, {kRows, 4, 16}), position, cosine, sine);
  device.argmax(y, best);
  device.log_sum_exp(x, 0.7f, sums);
  std::vector<float> read(kRows);
  download<float>(device, sums, read);
}

AttentionScenario behind_key_512() {
  return {{.rows = 16,
           .sequences = 1,
           .shortest_prefix = 520,
           .longest_prefix = 530,
           .block_size = 128,
           .kv_heads = 1,
           .group = 2,
           .dim = 16},
          5};
}

TEST_F(BesideTest, CardsThatDifferInTheOrderOfSumsAloneDifferInNoCall) {
  const auto device = opened();
  run_a_bit_of_everything(*device);
  for (const DType type : {DType::f16, DType::bf16, DType::f32})
    for (const AttentionForm form : {AttentionForm::mask, AttentionForm::eager})
      run_attention(*device, behind_key_512(), type, form, 1);
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(BesideTest, EveryCallIsJudgedByItselfSoThatOnlyTheWrongOneIsTold) {
  options_.mask_ignored_rows = 32;
  opened();  // the probes look behind key 512
  EXPECT_THAT(told_, SizeIs(testing::Ge(2u)));
  EXPECT_THAT(told_, Each(HasSubstr("aclnnFusedInferAttentionScoreV2: ")));
  EXPECT_THAT(told_[0], HasSubstr("the card has "));
}

TEST_F(BesideTest, ARefusalOnOneSideIsToldWithBothCodes) {
  options_.f32_from_16_bit = 0;
  run_a_bit_of_everything(*opened());
  EXPECT_THAT(told_, SizeIs(testing::Ge(1u)));
  EXPECT_THAT(told_, Each(HasSubstr("aclnnMmGetWorkspaceSize: the card answers 161002, the fake 0")));
  EXPECT_THAT(fake_.violations(), Each(HasSubstr("F17"))) << "executors that the card never had";
  fake_.reset(FakeCard::default_options());
}

TEST_F(BesideTest, AFaultOfTheCardIsToldWhereItHappens) {
  {
    const auto device = opened();
    told_.clear();
    options_.fault_at_task = card_.counters().tasks_run + 40;
    card_.set_faults(options_);
    EXPECT_THROW(run_a_bit_of_everything(*device), DeviceError);
  }
  ASSERT_THAT(told_, SizeIs(testing::Ge(1u)));
  EXPECT_THAT(told_[0], HasSubstr("the card answers 507015, the fake 0"));
}

// --- tolerances -----------------------------------------------------------------------------------------------------

// Of an output whose operands are all this number.
ascend::Tolerance tolerance(std::string_view op, double number, ascend::AclType type = ascend::AclType::f32) {
  const ascend::Layout x(nullptr, type, {2, 4}), w(nullptr, type, {4, 3}), out(nullptr, ascend::AclType::f32, {2, 3});
  return ascend::tolerance_of(op, {.tensors = {x, w, out}}, out, [number](const ascend::Layout& layout) {
    return std::vector<double>(static_cast<std::size_t>(layout.elements()), number);
  });
}

TEST(Tolerances, OperatorsThatMoveCompareOrConvertNumbersHaveNone) {
  for (const char* op : {"aclnnIndexSelect", "aclnnInplaceCopy", "aclnnCast", "aclnnSort", "aclnnAmax", "aclnnSWhere"})
    EXPECT_EQ(tolerance(op, 2).of(0, 1, 1.0000001), 0) << op;
}

TEST(Tolerances, AProductMayBeOffByTheRoundingsOfItsSumAndNoMore) {
  const double allowed = tolerance("aclnnMm", 2).of(5, 16, 16);
  EXPECT_GT(allowed, 4 * 16 * 0x1p-24) << "four terms in any order";
  EXPECT_LT(allowed, 16 * 1e-5);
}

TEST(Tolerances, NumbersWhoseSquaresAreNoFloatsMayBecomeAnything) {
  EXPECT_LT(tolerance("aclnnRmsNorm", 2).of(0, 1, 1), 1e-5);
  EXPECT_TRUE(std::isinf(tolerance("aclnnRmsNorm", 1e30).of(0, 1, 1)));
  EXPECT_TRUE(std::isinf(tolerance("aclnnRmsNorm", std::nan("")).of(0, 1, 1)));
}

}  // namespace
}  // namespace espalier
