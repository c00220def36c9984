// What the fake's own tests share: a card with one stream, memory, descriptors and launches, through the C symbols
// alone. A test that breaks a rule says which with expect_only; every other violation, and everything left alive, fails
// it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "acl_ops.h"
#include "acl_runtime.h"
#include "ascend_fake.h"

namespace ascend_fake {

using Dims = std::vector<int64_t>;

inline AscendFakeOptions options_of_seed(uint64_t seed) {
  AscendFakeOptions options{};
  ascend_fake_default_options(&options);
  options.seed = seed;
  return options;
}

class Card : public testing::Test {
 protected:
  void SetUp() override { begin(options_of_seed(0)); }

  void TearDown() override {
    close();
    expect_clean();
  }

  // Begins again with other options.
  void begin(const AscendFakeOptions& options) {
    forget();
    ascend_fake_reset(&options);
    EXPECT_EQ(aclInit(nullptr), 0);
    EXPECT_EQ(aclrtSetDevice(0), 0);
    stream = new_stream();
    open = true;
  }

  aclrtStream new_stream() {
    aclrtStream result = nullptr;
    EXPECT_EQ(aclrtCreateStream(&result), 0);
    EXPECT_EQ(aclrtSetStreamFailureMode(result, ACL_STOP_ON_FAILURE), 0);
    streams_.push_back(result);
    return result;
  }

  aclrtEvent new_event(uint32_t flag = ACL_EVENT_SYNC) {
    aclrtEvent event = nullptr;
    EXPECT_EQ(aclrtCreateEventWithFlag(&event, flag), 0);
    events_.push_back(event);
    return event;
  }

  void* memory(size_t bytes) {
    void* result = nullptr;
    EXPECT_EQ(aclrtMalloc(&result, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    memory_.push_back(result);
    return result;
  }

  void* pinned(size_t bytes) {
    void* result = nullptr;
    EXPECT_EQ(aclrtMallocHost(&result, bytes), 0);
    pinned_.push_back(result);
    return result;
  }

  template <typename T>
  void* upload(const std::vector<T>& values) {
    void* target = memory(values.size() * sizeof(T));
    const size_t bytes = values.size() * sizeof(T);
    EXPECT_EQ(aclrtMemcpy(target, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    return target;
  }

  // Waits for the stream first.
  template <typename T>
  std::vector<T> download(const void* source, size_t count) {
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
    std::vector<T> values(count);
    EXPECT_EQ(aclrtMemcpy(values.data(), count * sizeof(T), source, count * sizeof(T), ACL_MEMCPY_DEVICE_TO_HOST), 0);
    return values;
  }

  static Dims dense_strides(const Dims& dims) {
    Dims strides(dims.size(), 1);
    for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    return strides;
  }

  aclTensor* view(aclDataType type, const Dims& dims, const Dims& strides, int64_t offset, void* data) {
    int64_t extent = offset + 1;
    for (size_t i = 0; i < dims.size(); ++i) extent += (dims[i] - 1) * strides[i];
    aclTensor* result =
        aclCreateTensor(dims.data(), dims.size(), type, strides.data(), offset, ACL_FORMAT_ND, &extent, 1, data);
    tensors_.push_back(result);
    return result;
  }
  aclTensor* tensor(aclDataType type, const Dims& dims, void* data) {
    return view(type, dims, dense_strides(dims), 0, data);
  }
  aclTensor* floats(const Dims& dims, const std::vector<float>& values) {
    return tensor(ACL_FLOAT, dims, upload(values));
  }

  // Floats as a tensor of a 16-bit type, by the card's own Cast.
  void* cast_up(aclDataType type, const std::vector<float>& values) {
    const int64_t count = static_cast<int64_t>(values.size());
    void* target = memory(values.size() * 2);
    aclTensor* from = floats({count}, values);
    aclTensor* to = tensor(type, {count}, target);
    EXPECT_EQ(op(aclnnCastGetWorkspaceSize, aclnnCast, from, type, to), 0);
    return target;
  }
  std::vector<float> cast_down(aclDataType type, void* source, size_t count) {
    void* target = memory(count * 4);
    aclTensor* from = tensor(type, {static_cast<int64_t>(count)}, source);
    aclTensor* to = tensor(ACL_FLOAT, {static_cast<int64_t>(count)}, target);
    EXPECT_EQ(op(aclnnCastGetWorkspaceSize, aclnnCast, from, ACL_FLOAT, to), 0);
    return download<float>(target, count);
  }

  aclScalar* scalar(float value) {
    scalars_.push_back(aclCreateScalar(&value, ACL_FLOAT));
    return scalars_.back();
  }
  aclIntArray* ints(const Dims& values) {
    arrays_.push_back(aclCreateIntArray(values.data(), values.size()));
    return arrays_.back();
  }
  aclTensorList* list(const std::vector<aclTensor*>& tensors) {
    for (aclTensor* one : tensors) std::erase(tensors_, one);
    lists_.push_back(aclCreateTensorList(tensors.data(), tensors.size()));
    return lists_.back();
  }

  struct Launch {
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
  };
  using PhaseTwo = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

  void* workspace() {
    if (workspace_ == nullptr) workspace_ = memory(1 << 14);
    return workspace_;
  }
  int second(PhaseTwo phase_two, const Launch& launch) {
    return phase_two(launch.size == 0 ? nullptr : workspace(), launch.size, launch.executor, stream);
  }
  // Both phases on the stream, or the code of the first.
  template <typename PhaseOne, typename... Arguments>
  int op(PhaseOne phase_one, PhaseTwo phase_two, Arguments... arguments) {
    workspace();
    Launch launch;
    const int code = phase_one(arguments..., &launch.size, &launch.executor);
    return code != 0 ? code : second(phase_two, launch);
  }

  int synchronise() { return aclrtSynchronizeStream(stream); }

  // At least one violation, all of this rule; then they are forgotten.
  void expect_only(int rule) {
    EXPECT_GE(ascend_fake_violations(), 1u) << "expected a violation of F" << rule;
    for (size_t i = 0; i < ascend_fake_violations(); ++i) {
      EXPECT_EQ(ascend_fake_violation_rule(i), rule) << ascend_fake_violation(i);
    }
    ascend_fake_clear_violations();
  }

  void expect_clean() {
    for (size_t i = 0; i < ascend_fake_violations(); ++i) ADD_FAILURE() << ascend_fake_violation(i);
    ascend_fake_clear_violations();
  }

  static AscendFakeCounters counters() {
    AscendFakeCounters result{};
    ascend_fake_counters(&result);
    return result;
  }

  // Gives everything back.
  void close() {
    if (!open) return;
    open = false;
    for (aclrtStream each : streams_) aclrtSynchronizeStream(each);
    for (const auto* each : lists_) aclDestroyTensorList(each);
    for (const auto* each : tensors_) aclDestroyTensor(each);
    for (const auto* each : scalars_) aclDestroyScalar(each);
    for (const auto* each : arrays_) aclDestroyIntArray(each);
    for (aclmdlRI each : graphs_) aclmdlRIDestroy(each);
    for (aclrtEvent each : events_) aclrtDestroyEvent(each);
    for (void* each : memory_) aclrtFree(each);
    for (void* each : pinned_) aclrtFreeHost(each);
    for (aclrtStream each : streams_) aclrtDestroyStream(each);
    aclFinalize();
    EXPECT_EQ(ascend_fake_live_objects(), 0u) << ascend_fake_live_object(0);
    forget();
  }

  aclmdlRI begin_and_end_capture(const auto& body, aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL) {
    workspace();
    EXPECT_EQ(aclmdlRICaptureBegin(stream, mode), 0);
    body();
    aclmdlRI graph = nullptr;
    EXPECT_EQ(aclmdlRICaptureEnd(stream, &graph), 0);
    graphs_.push_back(graph);
    return graph;
  }

  template <typename T>
  void no_longer(std::vector<T>& all, T one) {
    std::erase(all, one);
  }

  aclrtStream stream = nullptr;
  bool open = false;
  std::vector<aclrtStream> streams_;
  std::vector<aclrtEvent> events_;
  std::vector<aclmdlRI> graphs_;
  std::vector<void*> memory_;
  std::vector<void*> pinned_;
  std::vector<aclTensor*> tensors_;
  std::vector<aclTensorList*> lists_;
  std::vector<aclScalar*> scalars_;
  std::vector<aclIntArray*> arrays_;

 private:
  void forget() {
    streams_.clear();
    events_.clear();
    graphs_.clear();
    memory_.clear();
    pinned_.clear();
    tensors_.clear();
    lists_.clear();
    scalars_.clear();
    arrays_.clear();
    workspace_ = nullptr;
  }
  void* workspace_ = nullptr;
};

}  // namespace ascend_fake
