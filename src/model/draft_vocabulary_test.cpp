#include "model/draft_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::int32_t> kTokens = {3, 5, 8, 13};

class MostFrequentRowsTest : public ::testing::Test {
 protected:
  std::optional<std::vector<std::int32_t>> rows(const std::string& order, std::int64_t count) const {
    HeadFiles files;
    files.folder = folder_.path();
    if (!order.empty()) folder_.write("vocab_order.json", order);
    return most_frequent_rows(files, {.vocabulary = count}, kTokens);
  }
  std::string refusal(const std::string& order) const {
    return complaint([&] { rows(order, 2); });
  }

  TemporaryFolder folder_;
};

TEST_F(MostFrequentRowsTest, AreThoseOfTheFirstTokensInTheFileInTheOrderOfTheHead) {
  EXPECT_THAT(*rows("[8, 3, 13, 5]", 1), ElementsAre(2));
  EXPECT_THAT(*rows("[8, 3, 13, 5]", 3), ElementsAre(0, 2, 3));
  EXPECT_THAT(picked(kTokens, *rows("[8, 3, 13, 5]", 3)), ElementsAre(3, 8, 13));
}

TEST_F(MostFrequentRowsTest, AreAllWhereAsManyOrMoreAreAskedFor) {
  EXPECT_EQ(rows("", 4), std::nullopt) << "and the file is not asked for";
  EXPECT_EQ(rows("", 100), std::nullopt);
  HeadFiles files;
  EXPECT_EQ(most_frequent_rows(files, {}, kTokens), std::nullopt);
}

TEST_F(MostFrequentRowsTest, NeedAFileThatListsTheHeadsTokensEachOnce) {
  EXPECT_THAT(refusal(""), HasSubstr("vocab_order.json: no such file, expected the head's tokens by frequency"));
  EXPECT_THAT(refusal("{}"), HasSubstr("expected a list of 4 tokens, all that the head may guess, got object"));
  EXPECT_THAT(refusal("[3, 5, 8]"), HasSubstr("expected a list of 4 tokens, all that the head may guess, got 3"));
  EXPECT_THAT(refusal("[3, 5, 8, 9]"), HasSubstr("element 3: expected a token of the head's draft vocabulary"));
  EXPECT_THAT(refusal("[3, 5, 5, 8]"),
              HasSubstr("element 2: expected a token of the head's draft vocabulary, each once, got 5"));
  EXPECT_THAT(refusal("[3, \"5\", 8, 13]"), HasSubstr("element 1"));
  EXPECT_THAT(refusal("[3, 5.5, 8, 13]"), HasSubstr("element 1"));
  EXPECT_THAT(refusal("["), HasSubstr("vocab_order.json"));
}

}  // namespace
}  // namespace espalier
