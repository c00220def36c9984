// F12 to F20: descriptors and the two phases.
#include "card_test_fixture.h"

namespace ascend_fake {
namespace {

class Descriptors : public Card {
 protected:
  void expect_unsound(const Dims& dims, const Dims& strides, int64_t offset, const Dims& storage, void* data,
                      aclDataType type = ACL_FLOAT, aclFormat format = ACL_FORMAT_ND) {
    tensors_.push_back(aclCreateTensor(dims.data(), dims.size(), type, strides.data(), offset, format, storage.data(),
                                       storage.size(), data));
    expect_only(12);
  }
};

class Phases : public Card {
 protected:
  // A Muls between its phases.
  Launch first_phase() {
    x_ = upload(std::vector<float>{1, 2, 3, 4});
    from_ = tensor(ACL_FLOAT, {4}, x_);
    y_ = memory(1 << 14);
    to_ = tensor(ACL_FLOAT, {4}, y_);
    factor_ = scalar(2);
    Launch launch;
    EXPECT_EQ(aclnnMulsGetWorkspaceSize(from_, factor_, to_, &launch.size, &launch.executor), 0);
    return launch;
  }
  // One whose phase 1 asks for a workspace.
  Launch first_phase_with_workspace() {
    for (uint64_t seed = 1;; ++seed) {
      begin(options_of_seed(seed));
      const Launch launch = first_phase();
      if (launch.size > 0) return launch;
      EXPECT_EQ(second(aclnnMuls, launch), 0);
      close();
    }
  }
  void* x_ = nullptr;
  void* y_ = nullptr;
  aclTensor* from_ = nullptr;
  aclTensor* to_ = nullptr;
  aclScalar* factor_ = nullptr;
};

TEST_F(Descriptors, F12AnUnsoundTensorIsAViolation) {
  void* device = memory(64);
  expect_unsound({}, {}, 0, {16}, device);
  expect_unsound(Dims(9, 1), Dims(9, 1), 0, {16}, device);
  expect_unsound({0}, {1}, 0, {16}, device);
  expect_unsound({4}, {-1}, 3, {16}, device);
  expect_unsound({4}, {1}, -1, {16}, device);
  expect_unsound({4, 4}, {5, 1}, 0, {16}, device);
  expect_unsound({4}, {1}, 0, {17}, device);
  expect_unsound({4}, {1}, 0, {4}, static_cast<uint8_t*>(device) + 8);
  expect_unsound({4}, {1}, 0, {4}, nullptr);
  expect_unsound({4}, {1}, 0, {4}, device, static_cast<aclDataType>(99));
  expect_unsound({4}, {1}, 0, {4}, device, ACL_FLOAT, static_cast<aclFormat>(0));
}

TEST_F(Descriptors, F12AStridedViewInsideItsStorageIsSound) {
  view(ACL_FLOAT, {3, 2}, {5, 2}, 1, memory(64));
}

TEST_F(Descriptors, F13NzIsForConvertedMatmulWeightsAlone) {
  std::vector<float> values(32 * 16);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
  void* weight = cast_up(ACL_FLOAT16, values);
  const Dims dims{32, 16}, strides{16, 1}, blocks{1, 2, 16, 16};
  const auto nz = [&] {
    tensors_.push_back(aclCreateTensor(dims.data(), 2, ACL_FLOAT16, strides.data(), 0, ACL_FORMAT_FRACTAL_NZ,
                                       blocks.data(), 4, weight));
    return tensors_.back();
  };
  nz();
  expect_only(13);
  EXPECT_EQ(op(aclnnTransMatmulWeightGetWorkspaceSize, aclnnTransMatmulWeight, tensor(ACL_FLOAT16, dims, weight)), 0);
  tensor(ACL_FLOAT16, dims, weight);
  expect_only(13);
  aclTensor* converted = nz();
  expect_clean();
  void* y = memory(2 * 16 * 4);
  aclTensor* x = tensor(ACL_FLOAT16, {2, 32}, cast_up(ACL_FLOAT16, std::vector<float>(64, 1)));
  EXPECT_EQ(op(aclnnMatmulWeightNzGetWorkspaceSize, aclnnMatmulWeightNz, x, converted, tensor(ACL_FLOAT, {2, 16}, y),
               KEEP_DTYPE),
            0);
  const std::vector<float> result = download<float>(y, 32);
  for (size_t n = 0; n < 16; ++n) {
    float expected = 0;
    for (size_t k = 0; k < 32; ++k) expected += values[k * 16 + n];
    EXPECT_EQ(result[n], expected);
  }
  EXPECT_EQ(op(aclnnSiluGetWorkspaceSize, aclnnSilu, converted, converted), 161002);
  expect_only(13);
}

TEST_F(Descriptors, F13AConvertedWeightMayBeDescribedTransposed) {
  std::vector<float> values(16 * 32);  // [outputs, inputs]
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 5);
  void* weight = cast_up(ACL_FLOAT16, values);
  EXPECT_EQ(op(aclnnTransMatmulWeightGetWorkspaceSize, aclnnTransMatmulWeight, tensor(ACL_FLOAT16, {16, 32}, weight)),
            0);
  const Dims dims{32, 16}, strides{1, 32}, blocks{2, 1, 16, 16};
  tensors_.push_back(
      aclCreateTensor(dims.data(), 2, ACL_FLOAT16, strides.data(), 0, ACL_FORMAT_FRACTAL_NZ, blocks.data(), 4, weight));
  aclTensor* turned = tensors_.back();
  void* y = memory(2 * 16 * 4);
  aclTensor* x = tensor(ACL_FLOAT16, {2, 32}, cast_up(ACL_FLOAT16, std::vector<float>(64, 1)));
  EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, x, turned, tensor(ACL_FLOAT, {2, 16}, y), KEEP_DTYPE), 0);
  const std::vector<float> result = download<float>(y, 32);
  for (size_t n = 0; n < 16; ++n) {
    float expected = 0;
    for (size_t k = 0; k < 32; ++k) expected += values[n * 32 + k];
    EXPECT_EQ(result[n], expected);
  }
}

TEST_F(Descriptors, F13TheSizeOfAConvertedWeightCountsWholeBlocks) {
  uint64_t elements = 0;
  EXPECT_EQ(aclnnCalculateMatmulWeightSizeV2(ints({17, 30}), ACL_FLOAT16, &elements), 0);
  EXPECT_EQ(elements, 32u * 32u);
  EXPECT_EQ(aclnnCalculateMatmulWeightSizeV2(ints({17, 30}), ACL_FLOAT, &elements), 161002);
}

TEST_F(Descriptors, F13AConvertedWeightIsNotReadBackAndAnotherIs) {
  void* weight = cast_up(ACL_FLOAT16, std::vector<float>(256, 1));
  EXPECT_EQ(download<uint16_t>(weight, 256)[255], 0x3C00);
  EXPECT_EQ(op(aclnnTransMatmulWeightGetWorkspaceSize, aclnnTransMatmulWeight, tensor(ACL_FLOAT16, {16, 16}, weight)),
            0);
  download<uint16_t>(weight, 256);
  expect_only(13);
}

TEST_F(Descriptors, F14UseAfterDestroyAndDoubleDestroyAreViolations) {
  aclTensor* gone = floats({2}, {1, 2});
  no_longer(tensors_, gone);
  EXPECT_EQ(aclDestroyTensor(gone), 0);
  EXPECT_NE(aclDestroyTensor(gone), 0);
  expect_only(14);
  EXPECT_NE(op(aclnnSiluGetWorkspaceSize, aclnnSilu, gone, gone), 0);
  expect_only(14);
}

TEST_F(Descriptors, F14ListsScalarsAndArraysAreDestroyedOnceAndNotUsedAfter) {
  aclTensor* x = floats({1, 2}, {1, 2});
  aclTensor* y = tensor(ACL_FLOAT, {1, 2}, memory(8));
  aclTensorList* pair = list({floats({1, 1}, {1}), floats({1, 1}, {2})});
  aclScalar* two = scalar(2);
  aclIntArray* last = ints({1});
  const auto use = [&](int code) {
    EXPECT_EQ(op(aclnnCatGetWorkspaceSize, aclnnCat, pair, 1, y), code);
    EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, x, two, y), code);
    EXPECT_EQ(op(aclnnAmaxGetWorkspaceSize, aclnnAmax, x, last, true, tensor(ACL_FLOAT, {1, 1}, memory(4))), code);
  };
  use(0);
  for (const int code : {0, 161002}) {
    EXPECT_EQ(aclDestroyTensorList(pair), code);
    EXPECT_EQ(aclDestroyScalar(two), code);
    EXPECT_EQ(aclDestroyIntArray(last), code);
  }
  EXPECT_EQ(ascend_fake_violations(), 3u);
  use(161002);
  EXPECT_EQ(ascend_fake_violations(), 6u);
  expect_only(14);
  lists_.clear();
  scalars_.clear();
  arrays_.clear();
}

TEST_F(Descriptors, F14ATensorOfAListIsDestroyedWithIt) {
  aclTensor* member = floats({2}, {1, 2});
  list({member});
  EXPECT_EQ(aclDestroyTensor(member), 0);
  expect_only(14);
}

TEST_F(Descriptors, F14AnArrayOfNothingIsAViolation) {
  ints({});
  expect_only(14);
  ints({0});
}

TEST_F(Phases, F14DestroyBetweenThePhasesIsAViolationAndAfterThemFine) {
  const Launch launch = first_phase();
  EXPECT_EQ(aclDestroyScalar(factor_), 0);
  expect_only(14);
  EXPECT_EQ(second(aclnnMuls, launch), 0);
  EXPECT_EQ(aclDestroyTensor(from_), 0) << "before the kernel ran";
  no_longer(tensors_, from_);
  scalars_.clear();
}

TEST_F(Phases, F15AnOutputThatOverlapsItselfOrAnInputIsAViolation) {
  void* device = upload(std::vector<float>(16, 1));
  EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, floats({2, 2}, {1, 2, 3, 4}), scalar(1),
               view(ACL_FLOAT, {2, 2}, {1, 1}, 0, device)),
            0);
  expect_only(15);
  EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, tensor(ACL_FLOAT, {4}, device), scalar(1),
               view(ACL_FLOAT, {4}, {1}, 2, device)),
            0);
  expect_only(15);
  aclTensor* same = tensor(ACL_FLOAT, {4}, device);
  EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, same, scalar(1), same), 0);
  expect_only(15);
}

TEST_F(Phases, F15ColumnsBesideEachOtherAndSiluInPlaceAreFine) {
  void* device = upload(std::vector<float>(16, 1));
  aclTensor* left = view(ACL_FLOAT, {4, 2}, {4, 1}, 0, device);
  aclTensor* right = view(ACL_FLOAT, {4, 2}, {4, 1}, 2, device);
  EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, left, scalar(3), right), 0);
  EXPECT_EQ(op(aclnnSiluGetWorkspaceSize, aclnnSilu, left, left), 0);
  EXPECT_EQ(download<float>(device, 16)[2], 3);
}

TEST_F(Phases, F16NullAndWrongArgumentsAreRefused) {
  aclTensor* x = floats({4}, {1, 2, 3, 4});
  EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, nullptr, scalar(1), x), 161001);
  EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, x, nullptr, x), 161001);
  EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, x, scalar(1), tensor(ACL_FLOAT, {3}, memory(12))), 161002);
  EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, x, scalar(1), tensor(ACL_INT32, {4}, memory(16))), 161002);
}

TEST_F(Phases, F17TheExecutorOfAnotherOpIsAViolation) {
  const Launch launch = first_phase();
  EXPECT_NE(second(aclnnSilu, launch), 0);
  expect_only(17);
}

TEST_F(Phases, F17AnExecutorNeverUsedIsInTheLedgerAndCannotBeDestroyedQuietly) {
  const Launch launch = first_phase();
  const size_t alive = ascend_fake_live_objects();
  EXPECT_NE(std::string(ascend_fake_live_object(alive - 1)).find("executor of call"), std::string::npos);
  EXPECT_EQ(aclDestroyAclOpExecutor(launch.executor), 0);
  expect_only(17);
}

TEST_F(Phases, F17RepeatableDirectlyAfterPhaseOneRunsTwice) {
  const Launch launch = first_phase();
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(launch.executor), 0);
  EXPECT_EQ(second(aclnnMuls, launch), 0);
  EXPECT_EQ(second(aclnnMuls, launch), 0);
  EXPECT_EQ(aclDestroyAclOpExecutor(launch.executor), 0);
}

TEST_F(Phases, F17RepeatableLateOrForAnOpThatCopiesInsideIsAViolation) {
  const Launch launch = first_phase();
  scalar(1);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(launch.executor), 0);
  expect_only(17);
  EXPECT_EQ(second(aclnnMuls, launch), 0);
  EXPECT_EQ(aclDestroyAclOpExecutor(launch.executor), 0);
  Launch copy;
  EXPECT_EQ(aclnnInplaceCopyGetWorkspaceSize(to_, from_, &copy.size, &copy.executor), 0);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(copy.executor), 0);
  expect_only(17);
  EXPECT_EQ(aclDestroyAclOpExecutor(copy.executor), 0);
}

TEST_F(Phases, F17AUsedExecutorIsNobodysAnyMore) {
  const Launch launch = first_phase();
  EXPECT_EQ(second(aclnnMuls, launch), 0);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(launch.executor), 161002);
  expect_only(17);
  EXPECT_EQ(aclSetTensorAddr(launch.executor, 0, from_, x_), 161002);
  expect_only(17);
}

TEST_F(Phases, F19TheOperandsOfARepeatableExecutorStayThoseOfPhaseOne) {
  const Launch launch = first_phase();
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(launch.executor), 0);
  EXPECT_EQ(second(aclnnMuls, launch), 0);
  EXPECT_EQ(aclSetTensorAddr(launch.executor, 7, from_, x_), 161002) << "it has no such operand";
  expect_clean();
  EXPECT_EQ(aclSetTensorAddr(launch.executor, 0, from_, memory(16)), 0);
  expect_only(19);
  EXPECT_EQ(aclDestroyAclOpExecutor(launch.executor), 0);
}

TEST_F(Phases, F18AWorkspaceOfAnotherSizeOrPlaceIsAViolation) {
  const auto refused = [&](const auto& place, uint64_t more) {
    const Launch launch = first_phase_with_workspace();
    EXPECT_NE(aclnnMuls(place(), launch.size + more, launch.executor, stream), 0);
    expect_only(18);
    close();
  };
  refused([&] { return workspace(); }, 32);
  refused([&]() -> void* { return nullptr; }, 0);
  refused([&] { return static_cast<uint8_t*>(workspace()) + 8; }, 0);
  refused([&] { return pinned(1 << 14); }, 0);
  refused([&] { return memory(1); }, 0);
  refused([&] { return y_; }, 0);
}

TEST_F(Phases, F18AWorkspaceInUseByAnotherStreamIsAViolationUnlessAnEventLiesBetween) {
  for (const bool ordered : {false, true}) {
    const Launch launch = first_phase_with_workspace();
    aclTensor* target = tensor(ACL_FLOAT, {4}, memory(16));
    Launch later;
    for (; later.size == 0;) {  // its size is seeded too
      if (later.executor != nullptr) {
        EXPECT_EQ(second(aclnnMuls, later), 0);
      }
      EXPECT_EQ(aclnnMulsGetWorkspaceSize(from_, factor_, target, &later.size, &later.executor), 0);
    }
    EXPECT_EQ(synchronise(), 0);
    EXPECT_EQ(second(aclnnMuls, launch), 0);
    aclrtStream other = new_stream();
    if (ordered) {
      aclrtEvent event = new_event();
      EXPECT_EQ(aclrtRecordEvent(event, stream), 0);
      EXPECT_EQ(aclrtStreamWaitEvent(other, event), 0);
    }
    EXPECT_EQ(aclnnMuls(workspace(), later.size, later.executor, other), 0);
    if (!ordered) expect_only(18);
    close();
    expect_clean();
  }
}

TEST_F(Phases, F7FreeOfAWorkspaceInUseIsAViolation) {
  const Launch launch = first_phase_with_workspace();
  void* place = memory(launch.size);
  EXPECT_EQ(aclnnMuls(place, launch.size, launch.executor, stream), 0);
  EXPECT_EQ(aclrtFree(place), 0);
  no_longer(memory_, place);
  expect_only(7);
}

TEST_F(Phases, F18TheOpLeavesGarbageInItsWorkspace) {
  const Launch launch = first_phase_with_workspace();
  const std::vector<uint8_t> zeros(1 << 14, 0);
  EXPECT_EQ(aclrtMemcpy(workspace(), zeros.size(), zeros.data(), zeros.size(), ACL_MEMCPY_HOST_TO_DEVICE), 0);
  EXPECT_EQ(second(aclnnMuls, launch), 0);
  EXPECT_EQ(synchronise(), 0);
  uint8_t first = 0;
  ASSERT_EQ(ascend_fake_peek(workspace(), &first, 1), 0);
  EXPECT_NE(first, 0);
}

TEST_F(Phases, F19AnOperandFreedOrMovedBetweenThePhasesIsAViolation) {
  const Launch launch = first_phase();
  EXPECT_EQ(aclSetRawTensorAddr(from_, memory(16)), 0);
  expect_only(19);
  EXPECT_EQ(aclrtFree(x_), 0);
  no_longer(memory_, x_);
  EXPECT_NE(second(aclnnMuls, launch), 0);
  expect_only(19);
}

TEST_F(Phases, F19TheNullStreamIsAViolation) {
  const Launch launch = first_phase();
  EXPECT_NE(aclnnMuls(launch.size == 0 ? nullptr : workspace(), launch.size, launch.executor, nullptr), 0);
  expect_only(19);
}

TEST_F(Phases, F20ValuesAreJudgedWhenTheOpRunsAndNotInPhaseOne) {
  aclTensor* table = floats({2, 2}, {1, 2, 3, 4});
  void* rows = memory(4);
  aclTensor* index = tensor(ACL_INT32, {1}, rows);
  EXPECT_EQ(
      op(aclnnIndexSelectGetWorkspaceSize, aclnnIndexSelect, table, 0, index, tensor(ACL_FLOAT, {1, 2}, memory(8))), 0);
  expect_clean();
  EXPECT_EQ(synchronise(), 507035);
  expect_only(24);
}

}  // namespace
}  // namespace ascend_fake
