#include "text/bpe_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>

#include "base/error.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

// Letters a to d, then one token for each merge in order.
BpeVocabulary letters(std::vector<std::pair<std::string, std::string>> merges) {
  BpeVocabulary vocabulary;
  vocabulary.tokens = {"a", "b", "c", "d"};
  for (const auto& [left, right] : merges) {
    const std::string merged = left + right;
    if (std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), merged) == vocabulary.tokens.end()) {
      vocabulary.tokens.push_back(merged);
    }
  }
  vocabulary.merges = std::move(merges);
  vocabulary.special.assign(vocabulary.tokens.size(), false);
  return vocabulary;
}

Ids encode(const BpeModel& model, std::string_view word, char mark = 0) {
  MarkedText text;
  text.append(word, mark);
  Ids ids;
  model.encode(text, 0, text.text.size(), ids);
  return ids;
}

TEST(BpeModel, TheMergeLearnedFirstComesFirst) {
  const BpeModel model(letters({{"b", "c"}, {"a", "b"}}), "test");  // bc = 4, ab = 5
  EXPECT_THAT(encode(model, "abc"), ElementsAre(0, 4));
  EXPECT_THAT(encode(model, "abab"), ElementsAre(5, 5));
  EXPECT_THAT(encode(model, ""), ElementsAre());
}

TEST(BpeModel, AmongEqualMergesTheLeftmostComesFirst) {
  const BpeModel model(letters({{"a", "a"}}), "test");
  EXPECT_THAT(encode(model, "aaa"), ElementsAre(4, 0));
}

// The definition: again and again the merge with the lowest rank, leftmost first.
Ids merge_naively(Ids ids, const std::map<std::pair<std::int32_t, std::int32_t>, BpeMerges::Merge>& merges) {
  while (true) {
    std::size_t best = ids.size();
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = merges.find({ids[i], ids[i + 1]});
      if (found == merges.end()) continue;
      if (best == ids.size() || found->second.rank < merges.at({ids[best], ids[best + 1]}).rank) best = i;
    }
    if (best == ids.size()) return ids;
    ids[best] = merges.at({ids[best], ids[best + 1]}).id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BpeModel, RandomMergesOfRandomWordsEqualTheDefinition) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::string> tokens = {"a", "b", "c", "d"};
    std::vector<std::pair<std::string, std::string>> merges;
    std::map<std::pair<std::int32_t, std::int32_t>, BpeMerges::Merge> by_pair;
    while (merges.size() < 20) {
      const std::size_t left = random() % tokens.size();
      const std::size_t right = random() % tokens.size();
      const std::string merged = tokens[left] + tokens[right];
      // As training makes them: each merge makes a new token.
      if (std::find(tokens.begin(), tokens.end(), merged) != tokens.end()) continue;
      by_pair[{static_cast<int>(left), static_cast<int>(right)}] = {static_cast<int>(merges.size()),
                                                                    static_cast<int>(tokens.size())};
      merges.emplace_back(tokens[left], tokens[right]);
      tokens.push_back(merged);
    }
    const BpeModel model(letters(merges), "test");
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::string word;
      Ids symbols;
      for (std::size_t i = random() % 40; i > 0; --i) {
        symbols.push_back(static_cast<std::int32_t>(random() % 4));
        word += static_cast<char>('a' + symbols.back());
      }
      ASSERT_EQ(encode(model, word), merge_naively(symbols, by_pair)) << "seed " << seed << " word " << word;
    }
  }
}

TEST(BpeModel, AWordOfAHundredThousandBytesIsNotQuadratic) {
  std::vector<std::pair<std::string, std::string>> merges = {{"a", "b"}};
  for (std::string token = "ab"; token.size() < 64; token += token) merges.emplace_back(token, token);
  const BpeModel model(letters(merges), "test");
  std::string word;
  for (int i = 0; i < 50'000; ++i) word += "ab";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(encode(model, word).size(), 50'000u / 32 + 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST(BpeModel, AByteWithoutATokenIsUnknownOrLeftOut) {
  BpeVocabulary vocabulary = letters({{"a", "b"}});
  EXPECT_THAT(encode(BpeModel(vocabulary, "test"), "axyb"), ElementsAre(4)) << "left out before anything is merged";
  vocabulary.unknown = 3;
  EXPECT_THAT(encode(BpeModel(vocabulary, "test"), "axyb"), ElementsAre(0, 3, 3, 1));
  vocabulary.fuse_unknown = true;
  EXPECT_THAT(encode(BpeModel(vocabulary, "test"), "axyb"), ElementsAre(0, 3, 1));
}

TEST(BpeModel, WithIgnoreMergesAWordThatIsATokenNeedsNone) {
  BpeVocabulary vocabulary = letters({});
  vocabulary.tokens.push_back("abcd");
  vocabulary.special.push_back(false);
  EXPECT_THAT(encode(BpeModel(vocabulary, "test"), "abcd"), ElementsAre(0, 1, 2, 3));
  vocabulary.ignore_merges = true;
  EXPECT_THAT(encode(BpeModel(vocabulary, "test"), "abcd"), ElementsAre(4));
}

TEST(BpeModel, NoMergeAndNoWholeWordMakesAControlToken) {
  BpeVocabulary vocabulary = letters({{"a", "b"}});
  vocabulary.special[4] = true;
  vocabulary.ignore_merges = true;
  EXPECT_THAT(encode(BpeModel(vocabulary, "test"), "ab"), ElementsAre(0, 1));
}

TEST(BpeModel, ACharacterWithoutATokenIsSpelledInBytes) {
  BpeVocabulary vocabulary = letters({});
  vocabulary.byte_level = false;
  vocabulary.byte_fallback = true;
  for (const char* token : {"<0xC3>", "<0xA9>", "<0x61>"}) vocabulary.tokens.emplace_back(token);
  vocabulary.special.assign(vocabulary.tokens.size(), false);
  vocabulary.unknown = 3;
  const BpeModel model(std::move(vocabulary), "test");
  EXPECT_THAT(encode(model, "a\u00e9\u00e8"), ElementsAre(0, 4, 5, 3)) << "the last has no byte tokens";
  EXPECT_THAT(encode(model, "a", MarkedText::kLiteral), ElementsAre(6));
}

TEST(BpeModel, AMergeOfSomethingThatIsNotATokenIsRefused) {
  BpeVocabulary vocabulary = letters({});
  vocabulary.merges = {{"a", "z"}};
  EXPECT_THROW(BpeModel(vocabulary, "test"), InputError);
  vocabulary.tokens.push_back("a");
  vocabulary.special.push_back(false);
  vocabulary.merges = {};
  EXPECT_THROW(BpeModel(vocabulary, "test"), InputError);
}

TEST(ByteLevelAlphabet, EveryByteHasItsOwnCharacter) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string character = byte_level_character(static_cast<unsigned char>(byte));
    EXPECT_EQ(byte_level_decode(character), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(byte_level_character(' '), "\u0120");
  EXPECT_EQ(byte_level_character('\n'), "\u010a");
  EXPECT_EQ(byte_level_character(0xAD), "\u0143");
  EXPECT_EQ(byte_level_decode("a b"), std::nullopt);
}

}  // namespace
}  // namespace espalier
