#include "decode/decoder_choices.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "decode/scheduler.h"
#include "device/checked/checked_device.h"
#include "device/conformance/sparing_device.h"
#include "device/passing_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

class DecoderChoicesTest : public ::testing::Test {
 protected:
  DecoderChoices choices(const DecoderOptions& options, const Speculation& speculation = {}) const {
    return decoder_choices(config_, *device_, options, speculation);
  }
  DecoderChoices choices_with_buckets(const DecoderOptions& options, const Speculation& speculation = {}) const {
    return decoder_choices(config_, *bucketed_, options, speculation);
  }
  static Speculation drafted(const TreeOptions& tree) {
    return {.tree = tree, .drafters = [](KvCache&, int) { return DrafterSet(); }};
  }

  ModelConfig config_ = [] {
    ModelConfig config;
    config.context = 512;
    return config;
  }();
  std::unique_ptr<Device> device_ = make_reference_device();
  std::unique_ptr<Device> bucketed_ = make_checked_device(make_reference_device(), {.profile = CheckedProfile::ascend});
  int largest_bucket_ = static_cast<int>(bucketed_->row_buckets().back());
};

TEST_F(DecoderChoicesTest, TheContextIsTheModelsUnlessAShorterOneIsAskedFor) {
  EXPECT_EQ(choices({}).context, 512);
  EXPECT_EQ(choices({.context = 100}).context, 100);
  EXPECT_THROW(choices({.context = 513}), InputError);
  EXPECT_THROW(choices({.context = -1}), InputError);
}

TEST_F(DecoderChoicesTest, TheCacheHoldsAWholeContextOfEverySequenceWithItsRoundAndItsReserve) {
  // 100 + 1 + 128 positions are two blocks, and one that may have to be copied.
  EXPECT_EQ(choices({.context = 100}).cache_positions, 3 * 128);
  EXPECT_EQ(choices({.context = 100, .parallel = 3}).cache_positions, 3 * 3 * 128);
  EXPECT_EQ(choices({.context = 129, .parallel = 2}).cache_positions, 2 * 4 * 128);
  EXPECT_THROW(choices({.parallel = 0}), std::logic_error);
}

TEST_F(DecoderChoicesTest, SlotsForTreesThatPadARoundAreSetAsideWhereRoundsMayStayOnTheDevice) {
  const SparingDevice sparing(make_reference_device(), {1, 2, 4, 8, 16});
  const Speculation trees = drafted({.nodes = 16, .depth = 4}), roots = drafted({.nodes = 1});
  const auto slots = [&](const DecoderOptions& options, const Speculation& speculation) {
    return decoder_choices(config_, sparing, options, speculation).padding_slots;
  };
  const DecoderOptions sixteen{.parallel = 16};
  EXPECT_EQ(slots(sixteen, trees), 7 * 128) << "nine trees run as sixteen";
  EXPECT_EQ(slots(sixteen, {}), 128) << "a step has up to seven rows more than are asked for";
  EXPECT_EQ(slots(sixteen, roots), 128);
  Speculation lookups = trees;
  lookups.networks = false;
  EXPECT_EQ(slots(sixteen, lookups), 128);
  EXPECT_EQ(slots({.parallel = 16, .round_route = RoundRoute::host}, trees), 128);
  EXPECT_EQ(slots({.parallel = 16, .kv = {.reorder = Reorder::full}}, trees), 128);
  EXPECT_EQ(slots({.parallel = 16, .mask = MaskChoice::dense}, trees), 128);
  EXPECT_EQ(choices(sixteen, trees).padding_slots, 0) << "nothing is recorded there";
}

TEST_F(DecoderChoicesTest, AnyRequestInsideTheContextIsAdmittedByTheSchedulersCount) {
  for (std::int64_t context : {1, 100, 127, 128, 129, 256, 500, 512})
    for (int nodes : {1, 16, 64})
      for (bool least : {false, true}) {
        DecoderOptions options{.context = context};
        const Speculation speculation = drafted({.nodes = nodes});
        if (least) options.cache_positions = choices(options, speculation).cache_positions;
        options.parallel = least ? 3 : 1;
        const DecoderChoices chosen = choices(options, speculation);
        const PoolState pool{.block_size = 128, .all_blocks = chosen.cache_positions / 128};
        EXPECT_TRUE(fits(pool, {.reserve = chosen.reserve}, context, 0, static_cast<int>(chosen.branch_rows)))
            << context << " positions, trees of " << nodes;
      }
}

TEST_F(DecoderChoicesTest, ACacheIsAsLargeAsAskedForIfOneSequenceFits) {
  EXPECT_EQ(choices({.context = 100, .parallel = 3, .cache_positions = 500}).cache_positions, 500);
  EXPECT_EQ(choices({.context = 100, .cache_positions = 3 * 128}).cache_positions, 3 * 128);
  EXPECT_THROW(choices({.context = 100, .cache_positions = 3 * 128 - 1}), InputError);
}

TEST_F(DecoderChoicesTest, ARoundTakesTheRowsOfItsTreeOrOfItsDrafts) {
  EXPECT_EQ(choices({}).branch_rows, 1);
  EXPECT_EQ(choices({}, drafted({.nodes = 1})).branch_rows, 1) << "nobody drafts";
  EXPECT_EQ(choices({}, drafted({.nodes = 40, .depth = 3, .expand = 4})).branch_rows, 40);
  EXPECT_EQ(choices({}, drafted({.nodes = 16, .depth = 6, .expand = 4})).branch_rows, 1 + 4 * 5)
      << "drafters compute more than is verified";
  EXPECT_EQ(choices({}, drafted({.shape = TreeShape::chain, .nodes = 16, .depth = 3})).branch_rows, 4);
  const Speculation known{.tree = {.nodes = 7},
                          .trees = [](std::span<const std::int32_t> tokens) { return TokenTree(tokens.back()); }};
  EXPECT_EQ(choices({}, known).branch_rows, 7);
}

TEST_F(DecoderChoicesTest, APrefillStepIsNoLongerThanTheContextNorLargerThanTheDeviceTakes) {
  EXPECT_EQ(choices({.context = 20}).prefill_rows, 20);
  EXPECT_EQ(choices({.prefill_rows = 300}).prefill_rows, 300);
  EXPECT_EQ(choices_with_buckets({.prefill_rows = 300}).prefill_rows, largest_bucket_);
  EXPECT_THROW(choices({.prefill_rows = 0}), std::logic_error);
}

TEST_F(DecoderChoicesTest, AStepHasLogitsForItsTreesAndForWhatIsScoredNotForAPrompt) {
  EXPECT_EQ(choices({.prefill_rows = 300}).logit_rows, 1);
  EXPECT_EQ(choices({.prefill_rows = 300, .parallel = 3}, drafted({.nodes = 16})).logit_rows, 3 * 16 + 3)
      << "trees of some, and the last rows of the prompts of others";
  const DecoderChoices scoring = choices({.prefill_rows = 300, .scored_rows = 32});
  EXPECT_EQ(scoring.scored_rows, 32);
  EXPECT_EQ(scoring.logit_rows, 32);
  EXPECT_EQ(choices({}, drafted({.nodes = 16})).scored_rows, 16) << "what there is room for is used";
  EXPECT_EQ(choices({.prefill_rows = 8, .scored_rows = 32}).scored_rows, 8);
  EXPECT_EQ(choices({.prefill_rows = 8}, drafted({.nodes = 16})).scored_rows, 8);
}

TEST_F(DecoderChoicesTest, WithoutDraftersATreeIsItsRoot) {
  const DecoderChoices plain = choices({.parallel = 3}, {.tree = {.nodes = 16}});
  EXPECT_EQ(max_rows(plain.tree), 1);
  EXPECT_EQ(plain.tree_rows, 3);
  EXPECT_EQ(plain.step_rows, 64 + 3) << "prompts and trees are verified together";
  EXPECT_EQ(choices({}, {.tree = {.nodes = 16}}).step_rows, 64) << "one sequence has either";
}

TEST_F(DecoderChoicesTest, TreesOfAllSequencesFitAStepBesideTheirPromptsWhereTheDeviceTakesAny) {
  EXPECT_EQ(choices({.parallel = 5}, drafted({.nodes = 40})).tree_rows, 200);
  EXPECT_EQ(choices({.parallel = 5}, drafted({.nodes = 40})).step_rows, 64 + 200);
  EXPECT_EQ(choices_with_buckets({.parallel = 5}, drafted({.nodes = 40})).step_rows, largest_bucket_);
  EXPECT_EQ(choices({}, drafted({.nodes = 80})).step_rows, 80);
  EXPECT_EQ(choices_with_buckets({.parallel = 5}, drafted({.nodes = 40})).tree_rows, largest_bucket_);
}

TEST_F(DecoderChoicesTest, ATreeHasNoMoreRowsThanOneStepOfTheDevice) {
  EXPECT_EQ(choices_with_buckets({}, drafted({.nodes = largest_bucket_ + 7})).tree.nodes, largest_bucket_);
  EXPECT_EQ(choices({}, drafted({.nodes = largest_bucket_ + 7})).tree.nodes, largest_bucket_ + 7);
}

TEST_F(DecoderChoicesTest, TreesThatAreKnownKeepTheirOptions) {
  const Speculation known{.tree = {.nodes = 7, .branch = 0},
                          .trees = [](std::span<const std::int32_t> tokens) { return TokenTree(tokens.back()); }};
  EXPECT_EQ(choices({}, known).tree.nodes, 7);
  EXPECT_EQ(choices({}, known).tree.branch, 0);
  EXPECT_EQ(choices({}, drafted({.expand = 3})).tree.branch, 3) << "as many as are expanded, unless it is said";
}

TEST_F(DecoderChoicesTest, ADenseMaskIsForEagerAttentionOrWhoAsksForIt) {
  EXPECT_EQ(choices({}, drafted({})).form.mask, MaskForm::list);
  EXPECT_EQ(choices({.mask = MaskChoice::dense}).form.mask, MaskForm::dense);
  EXPECT_EQ(choices({.attention = AttentionOp::eager}).form.mask, MaskForm::dense);
  EXPECT_THROW(choices({.attention = AttentionOp::eager, .mask = MaskChoice::list}), InputError);
}

TEST_F(DecoderChoicesTest, ADeviceThatPrefersADenseMaskGetsOneWhereThereIsATreeToHide) {
  ASSERT_TRUE(bucketed_->prefers_dense_mask());
  EXPECT_EQ(choices_with_buckets({}, drafted({})).form.mask, MaskForm::dense);
  EXPECT_EQ(choices_with_buckets({}).form.mask, MaskForm::list);
  EXPECT_EQ(choices_with_buckets({.mask = MaskChoice::list}, drafted({})).form.mask, MaskForm::list);
}

TEST_F(DecoderChoicesTest, ADeviceThatNeedsADenseMaskAlwaysGetsOne) {
  struct MaskedDevice final : PassingDevice {
    using PassingDevice::PassingDevice;
    bool needs_dense_mask() const override { return true; }
  };
  const MaskedDevice masked(*device_);
  EXPECT_EQ(decoder_choices(config_, masked, {}, {}).form.mask, MaskForm::dense);
  EXPECT_THROW(decoder_choices(config_, masked, {.mask = MaskChoice::list}, {}), InputError);
}

}  // namespace
}  // namespace espalier
