// F1 to F11: life cycle and memory.
#include <cstring>

#include "card_test_fixture.h"

namespace ascend_fake {
namespace {

using LifeCycle = Card;
using Memory = Card;

TEST_F(LifeCycle, F1ACallBeforeInitIsAViolation) {
  close();
  ascend_fake_reset(nullptr);
  void* device = nullptr;
  EXPECT_EQ(aclrtMalloc(&device, 64, ACL_MEM_MALLOC_HUGE_FIRST), 100001);
  expect_only(1);
}

TEST_F(LifeCycle, F1TheSecondInitSaysSo) {
  EXPECT_EQ(aclInit(nullptr), 100002);
}

TEST_F(LifeCycle, F2AThreadWithoutAContextIsRefusedUntilItHasOne) {
  aclrtContext context = nullptr;
  ASSERT_EQ(aclrtCreateContext(&context, 0), 0);
  std::thread([&] {
    void* device = nullptr;
    EXPECT_EQ(aclrtMalloc(&device, 64, ACL_MEM_MALLOC_HUGE_FIRST), 107002);
    EXPECT_NE(aclGetRecentErrMsg(), nullptr);
    EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
    EXPECT_EQ(aclrtSetCurrentContext(context), 0);
    EXPECT_EQ(aclrtMalloc(&device, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    EXPECT_EQ(aclrtFree(device), 0);
  }).join();
  EXPECT_EQ(aclrtSynchronizeStream(stream), 107003) << "a stream of the default context";
  EXPECT_EQ(aclrtDestroyContext(context), 0);
  EXPECT_EQ(aclrtSetDevice(0), 0);
}

TEST_F(LifeCycle, F2AHandleThatNobodyMadeOrThatIsGoneIsAViolation) {
  int nothing = 0;
  EXPECT_EQ(aclrtSynchronizeStream(&nothing), 107017);
  expect_only(2);
  aclrtStream gone = new_stream();
  EXPECT_EQ(aclrtDestroyStream(gone), 0);
  no_longer(streams_, gone);
  EXPECT_EQ(aclrtSynchronizeStream(gone), 107017);
  expect_only(2);
  EXPECT_EQ(aclrtSetCurrentContext(&nothing), 107017);
  expect_only(2);
  EXPECT_EQ(aclrtDestroyContext(&nothing), 107017);
  expect_only(2);
  EXPECT_EQ(synchronise(), 0) << "the thread keeps its context";
}

TEST_F(LifeCycle, F2AnEventThatNobodyMadeIsAViolation) {
  int nothing = 0;
  EXPECT_EQ(aclrtRecordEvent(&nothing, stream), 107017);
  expect_only(2);
}

TEST_F(LifeCycle, F3AContextGoesAfterItsStreams) {
  for (const bool first : {true, false}) {
    aclrtContext context = nullptr;
    aclrtStream own = nullptr;
    EXPECT_EQ(aclrtCreateContext(&context, 0), 0);
    EXPECT_EQ(aclrtCreateStream(&own), 0);
    if (first) {
      EXPECT_EQ(aclrtDestroyStream(own), 0);
    }
    EXPECT_EQ(aclrtDestroyContext(context), 0);
    if (!first) expect_only(3);
    expect_clean();
    begin(options_of_seed(0));
  }
}

TEST_F(LifeCycle, F3FinaliseNamesEventsGraphsAndExecutors) {
  new_event();
  aclTensor* x = floats({2}, {1, 2});
  aclTensor* y = tensor(ACL_FLOAT, {2}, memory(8));
  aclScalar* two = scalar(2);
  begin_and_end_capture([&] { EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, x, two, y), 0); });
  Launch launch;
  EXPECT_EQ(aclnnMulsGetWorkspaceSize(x, two, y, &launch.size, &launch.executor), 0);
  EXPECT_EQ(aclFinalize(), 0);
  std::string named;
  for (size_t i = 0; i < ascend_fake_violations(); ++i) named += std::string(ascend_fake_violation(i)) + "\n";
  for (const char* object : {"event of call", "graph of call", "executor of call"})
    EXPECT_NE(named.find(object), std::string::npos) << object << " in " << named;
  expect_only(3);
  EXPECT_EQ(aclInit(nullptr), 0);
  EXPECT_EQ(second(aclnnMuls, launch), 0);
}

TEST_F(LifeCycle, F3FinaliseNamesEverythingThatIsAliveWithItsCall) {
  void* device = memory(100);
  aclTensor* left = tensor(ACL_FLOAT, {4}, device);
  EXPECT_EQ(aclFinalize(), 0);
  EXPECT_EQ(ascend_fake_violations(), 3u) << "a stream, memory and a tensor";
  EXPECT_NE(std::string(ascend_fake_violation(1)).find("100 bytes of device memory"), std::string::npos);
  expect_only(3);
  EXPECT_EQ(aclInit(nullptr), 0);
  EXPECT_NE(left, nullptr);
}

TEST_F(LifeCycle, F3ResetOfTheDeviceIsQuietWhenNothingIsAlive) {
  aclrtDestroyStream(stream);
  streams_.clear();
  EXPECT_EQ(aclrtResetDevice(0), 0);
  expect_clean();
}

TEST_F(LifeCycle, F3ResetOfADeviceNamesWhatIsItsOwn) {
  AscendFakeOptions options = options_of_seed(0);
  options.device_count = 2;
  begin(options);
  memory(64);
  EXPECT_EQ(aclrtSetDevice(1), 0);
  EXPECT_EQ(aclrtResetDevice(1), 0);
  expect_clean();
  EXPECT_EQ(aclrtSetDevice(1), 0);
  void* left = nullptr;
  EXPECT_EQ(aclrtMalloc(&left, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  EXPECT_EQ(aclrtResetDevice(1), 0);
  EXPECT_EQ(ascend_fake_violations(), 1u);
  expect_only(3);
  EXPECT_EQ(aclrtSetDevice(0), 0);
  EXPECT_EQ(aclrtFree(left), 0);
}

TEST_F(LifeCycle, F4ASymbolOfANewerVersionIsAViolation) {
  AscendFakeOptions options = options_of_seed(0);
  options.profile = 81;
  begin(options);
  Launch launch;
  aclTensor* a = floats({2, 2}, {1, 2, 3, 4});
  EXPECT_NE(aclnnMatmulWeightNzGetWorkspaceSize(a, a, a, KEEP_DTYPE, &launch.size, &launch.executor), 0);
  expect_only(4);
  EXPECT_EQ(aclrtSetSysParamOpt(ACL_OPT_STRONG_CONSISTENCY, 1), 0);
  expect_only(4);
  int32_t major = 0, minor = 0, patch = 0;
  EXPECT_EQ(aclrtGetVersion(&major, &minor, &patch), 0);
  EXPECT_EQ(minor, 13);
}

TEST_F(LifeCycle, F4ALevelOfANewerVersionIsAViolation) {
  EXPECT_EQ(aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, 2), 100000);
  expect_only(4);
}

TEST_F(LifeCycle, F4TheProfilesOwnSymbolsAreFree) {
  EXPECT_EQ(aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1), 0);
  EXPECT_EQ(aclrtSetSysParamOpt(ACL_OPT_STRONG_CONSISTENCY, 1), 0);
  EXPECT_STREQ(aclrtGetSocName(), "Ascend910B4");
  EXPECT_STREQ(ascend_fake_name(), "ascend (fake)");
}

TEST_F(Memory, F5NothingNullAndTooMuchAreRefused) {
  void* device = nullptr;
  EXPECT_EQ(aclrtMalloc(&device, 0, ACL_MEM_MALLOC_HUGE_FIRST), 107000);
  EXPECT_EQ(aclrtFree(nullptr), 107000);
  device = memory(64);
  std::vector<uint8_t> host(64);
  EXPECT_EQ(aclrtMemcpy(device, 32, host.data(), 64, ACL_MEMCPY_HOST_TO_DEVICE), 107000);
}

TEST_F(Memory, F5DoubleFreeForeignPointersWrongKindsAndRangesAreViolations) {
  void* device = memory(64);
  std::vector<uint8_t> host(128);
  EXPECT_NE(aclrtFree(host.data()), 0);
  expect_only(5);
  EXPECT_NE(aclrtMemcpy(device, 128, host.data(), 128, ACL_MEMCPY_HOST_TO_DEVICE), 0);
  expect_only(5);
  EXPECT_NE(aclrtMemcpy(device, 64, host.data(), 64, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  expect_only(5);
  EXPECT_EQ(aclrtFree(device), 0);
  EXPECT_NE(aclrtFree(device), 0);
  expect_only(5);
  memory_.clear();
}

TEST_F(Memory, F5PinnedMemoryIsFreedOnceAndFromItsBeginning) {
  auto* host = static_cast<uint8_t*>(pinned(64));
  EXPECT_EQ(aclrtFreeHost(host + 32), 107000);
  expect_only(5);
  EXPECT_EQ(aclrtFreeHost(host), 0);
  pinned_.clear();
  EXPECT_EQ(aclrtFreeHost(host), 107000);
  expect_only(5);
  EXPECT_EQ(aclrtFreeHost(nullptr), 107000);
}

TEST_F(Memory, F5ACopyOntoItselfIsAViolationAndOneBesideItIsNot) {
  auto* device = static_cast<uint8_t*>(upload(std::vector<uint8_t>(128, 7)));
  EXPECT_EQ(aclrtMemcpyAsync(device + 64, 64, device, 64, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), 0);
  expect_clean();
  EXPECT_EQ(aclrtMemcpyAsync(device + 32, 64, device, 64, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), 0);
  expect_only(5);
}

TEST_F(Memory, F5AMemsetOfNothingOrOfMoreThanThereIsIsRefused) {
  void* device = memory(64);
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 0, 0, stream), 107000);
  EXPECT_EQ(aclrtMemsetAsync(device, 32, 0, 64, stream), 107000);
  EXPECT_EQ(aclrtMemsetAsync(nullptr, 64, 0, 64, stream), 107000);
}

TEST_F(Memory, F5ACopyForthAndBackKeepsTheBytes) {
  const std::vector<int32_t> values{1, -2, 3};
  EXPECT_EQ(download<int32_t>(upload(values), 3), values);
}

TEST_F(Memory, F6FreshMemoryIsNanAndHugeAndItsAddressIsNotOfTheHost) {
  void* device = memory(64);
  float as_float = 0;
  int32_t as_integer = 0;
  uint16_t half = 0;
  ASSERT_EQ(ascend_fake_peek(device, &as_float, 4), 0);
  ASSERT_EQ(ascend_fake_peek(device, &as_integer, 4), 0);
  ASSERT_EQ(ascend_fake_peek(device, &half, 2), 0);
  EXPECT_TRUE(std::isnan(as_float));
  EXPECT_GT(as_integer, 1 << 30);
  EXPECT_EQ(half, 0x7FFF);
  EXPECT_EQ(reinterpret_cast<uint64_t>(device) % 64, 0u);
  EXPECT_GE(reinterpret_cast<uint64_t>(device) >> 48, 1u) << "no host has such an address";
}

TEST_F(Memory, F6BetweenAllocationsLiesMemoryOfNobodyAndWhatIsFreedIsGone) {
  void* one = memory(64);
  void* other = memory(64);
  const auto distance = reinterpret_cast<int64_t>(other) - reinterpret_cast<int64_t>(one);
  EXPECT_GE(std::abs(distance), 64 + 32);
  uint8_t byte = 0;
  EXPECT_EQ(ascend_fake_peek(static_cast<uint8_t*>(one) + 64, &byte, 32), 1) << "the guard";
  EXPECT_NE(aclrtMemsetAsync(one, 65, 0, 65, stream), 0);
  expect_only(5);
  EXPECT_EQ(aclrtFree(one), 0);
  no_longer(memory_, one);
  EXPECT_EQ(ascend_fake_peek(one, &byte, 1), 1);
}

TEST_F(Memory, F7FreeOfMemoryThatALiveGraphUsesIsAViolation) {
  aclTensor* x = floats({2}, {1, 2});
  void* target = memory(8);
  aclTensor* y = tensor(ACL_FLOAT, {2}, target);
  aclScalar* two = scalar(2);
  begin_and_end_capture([&] { EXPECT_EQ(op(aclnnMulsGetWorkspaceSize, aclnnMuls, x, two, y), 0); });
  EXPECT_EQ(aclrtFree(target), 0);
  no_longer(memory_, target);
  expect_only(7);
}

TEST_F(Memory, F7FreeOfMemoryWithQueuedUsersIsAViolation) {
  void* device = memory(64);
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 0, 64, stream), 0);
  EXPECT_EQ(aclrtFree(device), 0);
  expect_only(7);
  memory_.clear();
  EXPECT_EQ(synchronise(), 507015) << "the task found its memory gone";
}

TEST_F(Memory, F7FreeAfterTheSynchroniseIsFine) {
  void* device = memory(64);
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 0, 64, stream), 0);
  EXPECT_EQ(synchronise(), 0);
  EXPECT_EQ(aclrtFree(device), 0);
  memory_.clear();
}

TEST_F(Memory, F8APageableAsyncCopyCountsAsSynchronisationAndAPinnedOneDoesNot) {
  void* device = memory(64);
  std::vector<uint8_t> pageable(64, 1);
  EXPECT_EQ(aclrtMemcpyAsync(device, 64, pageable.data(), 64, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
  EXPECT_EQ(counters().hidden_synchronisations, 1u);
  void* host = pinned(64);
  std::memset(host, 2, 64);
  EXPECT_EQ(aclrtMemcpyAsync(device, 64, host, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
  EXPECT_EQ(counters().hidden_synchronisations, 1u);
  EXPECT_EQ(aclrtMemcpyAsync(host, 64, pageable.data(), 64, ACL_MEMCPY_HOST_TO_HOST, stream), 207000);
}

TEST_F(Memory, F9ABlockingCopyOfBytesWithQueuedUsersIsAViolation) {
  void* device = memory(64);
  std::vector<uint8_t> host(64);
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 0, 64, stream), 0);
  EXPECT_EQ(aclrtMemcpy(host.data(), 64, device, 64, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  EXPECT_EQ(ascend_fake_violation_rule(0), 9);
  EXPECT_EQ(ascend_fake_violation_rule(1), 24) << "the memset has not run: the bytes are nobody's";
  ascend_fake_clear_violations();
}

TEST_F(Memory, F9ABlockingCopyOfOtherBytesIsFine) {
  void* device = memory(128);
  std::vector<uint8_t> host(64, 3);
  EXPECT_EQ(aclrtMemsetAsync(device, 64, 0, 64, stream), 0);
  EXPECT_EQ(aclrtMemcpy(static_cast<uint8_t*>(device) + 64, 64, host.data(), 64, ACL_MEMCPY_HOST_TO_DEVICE), 0);
}

TEST_F(Memory, F10APinnedSourceThatChangesBeforeTheCopyRunsIsAViolation) {
  void* device = memory(64);
  void* host = pinned(64);
  std::memset(host, 1, 64);
  EXPECT_EQ(aclrtMemcpyAsync(device, 64, host, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
  std::memset(host, 2, 64);
  EXPECT_EQ(synchronise(), 0);
  expect_only(10);
}

class PinnedSource : public Memory {
 protected:
  // Two copies from one pinned block, with an event behind each; the first event has been waited for.
  uint8_t* copied_twice() {
    auto* host = static_cast<uint8_t*>(pinned(128));
    std::memset(host, 1, 128);
    aclrtEvent first = nullptr;
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(aclrtMemcpyAsync(memory(64), 64, host + 64 * i, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
      aclrtEvent event = new_event(ACL_EVENT_CAPTURE_STREAM_PROGRESS);
      EXPECT_EQ(aclrtRecordEvent(event, stream), 0);
      if (first == nullptr) first = event;
    }
    EXPECT_EQ(aclrtSynchronizeEvent(first), 0);
    return host;
  }
};

TEST_F(PinnedSource, F10MayChangeWhenTheEventBehindItsCopyWasWaitedFor) {
  std::memset(copied_twice(), 2, 64);
  EXPECT_EQ(synchronise(), 0);
}

TEST_F(PinnedSource, F10ThatChangesWhenTheEventOfAnEarlierCopyWasWaitedForIsAViolation) {
  std::memset(copied_twice() + 64, 2, 64);
  EXPECT_EQ(synchronise(), 0);
  expect_only(10);
}

TEST_F(Memory, F10APinnedTargetHoldsPoisonUntilTheSynchronise) {
  void* device = upload(std::vector<float>{1, 2, 3});
  auto* host = static_cast<float*>(pinned(12));
  host[0] = 7;
  EXPECT_EQ(aclrtMemcpyAsync(host, 12, device, 12, ACL_MEMCPY_DEVICE_TO_HOST, stream), 0);
  EXPECT_GT(host[0], 1e38f);
  EXPECT_EQ(synchronise(), 0);
  EXPECT_EQ(host[2], 3);
}

TEST_F(Memory, F11TheNthAllocationFailsAndNoOther) {
  AscendFakeOptions options = options_of_seed(0);
  options.fail_allocation = 2;
  begin(options);
  void* device = memory(64);
  EXPECT_EQ(aclrtMalloc(&device, 64, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
  memory(64);
}

TEST_F(Memory, F11MoreThanTheCardHasIsRefused) {
  AscendFakeOptions options = options_of_seed(0);
  options.memory_bytes = 1000;
  begin(options);
  void* device = nullptr;
  EXPECT_EQ(aclrtMalloc(&device, 2000, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
  size_t free = 0, total = 0;
  EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), 0);
  EXPECT_EQ(total, 1000u);
}

TEST_F(Memory, ALostDeviceAnswersErrorsAndStillTakesBackWhatItGave) {
  void* device = memory(64);
  AscendFakeOptions options = options_of_seed(0);
  options.lose_device_at_call = counters().calls + 1;
  ascend_fake_set_faults(&options);
  EXPECT_EQ(synchronise(), 507046);
  void* other = nullptr;
  EXPECT_EQ(aclrtMalloc(&other, 64, ACL_MEM_MALLOC_HUGE_FIRST), 507015);
  EXPECT_EQ(aclrtFree(device), 507015);
  EXPECT_EQ(aclrtDestroyStream(stream), 507015);
  EXPECT_EQ(aclFinalize(), 507015);
  EXPECT_EQ(ascend_fake_live_objects(), 0u);
  open = false;
}

TEST_F(Memory, ACaptureThatEndsOnALostDeviceLeavesNoGraph) {
  EXPECT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0);
  AscendFakeOptions options = options_of_seed(0);
  options.lose_device_at_call = counters().calls + 1;
  ascend_fake_set_faults(&options);
  aclmdlRI graph = nullptr;
  EXPECT_EQ(aclmdlRICaptureEnd(stream, &graph), 507015);
  EXPECT_EQ(graph, nullptr);
}

TEST_F(Memory, AFreeThatFailsOnDemandTakesTheMemoryBackAllTheSame) {
  void* device = memory(64);
  AscendFakeOptions options = options_of_seed(0);
  options.fail_call = counters().calls + 1;
  ascend_fake_set_faults(&options);
  EXPECT_EQ(aclrtFree(device), 507015);
  no_longer(memory_, device);
}

TEST_F(Memory, F7FreeOfPinnedMemoryWithQueuedUsersIsAViolation) {
  void* device = memory(64);
  void* host = pinned(64);
  EXPECT_EQ(aclrtMemcpyAsync(device, 64, host, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
  EXPECT_EQ(aclrtFreeHost(host), 0);
  pinned_.clear();
  expect_only(7);
  EXPECT_EQ(synchronise(), 0);
}

TEST_F(Memory, OneCallFailsOnDemandAndItsNameIsKnown) {
  AscendFakeOptions options = options_of_seed(0);
  options.fail_call = counters().calls + 1;
  ascend_fake_set_faults(&options);
  void* device = nullptr;
  EXPECT_EQ(aclrtMalloc(&device, 64, ACL_MEM_MALLOC_HUGE_FIRST), 507015);
  EXPECT_STREQ(ascend_fake_call(options.fail_call), "aclrtMalloc");
  memory(64);
}

}  // namespace
}  // namespace ascend_fake
