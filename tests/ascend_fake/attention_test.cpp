// F38 to F43, and F22 and F24 where the fused attention is concerned.
#include "attention_test_fixture.h"

namespace ascend_fake {
namespace {

using FusedAttention = AttentionCard;

TEST_F(FusedAttention, IsTheFormulaOverAPagedCacheWithATreeMaskUnderEverySeed) {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    begin(options_of_seed(seed));
    EXPECT_EQ(attend({}), 0);
    expect_formula({}, 256);
    close();
  }
}

TEST_F(FusedAttention, IsTheFormulaInEveryUnpagedLayout) {
  for (const char* layout : {"BSND", "BNSD", "BSH"}) {
    const Call call{.paged = false, .layout = layout};
    EXPECT_EQ(attend(call), 0);
    expect_formula(call, 256);
  }
}

TEST_F(FusedAttention, IsTheSameInEveryVersion) {
  EXPECT_EQ(attend({}), 0);
  const std::vector<uint16_t> expected = download<uint16_t>(out_, q_.size());
  for (const int version : {3, 4}) {
    EXPECT_EQ(attend({.version = version}), 0);
    EXPECT_EQ(download<uint16_t>(out_, q_.size()), expected);
  }
  close();
  AscendFakeOptions options = options_of_seed(0);
  options.soc_name = "Ascend950PR";
  begin(options);
  EXPECT_EQ(attend({.version = 4}), 561003);
  EXPECT_EQ(attend({.version = 5}), 0);
  EXPECT_EQ(download<uint16_t>(out_, q_.size()), expected);
}

TEST_F(FusedAttention, GivesTheLogOfTheSumWhereItIsAskedFor) {
  EXPECT_EQ(attend({.lse_tensor = true, .lse_flag = true}), 0);
  const std::vector<float> lse = download<float>(lse_, 8);
  double total = 0;
  for (int64_t c = 0; c < 10; ++c) {
    double score = 0;
    for (size_t d = 0; d < 16; ++d) score += 0.25 * q_[d] * k_[place_of_key({}, c, 0) + d];
    total += std::exp(score);
  }
  EXPECT_NEAR(lse[0], std::log(total), 1e-4);
}

TEST_F(FusedAttention, F59WithSeedZeroTheSlotsOfTheKeysDoNotMatter) {
  EXPECT_EQ(attend({}), 0);
  const std::vector<uint16_t> first = download<uint16_t>(out_, q_.size());
  Call swapped{.mask = mask_of({})};  // keys 3 and 7, exchanged
  std::vector<float> k = k_, v = v_;
  for (int64_t g = 0; g < 2; ++g) {
    for (size_t d = 0; d < 16; ++d) {
      std::swap(k[place_of_key({}, 3, g) + d], k[place_of_key({}, 7, g) + d]);
      std::swap(v[place_of_key({}, 3, g) + d], v[place_of_key({}, 7, g) + d]);
    }
  }
  swapped.k = k;
  swapped.v = v;
  EXPECT_EQ(attend(swapped), 0);
  EXPECT_EQ(download<uint16_t>(out_, q_.size()), first);
}

TEST_F(FusedAttention, F22ABlockOutsideTheCacheIsALateFaultAlsoBehindTheEnd) {
  EXPECT_EQ(attend({.table = {2, 3}}), 0);
  EXPECT_EQ(synchronise(), 507015);
  stream = new_stream();
  EXPECT_EQ(attend({.table = {2, -1}, .lengths = {128}}), 0);
  EXPECT_EQ(synchronise(), 507015);
}

TEST_F(FusedAttention, F38TypesAndGeometryThatItDoesNotTakeAreRefused) {
  EXPECT_EQ(attend({.cache_type = ACL_BF16}), 161002);
  EXPECT_EQ(attend({.width = 24}), 561002);
  EXPECT_EQ(attend({.heads = 3}), 561002);
  EXPECT_EQ(attend({.paged = false, .layout = "TND"}), 561002);
  EXPECT_EQ(attend({.value_blocks = 2}), 561002) << "keys and values differ in shape";
}

TEST_F(FusedAttention, F39MasksOfAnotherShapeAreRefused) {
  EXPECT_EQ(attend({.flat_mask = true}), 561002);
  EXPECT_EQ(attend({.mask_heads = 4}), 561002);
  EXPECT_EQ(attend({.rows = 3}), 561002) << "fewer rows than the query";
  EXPECT_EQ(attend({.columns = 255}), 561002);
  EXPECT_EQ(attend({.columns = 128, .lengths = {128}}), 561002) << "narrower than the table";
  EXPECT_EQ(attend({.mask_batch = 3}), 561002);
  EXPECT_EQ(attend({.mask = std::vector<uint8_t>(2048, 0), .mask_type = ACL_FLOAT}), 561002);
}

TEST_F(FusedAttention, F39OneRowWithAMaskIsAViolation) {
  EXPECT_EQ(attend({.rows = 1, .mask_rows = 1, .inner_precise = 0}), 0);
  expect_only(39);
}

TEST_F(FusedAttention, F39HowFarTheBugOfMasksGoesIsAnOption) {
  const Call call{.blocks = 5, .keys = 640, .columns = 640, .table = {0, 1, 2, 3, 4}, .lengths = {640}};
  EXPECT_EQ(attend(call), 0);
  expect_formula(call, 640);
  AscendFakeOptions options = options_of_seed(0);
  options.mask_ignored_rows = 2;
  begin(options);
  EXPECT_EQ(attend(call), 0);
  const std::vector<float> leaking = cast_down(ACL_FLOAT16, out_, q_.size());
  options.mask_ignored_type = ACL_BF16;
  begin(options);
  EXPECT_EQ(attend(call), 0);
  expect_formula(call, 640);
  EXPECT_NE(cast_down(ACL_FLOAT16, out_, q_.size()), leaking);
}

TEST_F(FusedAttention, F40ModesAndReachesThatCutTheMask) {
  EXPECT_EQ(attend({.sparse_mode = 3}), 561002);
  EXPECT_EQ(attend({.reach = 100}), 0);
  expect_only(40);
  EXPECT_EQ(attend({.inner_precise = 0}), 0);
  expect_only(40);
  EXPECT_EQ(attend({.rows = 1, .no_mask = true, .inner_precise = 2}), 561002);
  EXPECT_EQ(attend({.sparse_mode = 1}), 0);
}

TEST_F(FusedAttention, F41PagedCachesOfAnotherShapeAreRefused) {
  EXPECT_EQ(attend({.block_size = 64}), 561002);
  EXPECT_EQ(attend({.block_size = 256}), 561002) << "not the cache's";
  EXPECT_EQ(attend({.table_type = ACL_FLOAT}), 561002);
  EXPECT_EQ(attend({.no_lengths = true}), 561002);
  EXPECT_EQ(attend({.lengths = {257}}), 561002);
  EXPECT_EQ(attend({.batch = 3, .mask_rows = 2, .table = {0, 1, 2, 0, 1, 2}, .lengths = {256, 256}}), 561002);
}

TEST_F(FusedAttention, F41ATableThatIsNotDenseIsAViolation) {
  EXPECT_EQ(attend({.strided_table = true}), 0);
  expect_only(41);
}

TEST_F(FusedAttention, F41AFiveDimensionalCacheIsAViolation) {
  EXPECT_EQ(attend({.five_dimensions = true}), 561002);
  expect_only(41);
}

TEST_F(FusedAttention, F24AVisibleKeyThatNobodyWroteIsAViolationAndAHiddenOneShowsItsNan) {
  EXPECT_EQ(attend({}), 0);
  EXPECT_EQ(synchronise(), 0);
  Call call{.paged = false, .no_lengths = true};
  aclTensorList* fresh = list({tensor(ACL_FLOAT16, {1, 256, 2, 16}, memory(256 * 32 * 2))});
  aclTensorList* also = list({tensor(ACL_FLOAT16, {1, 256, 2, 16}, memory(256 * 32 * 2))});
  aclTensor* q = tensor(ACL_FLOAT16, {1, 2, 4, 16}, cast_up(ACL_FLOAT16, waves(128, 1)));
  aclTensor* mask = tensor(ACL_BOOL, {1, 1, 2, 256}, upload(mask_of(call)));
  out_ = memory(256);
  aclTensor* out = tensor(ACL_FLOAT16, {1, 2, 4, 16}, out_);
  char layout[] = "BSND";
  Launch launch;
  EXPECT_EQ(
      aclnnFusedInferAttentionScoreV2GetWorkspaceSize(
          q, fresh, also, nullptr, mask, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
          nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 4, 0.25,
          2147483647, 2147483647, layout, 2, 0, 2, 0, 0, false, 0, 0, out, nullptr, &launch.size, &launch.executor),
      0);
  EXPECT_EQ(second(aclnnFusedInferAttentionScoreV2, launch), 0);
  EXPECT_TRUE(std::isnan(cast_down(ACL_FLOAT16, out_, 128)[0]));
  expect_only(24);
}

TEST_F(FusedAttention, F42ARowWithoutAnyKeyIsAViolation) {
  Call call;
  call.mask = mask_of(call);
  std::fill(call.mask.begin(), call.mask.begin() + 256, uint8_t{1});
  EXPECT_EQ(attend(call), 0);
  EXPECT_EQ(synchronise(), 0);
  expect_only(42);
}

TEST_F(FusedAttention, F42NanBehindAHiddenColumnShows) {
  Call call;
  call.v = waves(cache_elements(call), 0.2f);
  call.v[place_of_key(call, 200, 0)] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(attend(call), 0);
  const std::vector<float> result = cast_down(ACL_FLOAT16, out_, q_.size());
  EXPECT_TRUE(std::isnan(result[0]));
  EXPECT_FALSE(std::isnan(result[3 * 16])) << "a head of another key head";
}

TEST_F(FusedAttention, F42AShiftIsAViolation) {
  EXPECT_EQ(attend({.pse = true}), 0);
  expect_only(42);
}

TEST_F(FusedAttention, F43AnLseTensorWithoutItsFlagIsAViolation) {
  EXPECT_EQ(attend({.lse_tensor = true}), 0);
  expect_only(43);
}

TEST_F(FusedAttention, F4OtherChipsHaveOtherVersions) {
  AscendFakeOptions options = options_of_seed(0);
  options.soc_name = "Ascend310P3";
  begin(options);
  EXPECT_EQ(attend({}), 561003);
}

}  // namespace
}  // namespace ascend_fake
