// F44 to F52 and F57: captures, replays, sub-streams and task groups.
#include "card_test_fixture.h"

namespace ascend_fake {
namespace {

constexpr auto kThreadLocal = ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;

class Capturing : public Card {
 protected:
  void SetUp() override {
    Card::SetUp();
    x_ = upload(std::vector<float>{1, 2});
    y_ = upload(std::vector<float>{0, 0});
    from_ = tensor(ACL_FLOAT, {2}, x_);
    to_ = tensor(ACL_FLOAT, {2}, y_);
    two_ = scalar(2);
    workspace();
  }
  int twice() { return op(aclnnMulsGetWorkspaceSize, aclnnMuls, from_, two_, to_); }
  aclmdlRI captured_twice() {
    return begin_and_end_capture([&] { EXPECT_EQ(twice(), 0); });
  }
  // The capture that a refused call made invalid.
  void expect_invalid() {
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    aclmdlRI graph = nullptr;
    EXPECT_EQ(aclmdlRICaptureGetInfo(stream, &status, &graph), 0);
    EXPECT_EQ(status, ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(aclmdlRICaptureEnd(stream, &graph), 107024);
    EXPECT_EQ(graph, nullptr);
  }
  void begin_capture(aclmdlRICaptureMode mode = kThreadLocal) { EXPECT_EQ(aclmdlRICaptureBegin(stream, mode), 0); }
  void end_capture(int code = 0) {
    aclmdlRI graph = nullptr;
    EXPECT_EQ(aclmdlRICaptureEnd(stream, &graph), code);
    if (graph != nullptr) graphs_.push_back(graph);
  }

  void* x_ = nullptr;
  void* y_ = nullptr;
  aclTensor* from_ = nullptr;
  aclTensor* to_ = nullptr;
  aclScalar* two_ = nullptr;
};

TEST_F(Capturing, F44ASynchroniseQueryOrDestroyOfTheStreamIsRefusedAndInvalidates) {
  aclrtStreamStatus status{};
  begin_capture();
  EXPECT_EQ(aclrtSynchronizeStream(stream), 107027);
  expect_invalid();
  begin_capture(ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(aclrtStreamQuery(stream, &status), 107027);
  expect_invalid();
  begin_capture();
  EXPECT_EQ(aclrtDestroyStream(stream), 107027);
  expect_invalid();
}

TEST_F(Capturing, F44ACapturingEventCannotBeWaitedForByTheHost) {
  aclrtEvent event = new_event();
  begin_capture();
  EXPECT_EQ(aclrtRecordEvent(event, stream), 0);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 107028);
  expect_invalid();
}

TEST_F(Capturing, F44ABlockingCopyIsRefusedUnlessRelaxed) {
  float value = 0;
  begin_capture();
  EXPECT_EQ(aclrtMemcpy(&value, 4, x_, 4, ACL_MEMCPY_DEVICE_TO_HOST), 107030);
  expect_invalid();
  begin_capture(ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(aclrtMemcpy(&value, 4, x_, 4, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  end_capture();
  begin_capture();
  aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(aclmdlRICaptureThreadExchangeMode(&mode), 0);
  EXPECT_EQ(mode, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(aclrtMemcpy(&value, 4, x_, 4, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  end_capture();
}

TEST_F(Capturing, F44AnotherThreadsBlockingCopyIsAViolation) {
  begin_capture();
  std::thread([&] {
    float value = 0;
    EXPECT_EQ(aclrtSetDevice(0), 0);
    EXPECT_EQ(aclrtMemcpy(&value, 4, x_, 4, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  }).join();
  expect_only(44);
  end_capture();
}

TEST_F(Capturing, F44APageableCopyAndTheDefaultStreamAreRefusedAndAPinnedCopyIsNot) {
  std::vector<float> host(2);
  begin_capture();
  EXPECT_EQ(aclrtMemcpyAsync(x_, 8, host.data(), 8, ACL_MEMCPY_HOST_TO_DEVICE, stream), 107041);
  expect_invalid();
  EXPECT_EQ(aclmdlRICaptureBegin(nullptr, kThreadLocal), 107031);
  begin_capture();
  EXPECT_EQ(aclrtMemsetAsync(x_, 8, 0, 8, nullptr), 107031);
  expect_invalid();
  void* pinned_host = pinned(8);
  begin_capture();
  EXPECT_EQ(aclrtMemcpyAsync(x_, 8, pinned_host, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
  end_capture();
}

TEST_F(Capturing, F45EndsThatDoNotFitTheirBeginAreRefused) {
  aclmdlRI graph = nullptr;
  EXPECT_EQ(aclmdlRICaptureEnd(stream, &graph), 107029);
  aclrtStream other = new_stream();
  begin_capture();
  EXPECT_EQ(aclmdlRICaptureBegin(stream, kThreadLocal), 107027);
  EXPECT_EQ(aclmdlRICaptureEnd(other, &graph), 107036);
  std::thread([&] {
    EXPECT_EQ(aclrtSetDevice(0), 0);
    aclmdlRI foreign = nullptr;
    EXPECT_EQ(aclmdlRICaptureEnd(stream, &foreign), 107038);
  }).join();
  end_capture();
}

TEST_F(Capturing, F46ADeviceToDeviceCopyInsideIsRefusedAndInplaceCopyIsNot) {
  begin_capture();
  EXPECT_EQ(aclrtMemcpyAsync(y_, 8, x_, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), 507009);
  expect_invalid();
  begin_capture();
  EXPECT_EQ(op(aclnnInplaceCopyGetWorkspaceSize, aclnnInplaceCopy, to_, from_), 0);
  end_capture();
}

TEST_F(Capturing, F46AllocationFreeAndConversionInsideAreViolations) {
  aclTensor* weight = tensor(ACL_FLOAT16, {16, 16}, cast_up(ACL_FLOAT16, std::vector<float>(256, 1)));
  synchronise();
  begin_capture();
  void* inside = memory(64);
  expect_only(46);
  EXPECT_EQ(aclrtFree(inside), 0);
  no_longer(memory_, inside);
  expect_only(46);
  EXPECT_EQ(op(aclnnTransMatmulWeightGetWorkspaceSize, aclnnTransMatmulWeight, weight), 0);
  expect_only(46);
  end_capture();
}

TEST_F(Capturing, F47CapturedOpsRunWithTheFirstReplayAndNotBefore) {
  aclmdlRI graph = captured_twice();
  EXPECT_EQ(download<float>(y_, 2), (std::vector<float>{0, 0}));
  expect_only(47);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream), 0);
  EXPECT_EQ(download<float>(y_, 2), (std::vector<float>{2, 4}));
}

TEST_F(Capturing, F47AnOpThatReadsAResultBeforeTheFirstReplayIsAViolation) {
  captured_twice();
  EXPECT_EQ(op(aclnnSiluGetWorkspaceSize, aclnnSilu, to_, to_), 0);
  expect_only(47);
}

TEST_F(Capturing, F47WhatAnotherOpWroteSinceMayBeRead) {
  captured_twice();
  EXPECT_EQ(twice(), 0);
  EXPECT_EQ(synchronise(), 0);
  EXPECT_EQ(op(aclnnSiluGetWorkspaceSize, aclnnSilu, to_, to_), 0);
}

TEST_F(Capturing, F47AGraphMayUseTheScratchOfOneThatWasNotReplayedYet) {
  const auto through_y = [&] {
    EXPECT_EQ(twice(), 0);
    EXPECT_EQ(op(aclnnSiluGetWorkspaceSize, aclnnSilu, to_, to_), 0);
  };
  aclmdlRI first = begin_and_end_capture(through_y);
  begin_and_end_capture(through_y);
  EXPECT_EQ(aclmdlRIExecuteAsync(first, stream), 0);
}

TEST_F(Capturing, F48ReplayAfterAnOperandWasFreedIsAViolation) {
  aclmdlRI graph = captured_twice();
  EXPECT_EQ(aclrtFree(x_), 0);
  no_longer(memory_, x_);
  expect_only(7);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream), 0);
  expect_only(48);
  EXPECT_EQ(synchronise(), 507015);
}

// A captured matrix product with a workspace that nothing else uses.
class CapturedProduct : public Capturing {
 protected:
  void SetUp() override {
    Capturing::SetUp();
    rows_ = tensor(ACL_FLOAT16, {2, 16}, cast_up(ACL_FLOAT16, std::vector<float>(32, 2)));
    weight_ = tensor(ACL_FLOAT16, {16, 16}, cast_up(ACL_FLOAT16, std::vector<float>(256, 1)));
    product_ = memory(32 * 4);
    own_workspace_ = memory(1 << 14);
    aclTensor* out = tensor(ACL_FLOAT, {2, 16}, product_);
    EXPECT_EQ(synchronise(), 0);
    graph_ = begin_and_end_capture([&] {
      Launch launch;
      EXPECT_EQ(aclnnMmGetWorkspaceSize(rows_, weight_, out, KEEP_DTYPE, &launch.size, &launch.executor), 0);
      ASSERT_GT(launch.size, 0u) << "these shapes need no workspace: take others";
      EXPECT_EQ(aclnnMm(own_workspace_, launch.size, launch.executor, stream), 0);
    });
  }
  aclTensor* rows_ = nullptr;
  aclTensor* weight_ = nullptr;
  void* product_ = nullptr;
  void* own_workspace_ = nullptr;
  aclmdlRI graph_ = nullptr;
};

TEST_F(CapturedProduct, F48ReplayAfterItsWorkspaceWasFreedIsAViolation) {
  EXPECT_EQ(aclrtFree(own_workspace_), 0);
  no_longer(memory_, own_workspace_);
  expect_only(7);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph_, stream), 0);
  expect_only(48);
  EXPECT_EQ(synchronise(), 507015);
}

TEST_F(CapturedProduct, F48ReplayAfterAnOperandWasConvertedIsAViolation) {
  EXPECT_EQ(op(aclnnTransMatmulWeightGetWorkspaceSize, aclnnTransMatmulWeight, weight_), 0);
  EXPECT_EQ(synchronise(), 0);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph_, stream), 0);
  expect_only(48);
}

TEST_F(CapturedProduct, F48ItsWorkspaceMayHoldWhateverElseBetweenReplays) {
  for (int replay = 0; replay < 2; ++replay) {
    EXPECT_EQ(aclrtMemsetAsync(own_workspace_, 1 << 14, replay, 1 << 14, stream), 0);
    EXPECT_EQ(aclmdlRIExecuteAsync(graph_, stream), 0);
    EXPECT_EQ(download<float>(product_, 32), std::vector<float>(32, 32));
  }
}

TEST_F(Capturing, F48DestroyWhileAReplayIsQueuedIsAViolation) {
  aclmdlRI graph = captured_twice();
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream), 0);
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
  expect_only(48);
  graphs_.clear();
}

TEST_F(Capturing, F48AGraphThatIsGoneIsNeitherReplayedNorDestroyed) {
  aclmdlRI graph = captured_twice();
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
  graphs_.clear();
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream), 107017);
  expect_only(48);
  EXPECT_EQ(aclmdlRIDestroy(graph), 107017);
  expect_only(48);
}

TEST_F(Capturing, F48MemoryMayGoAfterTheGraph) {
  aclmdlRI graph = captured_twice();
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream), 0);
  EXPECT_EQ(synchronise(), 0);
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
  graphs_.clear();
  EXPECT_EQ(aclrtFree(x_), 0);
  no_longer(memory_, x_);
}

class SubStreams : public Capturing {
 protected:
  void SetUp() override {
    Capturing::SetUp();
    side_ = new_stream();
    fork_ = new_event();
    join_ = new_event();
    z_ = memory(64);
  }
  void fork() {
    begin_capture();
    EXPECT_EQ(aclrtRecordEvent(fork_, stream), 0);
    EXPECT_EQ(aclrtStreamWaitEvent(side_, fork_), 0);
    EXPECT_EQ(aclrtMemsetAsync(z_, 64, 3, 64, side_), 0);
  }
  void rejoin() {
    EXPECT_EQ(aclrtRecordEvent(join_, side_), 0);
    EXPECT_EQ(aclrtStreamWaitEvent(stream, join_), 0);
  }
  aclrtStream side_ = nullptr;
  aclrtEvent fork_ = nullptr;
  aclrtEvent join_ = nullptr;
  void* z_ = nullptr;
};

TEST_F(SubStreams, F49ASubStreamThatDoesNotComeBackIsRefused) {
  fork();
  end_capture(107025);
}

TEST_F(SubStreams, F49ATaskAfterTheReturnIsAViolation) {
  fork();
  rejoin();
  EXPECT_EQ(aclrtMemsetAsync(z_, 64, 4, 64, side_), 0);
  end_capture();
  expect_only(49);
}

TEST_F(SubStreams, F49ASubStreamThatReturnsIsPartOfTheGraph) {
  fork();
  rejoin();
  end_capture();
  EXPECT_EQ(aclmdlRIExecuteAsync(graphs_.back(), stream), 0);
  EXPECT_EQ(download<uint8_t>(z_, 1)[0], 3);
}

TEST_F(SubStreams, F49AnEventOfOutsideIsNotWaitedForInACapture) {
  EXPECT_EQ(aclrtRecordEvent(fork_, side_), 0);
  begin_capture();
  EXPECT_EQ(aclrtStreamWaitEvent(stream, fork_), 0);
  expect_only(49);
  end_capture();
}

TEST_F(SubStreams, F21CapturedStreamsOnTheSameBytesAreAViolation) {
  fork();
  EXPECT_EQ(aclrtMemsetAsync(z_, 64, 4, 64, stream), 0);
  expect_only(21);
  rejoin();
  end_capture();
}

TEST_F(Capturing, F50AReplaySeesDeviceMemoryAndTheHostValuesOfTheCapture) {
  aclmdlRI graph = captured_twice();
  EXPECT_EQ(aclDestroyScalar(two_), 0);
  scalars_.clear();
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream), 0);
  EXPECT_EQ(synchronise(), 0);
  const std::vector<float> fresh{5, 7};
  EXPECT_EQ(aclrtMemcpy(x_, 8, fresh.data(), 8, ACL_MEMCPY_HOST_TO_DEVICE), 0);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream), 0);
  EXPECT_EQ(download<float>(y_, 2), (std::vector<float>{10, 14}));
}

TEST_F(Capturing, F51OutOfStreamsAfterSoManyGraphsUntilOneIsDestroyed) {
  close();
  AscendFakeOptions options = options_of_seed(0);
  options.graph_limit = 1;
  begin(options);
  void* z = memory(64);
  const auto body = [&] { EXPECT_EQ(aclrtMemsetAsync(z, 64, 0, 64, stream), 0); };
  aclmdlRI first = begin_and_end_capture(body);
  EXPECT_EQ(aclmdlRICaptureBegin(stream, kThreadLocal), 207008);
  EXPECT_EQ(aclmdlRIDestroy(first), 0);
  graphs_.clear();
  begin_and_end_capture(body);
}

TEST_F(Capturing, F57AReplayedStepHasNoPhaseOne) {
  aclmdlRI graph = captured_twice();
  const uint64_t before = counters().phase_one_calls;
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, stream), 0);
  EXPECT_EQ(synchronise(), 0);
  EXPECT_EQ(counters().phase_one_calls, before);
  EXPECT_EQ(counters().replays, 1u);
}

class TaskGroups : public Capturing {
 protected:
  void SetUp() override {
    Capturing::SetUp();
    updater_ = new_stream();
    external_ = new_event(ACL_EVENT_EXTERNAL);
    three_ = scalar(3);
    graph_ = begin_and_end_capture([&] {
      EXPECT_EQ(aclrtStreamWaitEvent(stream, external_), 0);
      EXPECT_EQ(aclrtResetEvent(external_, stream), 0);
      EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream), 0);
      EXPECT_EQ(twice(), 0);
      EXPECT_EQ(aclmdlRICaptureTaskGrpEnd(stream, &group_), 0);
    });
  }
  int thrice_on(aclrtStream target) {
    Launch launch;
    EXPECT_EQ(aclnnMulsGetWorkspaceSize(from_, three_, to_, &launch.size, &launch.executor), 0);
    return aclnnMuls(launch.size == 0 ? nullptr : workspace(), launch.size, launch.executor, target);
  }
  void update() {
    EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(updater_, group_), 0);
    EXPECT_EQ(thrice_on(updater_), 0);
    EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(updater_), 0);
  }
  aclrtStream updater_ = nullptr;
  aclrtEvent external_ = nullptr;
  aclScalar* three_ = nullptr;
  aclmdlRI graph_ = nullptr;
  aclrtTaskGrp group_ = nullptr;
};

TEST_F(TaskGroups, F52AnUpdateOrderedByAnExternalEventReachesTheReplay) {
  update();
  EXPECT_EQ(aclrtRecordEvent(external_, updater_), 0);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph_, stream), 0);
  EXPECT_EQ(download<float>(y_, 2), (std::vector<float>{3, 6}));
}

TEST_F(TaskGroups, F52AReplayThatIsNotOrderedAfterTheUpdateIsAViolation) {
  EXPECT_EQ(aclrtRecordEvent(external_, updater_), 0);
  update();
  EXPECT_EQ(aclmdlRIExecuteAsync(graph_, stream), 0);
  expect_only(52);
}

TEST_F(TaskGroups, F52EventsOfOutsideAreRecordedOutsideAndNoOthersAreResetInside) {
  begin_capture();
  EXPECT_EQ(aclrtRecordEvent(external_, stream), 0);
  expect_only(52);
  EXPECT_EQ(aclrtResetEvent(new_event(), stream), 0);
  expect_only(52);
  end_capture();
}

TEST_F(TaskGroups, F48AnEventThatAGraphWaitsForStaysUntilTheGraphIsGone) {
  EXPECT_EQ(aclrtDestroyEvent(external_), 0);
  no_longer(events_, external_);
  expect_only(48);
}

TEST_F(TaskGroups, F52AnUpdateIsOfAGroupThatIsThere) {
  int nothing = 0;
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(updater_, &nothing), 107017);
}

TEST_F(TaskGroups, F52AnEventThatNobodyRecordedWouldHang) {
  EXPECT_EQ(aclmdlRIExecuteAsync(graph_, stream), 0);
  expect_only(52);
}

TEST_F(TaskGroups, F52AnUpdateThatRacesWithTheLastReplayIsAViolation) {
  EXPECT_EQ(aclrtRecordEvent(external_, updater_), 0);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph_, stream), 0);
  update();
  expect_only(52);
}

TEST_F(TaskGroups, F52UpdatesOnACapturingStreamOrOfOtherTasksAreRefused) {
  begin_capture();
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(stream, group_), 107027);
  end_capture();
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(updater_, group_), 0);
  EXPECT_NE(aclmdlRICaptureTaskUpdateBegin(new_stream(), group_), 0);
  expect_only(52);
  EXPECT_NE(aclmdlRICaptureTaskUpdateEnd(updater_), 0) << "without a task";
  expect_only(52);
}

TEST_F(TaskGroups, F52AnUpdateOfAnotherKindOrNumberOfTasksIsAViolation) {
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(updater_, group_), 0);
  EXPECT_EQ(thrice_on(updater_), 0);
  EXPECT_EQ(thrice_on(updater_), 0);
  EXPECT_NE(aclmdlRICaptureTaskUpdateEnd(updater_), 0) << "two tasks for one";
  expect_only(52);
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(updater_, group_), 0);
  Launch launch;
  EXPECT_EQ(aclnnSiluGetWorkspaceSize(from_, to_, &launch.size, &launch.executor), 0);
  EXPECT_EQ(aclnnSilu(launch.size == 0 ? nullptr : workspace(), launch.size, launch.executor, updater_), 0);
  EXPECT_NE(aclmdlRICaptureTaskUpdateEnd(updater_), 0) << "another operator";
  expect_only(52);
}

TEST_F(TaskGroups, F52GroupsAreOpenedAndClosedOnce) {
  aclrtTaskGrp group = nullptr;
  EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream), 107029);
  begin_capture();
  EXPECT_EQ(aclmdlRICaptureTaskGrpEnd(stream, &group), 107034);
  EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream), 0);
  EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream), 107033);
  EXPECT_EQ(twice(), 0);
  EXPECT_EQ(aclmdlRICaptureTaskGrpEnd(stream, &group), 0);
  end_capture();
}

}  // namespace
}  // namespace ascend_fake
