// A row's bits do not depend on how the work is cut: one step, token by token or random chunks; one sequence or several
// in one step; any number of threads; any KV type; any device.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "base/error.h"
#include "testing/engine.h"
#include "testing/recording_devices.h"

namespace espalier::testing {
namespace {

#ifdef ESPALIER_SANITIZED
// Uneven shares alone: the conformance suite runs every op with 1 to 4 threads, under sanitizers too.
constexpr std::array kThreads = {3};
#else
constexpr std::array kThreads = {1, 2, 3};
#endif

std::vector<std::int32_t> random_tokens(std::size_t count, std::int64_t vocabulary, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary));
  return tokens;
}

void expect_equal_bits(const ForwardRun& a, const ForwardRun& b) {
  const auto bits = [](const std::vector<float>& values) { return std::as_bytes(std::span(values)); };
  EXPECT_TRUE(std::ranges::equal(bits(a.logits), bits(b.logits))) << "logits differ";
  EXPECT_TRUE(std::ranges::equal(bits(a.hidden), bits(b.hidden))) << "hidden states differ";
  EXPECT_TRUE(std::ranges::equal(a.kv, b.kv)) << "KV differs";
}

struct InvarianceCase {
  std::string family;
  NamedDevice device;
  DType kv_type;
};

std::string describe(const InvarianceCase& c) {
  return c.family + "_" + c.device.name + "_" + std::string(name(c.kv_type));
}
void PrintTo(const InvarianceCase& c, std::ostream* out) {
  *out << describe(c);
}

class Invariance : public ::testing::TestWithParam<InvarianceCase> {};

TEST_P(Invariance, OneStepTokenByTokenAndRandomChunksGiveTheSameBits) {
  const auto& [family, named, kv_type] = GetParam();
  constexpr std::uint32_t kSeed = 11;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const auto first_device = all_devices()[0].make(1);
  const Transformer judge = load_transformer(*first_device, data_path("tiny/" + family));
  // Two families go beyond the 128 slots of a block and the 128 keys of a tile, one of them with a window.
  const auto tokens = random_tokens(family == "smollm2"   ? 260
                                    : family == "mistral" ? 136
                                                          : 61,
                                    judge.config().vocabulary, kSeed);
  const ForwardRun expected = run_forward(judge, tokens, {.kv_type = kv_type});
  for (int threads : kThreads) {
    const auto device = named.make(threads);
    const Transformer model = load_transformer(*device, data_path("tiny/" + family));
    expect_equal_bits(run_forward(model, tokens, {.kv_type = kv_type}), expected);
    expect_equal_bits(run_forward(model, tokens, {.kv_type = kv_type, .chunks = {1}}), expected);
    std::vector<std::int64_t> chunks;
    for (int i = 0; i < 20; ++i) chunks.push_back(1 + static_cast<std::int64_t>(random() % 23));
    expect_equal_bits(run_forward(model, tokens, {.kv_type = kv_type, .chunks = chunks}), expected);
    expect_replays(*device);
  }
}

TEST_P(Invariance, SeveralSequencesInOneStepGiveTheBitsOfEachAlone) {
  const auto& [family, named, kv_type] = GetParam();
  const auto device = named.make(2);
  const Transformer model = load_transformer(*device, data_path("tiny/" + family));
  const std::int64_t vocabulary = model.config().vocabulary;
  const std::vector<std::vector<std::int32_t>> prompts = {
      random_tokens(9, vocabulary, 1), random_tokens(23, vocabulary, 2), random_tokens(17, vocabulary, 3)};
  KvCache cache(*device, model.kv_shape(kv_type), 3 * 128);
  Workspace workspace(model, cache.memory(), {.rows = 49, .outputs = 49, .positions = 64});
  std::vector<Row> rows;
  std::vector<Branch> branches;
  for (const auto& prompt : prompts) {
    std::optional<Branch> branch = cache.begin(cache.create(), static_cast<std::int64_t>(prompt.size()));
    ASSERT_TRUE(branch.has_value());
    branches.push_back(std::move(*branch));
  }
  // Interleaved, so that neighbours in the step belong to different sequences.
  for (std::size_t p = 0; p < 23; ++p)
    for (std::size_t s = 0; s < prompts.size(); ++s)
      if (p < prompts[s].size()) {
        rows.push_back(model.prefill_row(branches[s].id(), static_cast<std::int64_t>(p), prompts[s][p]));
        rows.back().wants_logits = true;
      }
  const StepOutput output = model.forward(rows, workspace);
  std::vector<float> logits(static_cast<std::size_t>(output.logits.elements()));
  download<float>(*device, output.logits, logits);
  for (std::size_t s = 0; s < prompts.size(); ++s) {
    const ForwardRun alone = run_forward(model, prompts[s], {.kv_type = kv_type});
    std::vector<float> together;
    for (std::size_t r = 0; r < rows.size(); ++r)
      if (rows[r].sequence == branches[s].id())
        together.insert(together.end(), logits.begin() + static_cast<std::ptrdiff_t>(r) * vocabulary,
                        logits.begin() + static_cast<std::ptrdiff_t>(r + 1) * vocabulary);
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(together)), std::as_bytes(std::span(alone.logits))));
    EXPECT_EQ(read_kv(*device, cache, branches[s].id(), static_cast<std::int64_t>(prompts[s].size())), alone.kv);
  }
}

TEST_P(Invariance, AStepOfManyRowsGivesLogitsToAsManyAsItsWorkspaceHasRoomFor) {
  const auto& [family, named, kv_type] = GetParam();
  const auto device = named.make(2);
  const Transformer model = load_transformer(*device, data_path("tiny/" + family));
  const std::int64_t vocabulary = model.config().vocabulary;
  const auto tokens = random_tokens(20, vocabulary, 5);
  const ForwardRun whole = run_forward(model, tokens, {.kv_type = kv_type});
  KvCache cache(*device, model.kv_shape(kv_type), 128);
  Workspace workspace(model, cache.memory(), {.rows = 20, .outputs = 2, .positions = 64});
  std::optional<Branch> branch = cache.begin(cache.create(), 20);
  ASSERT_TRUE(branch.has_value());
  std::vector<Row> rows;
  for (std::size_t p = 0; p < tokens.size(); ++p)
    rows.push_back(model.prefill_row(branch->id(), static_cast<std::int64_t>(p), tokens[p]));
  rows[4].wants_logits = rows[19].wants_logits = true;
  const StepOutput output = model.forward(rows, workspace);
  ASSERT_EQ(output.logits.dim(0), 2);
  std::vector<float> logits(static_cast<std::size_t>(2 * vocabulary));
  download<float>(*device, output.logits, logits);
  const auto row = [&](const std::vector<float>& all, std::int64_t i) {
    return std::as_bytes(
        std::span(all).subspan(static_cast<std::size_t>(i * vocabulary), static_cast<std::size_t>(vocabulary)));
  };
  EXPECT_TRUE(std::ranges::equal(row(logits, 0), row(whole.logits, 4)));
  EXPECT_TRUE(std::ranges::equal(row(logits, 1), row(whole.logits, 19)));

  rows[5].wants_hidden = true;
  try {
    model.forward(rows, workspace);
    ADD_FAILURE() << "three outputs in a workspace for two";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "3 rows want logits or hidden states, the workspace has room for 2");
  }
}

std::vector<InvarianceCase> invariance_cases() {
  std::vector<InvarianceCase> all;
  for (const std::string& family : tiny_families())
    for (const NamedDevice& device : all_devices())
      for (DType kv : {DType::f32, DType::f16, DType::bf16})
        if (!kSanitized || kv == DType::f16 || family == "llama2") all.push_back({family, device, kv});
  for (const std::string& family : tiny_families())
    for (const NamedDevice& device : recording_devices())
      if (!kSanitized || family == "mistral") all.push_back({family, device, DType::f16});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Tiny, Invariance, ::testing::ValuesIn(invariance_cases()),
                         [](const auto& info) { return describe(info.param); });

}  // namespace
}  // namespace espalier::testing
