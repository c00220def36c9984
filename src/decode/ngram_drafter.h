// Prompt lookup: what followed the last tokens before, will follow them again. Costs microseconds and needs no weights.
//
// An earlier place where the root's token stands is a match; its length is how many tokens backwards agree. Below the
// root a match goes on as long as the path says what stands there, one token longer with each level; a match that
// reaches the end of the text goes on into the path itself, so a loop is followed for any number of turns. What stands
// after a match is a guess, with
//
//   P(token) = rate(length of the longest match before it) * its share of the weight of all matches of this node
//
// A prediction of the answer is one more text to find matches in, as if it stood behind the prompt; a match that
// reaches its end says nothing more. Among matches of equal length those in the prediction come first.
//
// rate(n) is how often, lately, what the teacher chose was among the guesses of a node whose longest match had length n
// (docs/drafters.md). Rates are learned over the whole life of the drafter, from all its sequences. One thread at a
// time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decode/drafter.h"

namespace espalier {

struct NgramOptions {
  int length = 16;         // matches are told apart up to here; longer ones count as this long
  int occurrences = 1024;  // the most recent places of the root's token that are looked at in a round
  int matches = 64;        // the longest of them, among equals the most recent, that are followed
};

// How often guesses behind matches of each length were right.
class NgramRates {
 public:
  explicit NgramRates(int lengths) : tallies_(static_cast<std::size_t>(lengths)) {}

  // rate(length) as it is now, in (0, 1).
  double operator[](int length) const;
  // Guesses whose longest match had this length were tried, and the teacher's choice was among them or not.
  void learn(int length, bool hit);

 private:
  struct Tally {
    double hits = 0;
    double tries = 0;
  };
  std::vector<Tally> tallies_;  // of lengths 1, 2, ...
};

class NgramDrafter final : public LoneDrafter {
 public:
  explicit NgramDrafter(const NgramOptions& options = {});

  std::string_view name() const override { return "ngram"; }
  std::unique_ptr<DraftSequence> open(SequenceId sequence, std::span<const std::int32_t> prompt) override;

  double acceptance_rate(int length) const { return rates_[length]; }

 private:
  const NgramOptions options_;
  NgramRates rates_;
};

// The text of one sequence.
class NgramSequence final : public LoneSequence {
 public:
  // The rates must outlive this.
  NgramSequence(const NgramOptions& options, NgramRates& rates) : options_(options), rates_(&rates) {}

  bool reused(std::span<const std::int32_t> tokens) override;
  void committed(const CommittedRows& rows) override;
  void begin_round(const DraftRound& round) override;
  Guesses expand(const Candidates& candidates, std::span<const int> nodes, int branch) override;
  void end_round(const DraftVerdict& verdict) override;
  void predict(std::span<const std::int32_t> prompt, std::span<const std::int32_t> prediction) override;
  PredictionCounts take_prediction_counts() override { return std::exchange(counts_, {}); }

 private:
  using Path = std::vector<std::int32_t>;

  struct Place {
    std::int32_t token = 0;
    std::int64_t previous = -1;  // the place before with the same token; -1: none
  };
  // Where every token of a text stands.
  struct Text {
    std::vector<Place> places = {};
    std::unordered_map<std::int32_t, std::int64_t> last = {};  // the last place of every token

    std::int64_t size() const { return std::ssize(places); }
    std::int32_t operator[](std::int64_t position) const { return places[static_cast<std::size_t>(position)].token; }
    void append(std::span<const std::int32_t> tokens);
  };
  struct Match {
    const Text* text = nullptr;
    std::int64_t position = 0;
    int length = 0;
    double weight = 0;
  };
  struct Continuation {
    std::int32_t token = 0;
    int length = 0;  // of the longest match before it
    double weight = 0;
    bool predicted = false;  // a match in the prediction says so
    bool guessed = false;    // it is among the guesses
  };

  int match_length(const Text& text, std::int64_t position) const;
  void add_matches(const Text& text, std::vector<Match>& matches) const;
  std::vector<Match> find_matches() const;
  // The token at a position of the match's text, which goes on with root and path where it is the committed one.
  // Nothing: there the text ends.
  std::optional<std::int32_t> token_at(const Text& text, std::int64_t position, const Path& path) const;
  bool follows(const Match& match, const Path& path) const;
  std::vector<Continuation> continuations(const Path& path) const;
  std::vector<DraftToken> guesses(std::vector<Continuation>& found, int branch) const;
  void learn(const std::vector<Continuation>& found, std::int32_t chosen);
  void count_predicted(const DraftVerdict& verdict);

  const NgramOptions options_;
  NgramRates* rates_;
  Text text_;       // the committed tokens
  Text predicted_;  // the prediction, behind the end of the prompt, whose tokens are not found in it
  PredictionCounts counts_;

  // Of the round.
  std::int32_t root_ = 0;
  std::vector<Match> matches_;
  std::map<Path, std::vector<Continuation>> proposed_;  // by the path from below the root
};

}  // namespace espalier
