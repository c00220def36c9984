#include "experiments/attention_profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "decode/batch.h"
#include "decode/eagle_drafter.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr std::int64_t kBlock = 4, kDim = 4;

// Tables of two rows behind a context of five positions in two blocks that are not in order: row 0 is at position 5,
// row 1 at position 6 with row 0 above it.
struct TwoRows {
  explicit TwoRows(Device& device) : device_(device) {}

  ConstView table(std::vector<std::int32_t> values, std::int64_t rows) {
    const auto columns = static_cast<std::int64_t>(values.size()) / rows;
    tensors_.push_back(columns == 1 ? device_.tensor(DType::i32, {rows}) : device_.tensor(DType::i32, {rows, columns}));
    upload<std::int32_t>(device_, values, tensors_.back());
    return tensors_.back().view;
  }

  RowTables tables() {
    RowTables rows;
    rows.token = table({0, 0}, 2);
    rows.position = table({5, 6}, 2);
    rows.slot = table({1, 2}, 2);
    rows.sequence = table({0, 0}, 2);
    rows.begin = table({0, 0}, 2);
    rows.end = table({5, 5}, 2);
    rows.ancestor_count = table({0, 1}, 2);
    tensors_.push_back(device_.tensor(DType::i32, {2, 1}));
    upload<std::int32_t>(device_, std::vector<std::int32_t>{0, 1}, tensors_.back());
    rows.ancestors = tensors_.back().view;
    rows.blocks = table({1, 0}, 1).reshaped({1, 2});
    return rows;
  }

  Device& device_;
  std::vector<Tensor> tensors_;
};

// Keys are zero but one, which every query likes best.
AttentionDistances distances_with_favourite(std::int64_t slot, Listening listening) {
  const auto reference = make_reference_device(1);
  AttentionProfile profile(*reference);
  std::vector<float> keys(static_cast<std::size_t>(2 * kBlock * kDim)), ones(2 * kDim, 1.0f);
  for (std::int64_t i = 0; i < kDim; ++i) keys[static_cast<std::size_t>(slot * kDim + i)] = 10;
  const Tensor k = profile.tensor(DType::f32, {2, kBlock, 1, kDim}),
               v = profile.tensor(DType::f32, {2, kBlock, 1, kDim});
  upload<float>(profile, keys, k);
  upload<float>(profile, keys, v);
  const Tensor q = profile.tensor(DType::f32, {2, 1, kDim}), out = profile.tensor(DType::f32, {2, 1, kDim});
  upload<float>(profile, ones, q);
  TwoRows rows(profile);
  profile.listen(listening);
  profile.attention(q, {k, v}, rows.tables(), 1, out);
  std::vector<float> values(2 * kDim);
  download<float>(profile, out, values);
  EXPECT_NEAR(values[0], slot == 2 ? 0 : 10, 1e-3);  // passed on untouched
  return profile.distances();
}

TEST(AttentionProfile, FindsHowFarTheBestKeyIsOfEveryRow) {
  // Position 4 is the first slot of the second block, which is block 0: one before row 0, two before row 1.
  const AttentionDistances context = distances_with_favourite(0, Listening::all_rows);
  EXPECT_EQ(context.looks, 2);
  EXPECT_EQ(context.top[1], 1);
  EXPECT_EQ(context.top[2], 1);
  // Row 0 itself, which stands right above row 1.
  const AttentionDistances ancestor = distances_with_favourite(1, Listening::all_rows);
  EXPECT_EQ(ancestor.top[0], 1);
  EXPECT_EQ(ancestor.top[1], 1);
  // Position 0 is the first slot of block 1: five before row 0, six before row 1.
  const AttentionDistances far = distances_with_favourite(4, Listening::all_rows);
  EXPECT_EQ(far.top[3], 2);
  EXPECT_NEAR(far.weight[3], 2, 1e-6);
  EXPECT_EQ(far.longest, 5);
}

TEST(AttentionProfile, ListensOnlyWhenToldAndOnlyToTheRowsItWasTold) {
  EXPECT_EQ(distances_with_favourite(0, Listening::no).rows, 0);
  const AttentionDistances last = distances_with_favourite(0, Listening::last_row);
  EXPECT_EQ(last.rows, 1);
  EXPECT_EQ(last.top[2], 1);
}

TEST(AttentionProfile, BucketsCoverEveryDistanceAndTheirSharesAddUp) {
  EXPECT_EQ(bucket_name(0), "0");
  EXPECT_EQ(bucket_name(2), "2-3");
  EXPECT_EQ(bucket_name(8), "512 and more");
  const auto json = to_json(distances_with_favourite(0, Listening::all_rows));
  double top = 0, weight = 0;
  for (const auto& bucket : json["buckets"]) {
    top += bucket["top1_share"].get<double>();
    weight += bucket["attention_share"].get<double>();
  }
  EXPECT_DOUBLE_EQ(top, 1);
  EXPECT_NEAR(weight, 1, 1e-12);
}

GenerateResult answer(const Transformer& model, const EagleHead& head, AttentionProfile* profile) {
  const TreeOptions tree{.nodes = 6, .depth = 3, .expand = 2};
  const auto drafters = [&](KvCache& cache, int sequences) {
    DrafterSet set;
    set.push_back(std::make_unique<EagleDrafter>(
        head, cache, EagleDrafterOptions{.context = 64, .tree = tree, .sequences = sequences}));
    if (profile != nullptr) set[0] = profiled(std::move(set[0]), *profile);
    return set;
  };
  Batch decoder(model, {.context = 64}, {.tree = tree, .drafters = drafters});
  return decoder.generate(std::vector<std::int32_t>{1, 2, 3, 4, 5}, {.max_tokens = 12});
}

TEST(AttentionProfile, ADraftUnderProfileIsTheSameDraft) {
  const std::string data = ESPALIER_TEST_DATA;
  const auto reference = make_reference_device(1);
  AttentionProfile profile(*reference);
  const HeadFiles files = open_head(data + "/heads/eagle3-specforge");
  const Transformer plain = load_transformer(*reference, data + "/tiny/llama3");
  const Transformer watched = load_transformer(profile, data + "/tiny/llama3");
  const GenerateResult expected = answer(plain, EagleHead(plain, files), nullptr);
  const GenerateResult got = answer(watched, EagleHead(watched, files), &profile);
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_EQ(got.accept_lengths, expected.accept_lengths);
  EXPECT_GT(profile.distances().rows, 0);
}

}  // namespace
}  // namespace espalier
