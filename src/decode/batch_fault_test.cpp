// What a device that fails leaves of a batch: answers that ended with its error, and a batch that can be given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "base/error.h"
#include "base/testing/sanitized.h"
#include "decode/batch.h"
#include "decode/ngram_drafter.h"
#include "device/conformance/faulty_device.h"
#include "device/conformance/recording_device.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/emulated/emulated_cuda_device.h"

namespace espalier {
namespace {

constexpr int kAnswers = 3;
constexpr std::int64_t kCalls = 4000;                   // more than these answers take
constexpr std::int64_t kStride = kSanitized ? 97 : 41;  // odd, so that every kind of call has its turn

struct Ended {
  std::vector<std::int32_t> tokens = {};
  std::string error = {};
  bool ended = false;
};

class FaultyBatch : public ::testing::Test {
 protected:
  FaultyDevice device_{make_recording_device(make_cpu_device({.threads = 1}), Replay::blind)};
  Transformer model_ = load_transformer(device_, std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/smollm2");

  static Speculation ngram() {
    return {.tree = {.nodes = 8, .depth = 4}, .drafters = [](KvCache&, int) {
              DrafterSet set;
              set.push_back(std::make_unique<NgramDrafter>());
              return set;
            }};
  }

  // Everything that is asked of a batch, while the device fails as it was told.
  static std::vector<Ended> answer_all(Batch& batch, const std::function<void()>& on_token = {}) {
    std::vector<Ended> ends(kAnswers);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const std::vector<std::int32_t> prompt(20 + 30 * i, static_cast<std::int32_t>(7 + i));
      GenerateRequest request{.prompt = prompt, .options = {.max_tokens = 12}};
      request.events.on_end = [&end = ends[i]](const AnswerEnd& ended) {
        end.ended = true;
        end.tokens = ended.result.tokens;
        end.error = error_text(ended.failure);
      };
      request.events.on_token = [&](const GeneratedToken&) {
        if (on_token) on_token();
        return true;
      };
      batch.submit(request);
    }
    while (batch.step()) continue;
    return ends;
  }

  // The line of a DeviceError; anything else is no answer to a device that fails.
  static std::string error_text(const std::exception_ptr& failure) {
    if (!failure) return "";
    try {
      std::rethrow_exception(failure);
    } catch (const DeviceError& error) {
      return error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
      return error.what();
    }
  }

  std::vector<Ended> undisturbed() {
    Batch batch(model_, options_, ngram());
    return answer_all(batch);
  }

  const DecoderOptions options_{.context = 256, .prefill_rows = 16, .parallel = kAnswers};
};

TEST_F(FaultyBatch, ADeviceThatIsLostEndsEveryAnswerWithOneErrorAndTheBatchCanGo) {
  const std::vector<Ended> expected = undisturbed();
  int failed = 0, whole = 0;
  for (std::int64_t n = 1; n < kCalls; n += kStride) {
    SCOPED_TRACE(::testing::Message() << "lost at call " << n);
    std::optional<Batch> batch;
    batch.emplace(model_, options_, ngram());
    device_.lose_at(n);
    const std::vector<Ended> ends = answer_all(*batch);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      ASSERT_TRUE(ends[i].ended);
      if (ends[i].error.empty()) {
        ++whole;
        EXPECT_EQ(ends[i].tokens, expected[i].tokens);
      } else {
        ++failed;
        EXPECT_THAT(ends[i].error, ::testing::HasSubstr("the device is lost"));
        EXPECT_EQ(ends[i].error.find('\n'), std::string::npos);
      }
    }
    EXPECT_EQ(batch->running() + batch->waiting(), 0);
    batch->check_conservation();
    batch.reset();  // while the device is still lost
    device_.never_fail();
  }
  EXPECT_GT(failed, 0);
  EXPECT_GT(whole, 0);
}

TEST_F(FaultyBatch, MemoryThatRunsOutOnceEndsTheAnswersOfThatStepAndTheNextOnesHaveTheirText) {
  const std::vector<Ended> expected = undisturbed();
  for (std::int64_t n = 1; n < kCalls; n += 4 * kStride) {
    SCOPED_TRACE(::testing::Message() << "failed at call " << n);
    Batch batch(model_, options_, ngram());
    device_.fail_at(n);
    for (const Ended& end : answer_all(batch)) ASSERT_TRUE(end.ended);
    device_.never_fail();
    const std::vector<Ended> again = answer_all(batch);
    for (std::size_t i = 0; i < again.size(); ++i) {
      EXPECT_EQ(again[i].error, "");
      EXPECT_EQ(again[i].tokens, expected[i].tokens);
    }
  }
}

TEST_F(FaultyBatch, MemoryThatIsNotThereForTheCacheIsToldWithWhatItWasFor) {
  device_.fail_at(3);
  try {
    Batch(model_, options_);
    ADD_FAILURE() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(),
                ::testing::MatchesRegex("KV pool of [0-9]+ blocks of 128 positions .*, layer 1 of [0-9]+: "
                                        "allocate: failed as told"));
  }
}

// The CUDA device itself, emulated: its host code meets the errors of a GPU that is lost.
TEST_F(FaultyBatch, AGpuThatIsLostBetweenTwoTokensEndsItsAnswersAndEverythingCanGo) {
  if (kSanitized) GTEST_SKIP() << "sanitizers do not follow a thread from stack to stack";
  EmulatedFault fault;
  {
    const auto device = make_emulated_cuda_device();
    const Transformer model = load_transformer(*device, std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/smollm2");
    Batch batch(model, options_, ngram());
    int tokens = 0;
    const std::vector<Ended> ends = answer_all(batch, [&] {
      if (++tokens == 5) fault.lose_device();
    });
    for (const Ended& end : ends) EXPECT_THAT(end.error, ::testing::StartsWith("CUDA: "));
    EXPECT_EQ(batch.running() + batch.waiting(), 0);
    batch.check_conservation();
  }
}

TEST_F(FaultyBatch, AGpuWithoutRoomForTheCacheSaysHowMuchOfWhatIsMissing) {
  if (kSanitized) GTEST_SKIP() << "sanitizers do not follow a thread from stack to stack";
  const auto device = make_emulated_cuda_device();
  const Transformer model = load_transformer(*device, std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/smollm2");
  EmulatedFault fault;
  fault.leave_memory(64 << 10);
  try {
    Batch(model, options_);
    ADD_FAILURE() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), ::testing::MatchesRegex("KV pool of .*: CUDA: no memory for a buffer .*MiB are free"));
  }
}

}  // namespace
}  // namespace espalier
