// F21 and F25: queues, events and late faults; and what is counted (F53, F54, F56, F58).
#include <cstring>

#include <set>

#include "card_test_fixture.h"

namespace ascend_fake {
namespace {

using Streams = Card;
using Counters = Card;

uint8_t byte_at(const void* device) {
  uint8_t value = 0;
  EXPECT_EQ(ascend_fake_peek(device, &value, 1), 0);
  return value;
}

TEST_F(Streams, F21NothingRunsBeforeASynchronise) {
  void* device = upload(std::vector<uint8_t>(64, 5));
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 9, 64, stream), 0);
  EXPECT_EQ(byte_at(device), 5);
  EXPECT_EQ(synchronise(), 0);
  EXPECT_EQ(byte_at(device), 9);
}

TEST_F(Streams, F21AQueryLetsTheQueueAdvanceUntilItIsEmpty) {
  void* device = memory(64);
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 9, 64, stream), 0);
  aclrtStreamStatus status = ACL_STREAM_STATUS_COMPLETE;
  EXPECT_EQ(aclrtStreamQuery(stream, &status), 0);
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  EXPECT_EQ(aclrtStreamQuery(stream, &status), 0);
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
  EXPECT_EQ(aclrtFree(device), 0) << "the host knows that it ended";
  memory_.clear();
}

TEST_F(Streams, F21TwoStreamsOnTheSameBytesAreAViolation) {
  void* device = memory(64);
  aclrtStream other = new_stream();
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 1, 64, stream), 0);
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 2, 64, other), 0);
  expect_only(21);
}

TEST_F(Streams, F21HowFarAnotherStreamHasComeIsUpToTheSeed) {
  std::set<uint8_t> seen;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    begin(options_of_seed(seed));
    void* mine = memory(64);
    void* theirs = memory(64);
    aclrtStream other = new_stream();
    EXPECT_EQ(aclrtMemsetAsync(theirs, 64, 1, 64, other), 0);
    EXPECT_EQ(aclrtMemsetAsync(mine, 64, 2, 64, stream), 0);
    EXPECT_EQ(synchronise(), 0);
    EXPECT_EQ(byte_at(mine), 2);
    const uint8_t byte = byte_at(theirs);
    if (seed == 0) {
      EXPECT_NE(byte, 1) << "nothing runs before somebody needs it";
    }
    seen.insert(byte);
    close();
  }
  EXPECT_EQ(seen.size(), 2u) << "run, and not run yet";
}

TEST_F(Streams, F21AnEventBetweenThemOrdersThem) {
  void* device = memory(64);
  aclrtStream other = new_stream();
  aclrtEvent event = new_event();
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 1, 64, stream), 0);
  EXPECT_EQ(aclrtRecordEvent(event, stream), 0);
  EXPECT_EQ(aclrtStreamWaitEvent(other, event), 0);
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 2, 64, other), 0);
  EXPECT_EQ(aclrtSynchronizeStream(other), 0);
  EXPECT_EQ(byte_at(device), 2);
}

TEST_F(Streams, F21AnEventTellsTheHostAsFarAsItWasRecorded) {
  void* first = memory(64);
  void* second = memory(64);
  aclrtEvent event = new_event();
  EXPECT_EQ(aclrtMemsetAsync(first, 64, 1, 64, stream), 0);
  EXPECT_EQ(aclrtRecordEvent(event, stream), 0);
  EXPECT_EQ(aclrtMemsetAsync(second, 64, 2, 64, stream), 0);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 0);
  EXPECT_EQ(byte_at(first), 1);
  EXPECT_EQ(byte_at(second), 0xFF);
  aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  EXPECT_EQ(aclrtQueryEventStatus(event, &status), 0);
  EXPECT_EQ(status, ACL_EVENT_RECORDED_STATUS_COMPLETE);
}

TEST_F(Streams, F21AnEventThatNobodyRecordedIsNotWaitedFor) {
  aclrtEvent event = new_event();
  EXPECT_EQ(aclrtStreamWaitEvent(stream, event), 0);
  expect_only(21);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 0);
  expect_only(21);
}

TEST_F(Streams, AWaitEndsAfterAWhileOrNever) {
  aclrtEvent event = new_event();
  EXPECT_EQ(aclrtRecordEvent(event, stream), 0);
  for (const int32_t timeout : {-1, 1000}) {
    EXPECT_EQ(aclrtSynchronizeEventWithTimeout(event, timeout), 0);
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, timeout), 0);
  }
  for (const int32_t timeout : {-2, 0}) {
    EXPECT_EQ(aclrtSynchronizeEventWithTimeout(event, timeout), 107000);
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, timeout), 107000);
  }
}

TEST_F(Streams, ACardHasSoManyStreams) {
  AscendFakeOptions options = options_of_seed(0);
  options.stream_limit = 2;
  begin(options);
  new_stream();
  aclrtStream third = nullptr;
  EXPECT_EQ(aclrtCreateStream(&third), 207008);
}

TEST_F(Streams, F21WithASeedTheQueueMayRunEarlyAndTheRulesStayTheSame) {
  size_t early = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    begin(options_of_seed(seed));
    void* device = upload(std::vector<uint8_t>(64, 5));
    EXPECT_EQ(aclrtMemsetAsync(device, 64, 9, 64, stream), 0);
    if (byte_at(device) == 9) ++early;
    EXPECT_EQ(aclrtFree(device), 0);
    expect_only(7);
    memory_.clear();
    aclrtSynchronizeStream(stream);
    close();
  }
  EXPECT_GE(early, 1u);
  EXPECT_LE(early, 19u);
}

TEST_F(Streams, F21DestroyingAStreamWithWorkIsAViolation) {
  aclrtStream other = new_stream();
  EXPECT_EQ(aclrtMemsetAsync(memory(64), 64, 1, 64, other), 0);
  EXPECT_EQ(aclrtDestroyStream(other), 0);
  no_longer(streams_, other);
  expect_only(21);
}

class LateFaults : public Card {
 protected:
  // A gather past the end, then a memset of device.
  void fault_then_set(void* device) {
    aclTensor* index = tensor(ACL_INT32, {1}, upload(std::vector<int32_t>{2}));
    aclTensor* out = tensor(ACL_FLOAT, {1, 2}, memory(8));
    EXPECT_EQ(op(aclnnGatherV2GetWorkspaceSize, aclnnGatherV2, floats({2, 2}, {1, 2, 3, 4}), 0, index, out), 0);
    EXPECT_EQ(aclrtMemsetAsync(device, 64, 9, 64, stream), 0);
  }
};

TEST_F(LateFaults, F25StopOnFailureDropsEverythingAfterTheFault) {
  void* device = upload(std::vector<uint8_t>(64, 5));
  fault_then_set(device);
  EXPECT_EQ(synchronise(), 507035);
  EXPECT_NE(aclGetRecentErrMsg(), nullptr);
  EXPECT_EQ(byte_at(device), 5);
  EXPECT_EQ(synchronise(), 507035) << "until the stream is destroyed";
}

TEST_F(LateFaults, F25WithoutItTheLaterTasksRun) {
  EXPECT_EQ(aclrtSetStreamFailureMode(stream, 0), 0);
  void* device = upload(std::vector<uint8_t>(64, 5));
  fault_then_set(device);
  EXPECT_EQ(synchronise(), 507035);
  EXPECT_EQ(byte_at(device), 9);
  EXPECT_EQ(synchronise(), 0);
}

TEST_F(LateFaults, F25ATaskFaultsOnDemand) {
  AscendFakeOptions options = options_of_seed(0);
  options.fault_at_task = 2;
  begin(options);
  void* device = memory(64);
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 1, 64, stream), 0);
  EXPECT_EQ(synchronise(), 0);
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 2, 64, stream), 0);
  EXPECT_EQ(synchronise(), 507015);
}

TEST_F(Counters, F53SynchronisationsAreCountedTheHiddenOnesToo) {
  upload(std::vector<float>{1});
  synchronise();
  EXPECT_EQ(counters().synchronisations, 2u);
  EXPECT_EQ(counters().hidden_synchronisations, 1u);
}

TEST_F(Counters, F54AndF56AllocationsAndShapesAfterWarmUpAreCounted) {
  aclTensor* x = floats({4}, {1, 2, 3, 4});
  aclTensor* wide = floats({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(op(aclnnSiluGetWorkspaceSize, aclnnSilu, x, x), 0);
  ascend_fake_warm();
  EXPECT_EQ(op(aclnnSiluGetWorkspaceSize, aclnnSilu, x, x), 0);
  EXPECT_EQ(counters().allocations_after_warm, 0u);
  EXPECT_EQ(counters().shapes_after_warm, 0u);
  memory(64);
  EXPECT_EQ(op(aclnnSiluGetWorkspaceSize, aclnnSilu, wide, wide), 0);
  EXPECT_EQ(counters().allocations_after_warm, 1u);
  EXPECT_EQ(counters().shapes_after_warm, 1u);
}

TEST_F(Counters, F55InternalCopiesOfStridedOperandsAreCountedAndCastsAreNot) {
  void* data = upload(std::vector<float>(16, 1));
  aclTensor* strided = view(ACL_FLOAT, {4, 2}, {4, 1}, 0, data);
  aclTensor* dense = tensor(ACL_FLOAT, {4, 2}, memory(32));
  EXPECT_EQ(op(aclnnCastGetWorkspaceSize, aclnnCast, strided, ACL_FLOAT, dense), 0);
  EXPECT_EQ(op(aclnnInplaceCopyGetWorkspaceSize, aclnnInplaceCopy, strided, dense), 0);
  EXPECT_EQ(counters().internal_copies, 0u);
  EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, strided, scalar(2), dense), 0);
  EXPECT_EQ(counters().internal_copies, 1u);
}

TEST_F(Counters, F55ATransposedWeightIsNoCopy) {
  aclTensor* weight = view(ACL_FLOAT, {4, 2}, {1, 4}, 0, upload(std::vector<float>(8, 1)));
  aclTensor* y = tensor(ACL_FLOAT, {1, 2}, memory(8));
  EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, floats({1, 4}, {1, 2, 3, 4}), weight, y, KEEP_DTYPE), 0);
  EXPECT_EQ(counters().internal_copies, 0u);
}

TEST_F(Counters, F58BytesAreCountedEachWay) {
  download<float>(upload(std::vector<float>{1, 2, 3}), 2);
  EXPECT_EQ(counters().bytes_to_device, 12u);
  EXPECT_EQ(counters().bytes_to_host, 8u);
}

}  // namespace
}  // namespace ascend_fake
