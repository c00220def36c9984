#include "report/round_picture.h"

#include <gtest/gtest.h>

#include "text/model_text.h"
#include "text/token_text.h"

namespace espalier {
namespace {

// An answer of one prompt token, of whose rounds each begins with another number of committed tokens.
class RoundPictureTest : public ::testing::Test {
 protected:
  // A chain of so many guesses, of which so many were accepted.
  void look(RoundPicture& kept, int guesses, std::size_t accepted) {
    TokenTree tree(100);
    for (int i = 0; i < guesses; ++i) tree.append(i, {101 + i, -1, 1});
    std::vector<Visit> visits;
    for (std::size_t i = 0; i <= accepted; ++i) visits.push_back({static_cast<int>(i), 101 + static_cast<int>(i)});
    const std::int64_t number = kept.rounds();
    kept.look({.number = number, .prefix = 1 + number, .tree = tree, .visits = visits, .finish = {}, .times = {}});
  }
  RoundPicture kept(std::optional<std::int64_t> wanted) const { return {wanted, *text_.tokenizer, {"ngram"}}; }
  TextResult answer() const {
    TextResult answer;
    answer.prompt = {1};
    answer.generated.tokens = {100, 101, 102, 103};
    return answer;
  }

  const ModelText text_ = load_model_text(std::string(ESPALIER_TEST_DATA) + "/tiny/llama2.gguf");
};

TEST_F(RoundPictureTest, IsOfTheFirstRoundThatAcceptedMost) {
  RoundPicture kept = this->kept({});
  EXPECT_FALSE(kept.found());
  const std::vector<std::pair<int, std::size_t>> rounds = {{0, 0}, {2, 0}, {3, 2}, {4, 2}, {0, 0}};
  for (const auto& [guesses, accepted] : rounds) look(kept, guesses, accepted);
  EXPECT_EQ(kept.rounds(), 5);
  EXPECT_FALSE(kept.done()) << "the next one may have accepted more";
  const TreePicture picture = kept.picture(answer());
  EXPECT_EQ(picture.title, "round 2: 4 rows, 2 of 3 drafted tokens accepted");
  EXPECT_EQ(picture.before, quoted_token(text_.tokenizer->decode(std::vector<TokenId>{100, 101})));
}

TEST_F(RoundPictureTest, ARoundWithGuessesIsBetterThanOneWithout) {
  RoundPicture kept = this->kept({});
  look(kept, 0, 0);
  EXPECT_EQ(kept.picture(answer()).before, "the prompt");
  look(kept, 2, 0);
  EXPECT_EQ(kept.picture(answer()).nodes.size(), 3u);
}

TEST_F(RoundPictureTest, OrOfTheOneThatIsAskedFor) {
  RoundPicture kept = this->kept(1);
  look(kept, 3, 3);
  EXPECT_FALSE(kept.found());
  look(kept, 0, 0);
  EXPECT_TRUE(kept.done());
  look(kept, 3, 3);
  EXPECT_EQ(kept.picture(answer()).nodes.size(), 1u);
}

}  // namespace
}  // namespace espalier
