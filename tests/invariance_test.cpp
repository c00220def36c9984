// A row's bits do not depend on how the work is cut: one step, token by token or random chunks; one sequence or several
// in one step; any number of threads; any KV type; any device.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <tuple>

#include "base/error.h"
#include "device/reference/reference_device.h"
#include "model/config.h"
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

constexpr std::array kStepForms = {StepForm{AttentionOp::fused, MaskForm::list},
                                   StepForm{AttentionOp::fused, MaskForm::dense},
                                   StepForm{AttentionOp::eager, MaskForm::dense}};

std::vector<std::int32_t> random_tokens(std::size_t count, std::int64_t vocabulary, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary));
  return tokens;
}

// std::equal takes bytes one by one, which here is a tenth of the time.
template <typename T>
bool same_bytes(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

void expect_equal_bits(const ForwardRun& a, const ForwardRun& b) {
  EXPECT_TRUE(same_bytes<float>(a.logits, b.logits)) << "logits differ";
  EXPECT_TRUE(same_bytes<float>(a.hidden, b.hidden)) << "hidden states differ";
  EXPECT_TRUE(same_bytes<std::byte>(a.kv, b.kv)) << "KV differs";
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

bool computes_fast(const InvarianceCase& test) {
  return test.device.name == "cpu" || test.device.name == "recording_cpu";
}

// Whether texts are long enough to cross the beginning of a tile of 128 keys, and of a block of 128 slots: with one KV
// type, and with two on devices that are fast; under sanitizers in two families only, one of them with a window.
bool crosses_tiles(const InvarianceCase& test) {
  if (test.kv_type == DType::f16) return !kSanitized || test.family == "smollm2" || test.family == "mistral";
  return !kSanitized && computes_fast(test) && test.kv_type == DType::bf16;
}

std::size_t text_length(const InvarianceCase& test, std::mt19937& random) {
  if (!crosses_tiles(test)) return 50 + random() % 20;
  const bool two_tiles = test.family == "smollm2" || (!kSanitized && computes_fast(test) && test.kv_type == DType::f16);
  return two_tiles ? 250 + random() % 11 : 120 + random() % 17;
}

ForwardRun run_on(Device& device, const InvarianceCase& test, std::span<const std::int32_t> tokens) {
  const Transformer model = load_transformer(device, data_path("tiny/" + test.family));
  return run_forward(model, {tokens.begin(), tokens.end()}, {.kv_type = test.kv_type});
}

// Whose bits a device has to give: the reference device's, or its own where it adds float weights in an order of its
// own. The reference device is slow: what it has computed is kept for the devices that follow.
ForwardRun expected_of(const InvarianceCase& test, const std::vector<std::int32_t>& tokens) {
  if (const auto own = test.device.make(1); own->float_order() != kContractFloatOrder)
    return run_on(*own, test, tokens);
  static std::map<std::tuple<std::string, DType, std::vector<std::int32_t>>, ForwardRun> known;
  const auto [run, is_new] = known.try_emplace({test.family, test.kv_type, tokens});
  if (is_new) run->second = run_on(*make_reference_device(), test, tokens);
  return run->second;
}

std::int64_t vocabulary_of(const std::string& family) {
  return load_config(data_path("tiny/" + family)).vocabulary;
}

TEST_P(Invariance, OneStepTokenByTokenAndRandomChunksGiveTheSameBitsInEveryForm) {
  const auto& [family, named, kv_type] = GetParam();
  constexpr std::uint32_t kSeed = 11;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(text_length(GetParam(), random), vocabulary_of(family), kSeed);
  const ForwardRun expected = expected_of(GetParam(), tokens);
  for (int threads : kThreads) {
    SCOPED_TRACE(::testing::Message() << tokens.size() << " tokens, " << threads << " threads");
    const auto device = named.make(threads);
    const Transformer model = load_transformer(*device, data_path("tiny/" + family));
    // With another number of threads each cut takes another form.
    const auto form = [&](int cut) { return kStepForms[static_cast<std::size_t>(threads + cut) % kStepForms.size()]; };
    expect_equal_bits(run_forward(model, tokens, {.kv_type = kv_type, .form = form(0)}), expected);
    expect_equal_bits(run_forward(model, tokens, {.kv_type = kv_type, .chunks = {1}, .form = form(1)}), expected);
    std::vector<std::int64_t> chunks;
    for (int i = 0; i < 20; ++i) chunks.push_back(1 + static_cast<std::int64_t>(random() % 23));
    expect_equal_bits(run_forward(model, tokens, {.kv_type = kv_type, .chunks = chunks, .form = form(2)}), expected);
    expect_replays(*device);
  }
}

// A sequence of a step that holds so many tokens of its text already.
struct Joined {
  std::vector<std::int32_t> text;
  std::size_t before;
  std::optional<Branch> branch = {};
};

// The tails of these texts are in one step: one is a whole text, two cross the beginning of a tile.
std::vector<Joined> draw_joined(const InvarianceCase& test, std::int64_t vocabulary, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> before = {0, random() % 30};
  if (crosses_tiles(test)) before.insert(before.end(), {120 + random() % 8, 250 + random() % 6});
  std::vector<Joined> all;
  for (std::size_t positions : before)
    all.push_back(
        {.text = random_tokens(positions + 9 + random() % 7, vocabulary, static_cast<std::uint32_t>(random())),
         .before = positions});
  return all;
}

TEST_P(Invariance, SeveralSequencesInOneStepGiveTheBitsOfEachAlone) {
  const auto& [family, named, kv_type] = GetParam();
  const auto device = named.make(2);
  const Transformer model = load_transformer(*device, data_path("tiny/" + family));
  const std::int64_t vocabulary = model.config().vocabulary;
  KvCache cache(*device, model.kv_shape(kv_type), 8 * 128);
  std::vector<Joined> sequences = draw_joined(GetParam(), vocabulary, 1);  // their branches go before the cache
  const std::int64_t most = largest_step(*device, 260);
  Workspace workspace(model, cache.memory(), {.rows = most, .outputs = most, .positions = 300});
  const auto row = [&](const Joined& joined, std::size_t p) {
    return model.prefill_row(joined.branch->id(), static_cast<std::int64_t>(p), joined.text[p]);
  };
  for (Joined& joined : sequences) {
    const SequenceId sequence = cache.create();
    for (std::size_t begin = 0; begin < joined.before;) {
      const std::size_t end = std::min(joined.before, begin + static_cast<std::size_t>(most));
      joined.branch = cache.begin(sequence, static_cast<std::int64_t>(end - begin));
      ASSERT_TRUE(joined.branch.has_value());
      std::vector<Row> rows;
      for (std::size_t p = begin; p < end; ++p) rows.push_back(row(joined, p));
      model.forward(rows, workspace);
      joined.branch->commit_length(static_cast<std::int64_t>(end - begin));
      begin = end;
    }
    joined.branch = cache.begin(sequence, static_cast<std::int64_t>(joined.text.size() - joined.before));
    ASSERT_TRUE(joined.branch.has_value());
  }
  // Interleaved, so that neighbours in the step belong to different sequences.
  std::vector<Row> rows;
  for (std::size_t i = 0; i < 15; ++i)
    for (const Joined& joined : sequences)
      if (joined.before + i < joined.text.size()) {
        rows.push_back(row(joined, joined.before + i));
        rows.back().wants_logits = true;
      }
  const StepOutput output = model.forward(rows, workspace);
  std::vector<float> logits(static_cast<std::size_t>(output.logits.elements()));
  download<float>(*device, output.logits, logits);
  for (const Joined& joined : sequences) {
    const ForwardRun alone = run_forward(model, joined.text, {.kv_type = kv_type});
    std::vector<float> together;
    for (std::size_t r = 0; r < rows.size(); ++r)
      if (rows[r].sequence == joined.branch->id())
        together.insert(together.end(), logits.begin() + static_cast<std::ptrdiff_t>(r) * vocabulary,
                        logits.begin() + static_cast<std::ptrdiff_t>(r + 1) * vocabulary);
    EXPECT_TRUE(same_bytes<float>(together, std::span(alone.logits).last(together.size())));
    EXPECT_EQ(read_kv(*device, cache, joined.branch->id(), std::ssize(joined.text)), alone.kv);
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
