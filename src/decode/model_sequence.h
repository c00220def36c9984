// The inside of a drafter with a model (model_drafter.h): what that knows of one sequence. Nobody else sees one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "decode/model_drafter.h"
#include "decode/network_sequence.h"

namespace espalier {

// Places [0, written_) of the sequence hold its text.
class ModelDrafter::Sequence final : public NetworkSequence {
 public:
  Sequence(ModelDrafter& drafter, SequenceId sequence) : drafter_(&drafter), sequence_(sequence) {}

  bool reused(std::span<const std::int32_t> tokens) override;
  void committed(const CommittedRows&) override {}
  std::int64_t lacks_from() const override { return written_; }
  void begin_round(const DraftRound& round) override;
  void end_round(const DraftVerdict& verdict) override;

  // Whether there is something to say of nodes at this depth: beyond its context, and about tokens without a row in its
  // embedding, the draft model knows nothing.
  bool knows(int depth) const;
  // The text that is missing, then the root.
  std::vector<Row> first_rows();
  std::vector<Row> node_rows(const Candidates& candidates, std::span<const int> nodes);
  RunOfStep expected_run(const DraftPart& part) const override;
  int levels_behind(std::span<const std::int32_t> tokens);
  // The rows of a round that stays on the device, as first_rows(), up to `most`: what is missing before them is
  // computed now.
  std::vector<Row> resident_rows(std::int64_t most);
  const Branch& branch() const { return *branch_; }
  std::int64_t prefix() const { return std::ssize(tokens_) - 1; }

 private:
  bool knows_all(std::span<const std::int32_t> tokens);

  // A candidate that has been a row of this round.
  struct DraftRow {
    int parent = 0;
    std::int32_t token = 0;
    std::vector<std::int32_t> places = {};  // of the rows above it and of itself
  };

  NodePlaces node_places() const override;

  ModelDrafter* drafter_;
  SequenceId sequence_;
  std::int64_t written_ = 0;
  std::size_t known_ = 0;  // tokens that were found to be in the vocabulary

  // Of the round.
  std::span<const std::int32_t> tokens_;
  bool knows_text_ = true;
  std::map<int, DraftRow> rows_;  // by candidate, the root too
};

}  // namespace espalier
