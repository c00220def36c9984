#include "model/eagle3_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "format/testing/complaint.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kTeacherVocabulary = 10;

// A table and the bytes it views.
template <typename T>
struct Table {
  Table(DType type, std::vector<T> values) : values_(std::move(values)) {
    info_.type = type;
    info_.shape = {static_cast<std::int64_t>(values_.size())};
    info_.bytes = std::as_bytes(std::span(values_));
  }
  Table(const Table&) = delete;
  operator const TensorInfo*() const { return &info_; }

 private:
  TensorInfo info_;
  std::vector<T> values_;
};

Table<std::int64_t> d2t(std::vector<std::int64_t> values) {
  return {DType::i64, std::move(values)};
}
Table<std::uint8_t> t2d(std::vector<std::uint8_t> values) {
  return {DType::u8, std::move(values)};
}

std::vector<std::int32_t> ids(const TensorInfo* d2t, const TensorInfo* t2d, std::int64_t draft_vocabulary,
                              D2tMeaning meaning = D2tMeaning::offset) {
  return read_target_ids({d2t, t2d, meaning, draft_vocabulary, kTeacherVocabulary}, "head");
}
std::string ids_refusal(const TensorInfo* d2t, const TensorInfo* t2d, std::int64_t draft_vocabulary,
                        D2tMeaning meaning = D2tMeaning::offset) {
  return complaint([&] { ids(d2t, t2d, draft_vocabulary, meaning); });
}

TEST(Eagle3Vocabulary, OffsetsAndTokensGiveTheSameIds) {
  const auto offsets = d2t({1, 1, 4}), tokens = d2t({1, 2, 6});
  EXPECT_THAT(ids(offsets, nullptr, 3), ElementsAre(1, 2, 6));
  EXPECT_THAT(ids(tokens, nullptr, 3, D2tMeaning::token), ElementsAre(1, 2, 6));
  const Table<std::int32_t> narrow(DType::i32, {1, 1, 4});
  EXPECT_THAT(ids(narrow, nullptr, 3), ElementsAre(1, 2, 6));
}

TEST(Eagle3Vocabulary, AFullVocabularyNeedsNoTable) {
  EXPECT_THAT(ids(nullptr, nullptr, kTeacherVocabulary), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(ids_refusal(nullptr, nullptr, 3),
            "head: d2t is missing, expected [3] for a draft vocabulary smaller than 10");
}

TEST(Eagle3Vocabulary, ATokenOutsideTheVocabularyIsRefusedHoweverWild) {
  const auto wild = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(ids_refusal(d2t({-1, 0, 1}), nullptr, 3), "head: d2t: element 0: expected a token 0 to 9, got -1");
  EXPECT_EQ(ids_refusal(d2t({1, 1, 8}), nullptr, 3), "head: d2t: element 2: expected a token 0 to 9, got 10");
  EXPECT_THAT(ids_refusal(d2t({1, wild, 8}), nullptr, 3), HasSubstr("element 1: expected a token 0 to 9"));
  EXPECT_THAT(ids_refusal(d2t({1, -wild - 1, 8}), nullptr, 3), HasSubstr("element 1: expected a token 0 to 9"));
}

TEST(Eagle3Vocabulary, ATokenTwiceIsRefused) {
  EXPECT_EQ(ids_refusal(d2t({1, 0, 4}), nullptr, 3), "head: d2t: element 1: expected each token once, got 1 twice");
}

TEST(Eagle3Vocabulary, ZerosAreRefusedUnlessTheMembersAgree) {
  const auto zeros = d2t({0, 0, 0});
  EXPECT_THAT(ids_refusal(zeros, nullptr, 3), HasSubstr("d2t: all zero for 3 of 10 tokens"));
  EXPECT_THAT(ids_refusal(zeros, t2d({1, 1, 0, 1, 0, 0, 0, 0, 0, 0}), 3), HasSubstr("all zero"));
  EXPECT_THAT(ids(zeros, t2d({1, 1, 1, 0, 0, 0, 0, 0, 0, 0}), 3), ElementsAre(0, 1, 2));
  const auto full = d2t(std::vector<std::int64_t>(kTeacherVocabulary));
  EXPECT_EQ(ids(full, nullptr, kTeacherVocabulary).size(), 10u);
}

TEST(Eagle3Vocabulary, MembersMustBeThoseOfTheTable) {
  const auto table = d2t({1, 1, 4});
  EXPECT_THAT(ids(table, t2d({0, 1, 1, 0, 0, 0, 1, 0, 0, 0}), 3), ElementsAre(1, 2, 6));
  EXPECT_EQ(ids_refusal(table, t2d({0, 1, 0, 0, 0, 0, 1, 0, 0, 0}), 3),
            "head: t2d: token 2: expected true as d2t says, got false");
  EXPECT_EQ(ids_refusal(table, t2d({0, 1, 1, 0, 0, 0, 1}), 3), "head: t2d: expected bool [10], got u8 [7]");
}

TEST(Eagle3Vocabulary, ATableOfAnotherSizeOrTypeIsRefused) {
  EXPECT_EQ(ids_refusal(d2t({1, 1}), nullptr, 3), "head: d2t: expected i64 [3], got i64 [2]");
  EXPECT_EQ(ids_refusal(t2d({1, 1, 1}), nullptr, 3), "head: d2t: expected i64 [3], got u8 [3]");
}

}  // namespace
}  // namespace espalier
