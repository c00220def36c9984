// For tests: a tiny random model that answers prompts with n-gram drafts. It babbles, reproducibly, and repeats itself
// enough for them to hit; its context holds 256 tokens.
#pragma once

#include <gtest/gtest.h>

#include "decode/ngram_drafter.h"
#include "device/cpu/cpu_device.h"
#include "eval/prompt_runner.h"

namespace espalier {

class TinySetupTest : public ::testing::Test {
 protected:
  EvalSetup tiny_setup(bool baseline, std::int64_t max_tokens) {
    TextOptions options;
    options.generate.max_tokens = max_tokens;
    options.ignore_eos = true;
    const auto drafters = [this](KvCache&, int) {
      ++drafters_made_;
      DrafterSet set;
      set.push_back(std::make_unique<NgramDrafter>());
      return set;
    };
    return {.model = model_,
            .text = text_,
            .decoder = {.context = 256},
            .speculation = {.tree = {}, .drafters = drafters},
            .options = options,
            .baseline = baseline};
  }

  std::filesystem::path path_ = std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/llama2.gguf";
  std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1});
  Transformer model_ = load_transformer(*device_, path_);
  ModelText text_ = load_model_text(path_);
  int drafters_made_ = 0;
};

}  // namespace espalier
