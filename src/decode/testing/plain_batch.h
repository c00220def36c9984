// Batches without drafters on a tiny model, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "decode/batch.h"
#include "decode/testing/tiny_model_test.h"

namespace espalier {

// What is heard last of an answer.
struct Ending {
  int heard = 0;  // times
  GenerateResult result = {};
  std::exception_ptr failure = {};
  std::optional<std::int64_t> length = {};  // committed positions

  EndObserver observer() {
    return [this](const AnswerEnd& end) {
      ++heard;
      result = end.result;
      failure = end.failure;
      if (end.sequence) length = end.cache.length(*end.sequence);
    };
  }
};

class PlainBatch : public TinyModelTest {
 protected:
  std::vector<std::int32_t> prompt_ = {5, 9, 40, 77, 120, 33};

  static GenerateOptions limit(std::int64_t max_tokens) {
    GenerateOptions options;
    options.max_tokens = max_tokens;
    return options;
  }

  static GenerateOptions sampled(const SamplingOptions& sampling, std::uint64_t seed, std::int64_t max_tokens) {
    GenerateOptions options = limit(max_tokens);
    options.sampling = sampling;
    options.seed = seed;
    return options;
  }

  std::vector<std::int32_t> answer(std::int64_t count, const SamplingOptions& sampling = {}) {
    Batch batch(model_, {.context = 64});
    return batch.generate(prompt_, sampled(sampling, 3, count)).tokens;
  }

  // Of a batch of its own.
  std::vector<std::int32_t> alone(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                                  std::int64_t context = 64) const {
    return Batch(model_, {.context = context}).generate(prompt, options).tokens;
  }
  static RequestId submit(Batch& batch, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                          Ending& ending) {
    return batch.submit({.prompt = prompt, .options = options, .events = {.on_end = ending.observer()}});
  }
  // Until nothing is left to do.
  static void finish(Batch& batch) {
    while (batch.step()) {
    }
    EXPECT_EQ(batch.running() + batch.waiting(), 0);
    batch.cache().check_conservation();
  }
};

}  // namespace espalier
