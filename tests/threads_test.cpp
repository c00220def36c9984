// Whole answers with several threads are those of one thread. Few and small enough for ThreadSanitizer
// (scripts/test-tsan).
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decode/batch.h"
#include "decode/eagle_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "device/cpu/cpu_device.h"
#include "testing/company.h"

namespace espalier::testing {
namespace {

using Answers = std::vector<std::vector<std::int32_t>>;

constexpr std::int64_t kContext = 128;
constexpr int kTokens = 16;

DrafterSet drafters(const std::string& kind, const Company& company, const TreeOptions& tree, KvCache& cache,
                    int sequences) {
  DrafterSet set;
  if (kind == "ngram") set.push_back(std::make_unique<NgramDrafter>());
  if (kind == "medusa") set.push_back(std::make_unique<MedusaDrafter>(*company.medusa_head, 10, sequences));
  if (const EagleHead* head = company.eagle(kind))
    set.push_back(std::make_unique<EagleDrafter>(
        *head, cache, EagleDrafterOptions{.context = kContext, .tree = tree, .sequences = sequences}));
  if (kind == "model")
    set.push_back(std::make_unique<ModelDrafter>(
        company.draft_model(), cache, ModelDrafterOptions{.context = kContext, .tree = tree, .sequences = sequences}));
  return set;
}

// Two prompts in one batch; "none" decodes token by token.
Answers answers(const std::string& kind, int threads) {
  const auto device = make_cpu_device({.threads = threads});
  const Company company(*device, {"llama2"});
  const std::vector<std::int32_t> first = {3, 5, 8, 3, 5, 8, 3, 5}, second = {21, 4, 4, 21, 4, 4, 21};
  Speculation speculation;
  if (kind != "none") {
    speculation.tree = {.shape = TreeShape::dynamic, .nodes = 12, .depth = 4, .expand = 3};
    speculation.drafters = [&](KvCache& cache, int sequences) {
      return drafters(kind, company, speculation.tree, cache, sequences);
    };
  }
  Batch batch(company.teacher, {.context = kContext, .parallel = 2}, speculation);
  const GenerateOptions options{.max_tokens = kTokens};
  const std::vector<GenerateRequest> requests = {{.prompt = first, .options = options},
                                                 {.prompt = second, .options = options}};
  Answers all;
  for (const GenerateResult& result : batch.generate(requests)) all.push_back(result.tokens);
  return all;
}

class Threads : public ::testing::TestWithParam<std::string> {};

TEST_P(Threads, WholeAnswersAreThoseOfOneThread) {
  const Answers expected = answers(GetParam(), 1);
  ASSERT_EQ(expected.size(), 2u);
  EXPECT_EQ(expected[0].size(), static_cast<std::size_t>(kTokens));
  for (int threads : {2, 3}) EXPECT_EQ(answers(GetParam(), threads), expected) << threads << " threads";
}

INSTANTIATE_TEST_SUITE_P(Tiny, Threads, ::testing::Values("none", "ngram", "medusa", "eagle2", "eagle3", "model"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace espalier::testing
