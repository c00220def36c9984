// The inside of an EAGLE drafter (eagle_drafter.h): what its head knows of one sequence. Nobody else sees one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "decode/eagle_drafter.h"
#include "decode/network_sequence.h"
#include "decode/resident_drafter.h"

namespace espalier {

// Places [first_, end_) are written, the taps of the places behind wait.
class EagleDrafter::Sequence final : public NetworkSequence {
 public:
  Sequence(EagleDrafter& drafter, SequenceId sequence, int ring)
      : drafter_(&drafter), sequence_(sequence), ring_(ring) {
    drafter.open_.push_back(this);
  }
  ~Sequence() override {
    forget_all();
    std::erase(drafter_->open_, this);
    drafter_->free_rings_.push_back(ring_);
  }

  bool reused(std::span<const std::int32_t> tokens) override;
  void committed(const CommittedRows& rows) override;
  void rest(bool resting) override;
  std::int64_t lacks_from() const override { return end_; }
  void begin_round(const DraftRound& round) override;
  void end_round(const DraftVerdict& verdict) override;
  void settle() override;

  // The rows of the round's first pass. Their inputs are numbers in `taps`, to which it adds where theirs wait.
  std::vector<Row> seed_rows(std::vector<std::int32_t>& taps);
  // Those of a round that stays on the device: up to `most`, with the numbers of their features for inputs. What waits
  // beyond them is computed now; features that do not lie among the lasting ones go to their row `entry`.
  std::vector<Row> resident_rows(std::int64_t most, const LastingFeatures& features, std::int64_t entry);
  // The features that wait are about to be overwritten where they lie.
  void save_lasting();
  // The first place of the round's tree: the root's row stands before it.
  std::int32_t tree_place() const { return static_cast<std::int32_t>(end_ + waiting_); }
  std::int32_t context_begin(std::int64_t end) const;
  const Branch& branch() const { return *branch_; }
  std::vector<Row> node_rows(const Candidates& candidates, std::span<const int> nodes);
  RunOfStep expected_run(const DraftPart& part) const override;

 private:
  // A candidate that has been a row of this round.
  struct DraftRow {
    std::int32_t vector = 0;                // the row of `vectors_` that holds its output
    std::vector<std::int32_t> places = {};  // of the rows above it and of itself
  };

  NodePlaces node_places() const override;
  std::int64_t first_of_ring() const;
  void start_cold(std::int64_t position);
  void make_room(std::int64_t count);
  void forget(std::int64_t count);
  void forget_all();
  void push(ConstView taps, std::span<const std::int32_t> rows);
  void push_padded(ConstView taps, std::span<const std::int32_t> rows);
  void advance(std::int64_t count);
  std::int32_t next_token(std::int64_t i) const;
  std::vector<Row> waiting_rows(std::int64_t count, std::vector<std::int32_t>& taps) const;
  void run_rows(std::int64_t count);
  bool run_alone(std::int64_t count);

  EagleDrafter* drafter_;
  SequenceId sequence_;
  int ring_;
  bool resting_ = false;
  std::int64_t first_ = 1;          // the first place of the written run
  std::int64_t end_ = 1;            // where it ends
  std::int64_t waiting_ = 0;        // taps of the positions from end_ - 1 on
  std::int64_t oldest_ = 0;         // where in the ring they begin
  std::vector<std::int32_t> kept_;  // where in the drafter's taps they are
  std::vector<std::int32_t> next_;  // the tokens behind their positions, the last of which may not be known yet
  // Where all of them lie while they are not in the ring: rows of lasting taps.
  ConstView lasting_;
  std::vector<std::int32_t> lasting_rows_;

  // Of the round.
  std::int32_t root_ = 0;
  bool seeded_ = false;
  std::map<int, DraftRow> rows_;  // by candidate, the root too
};

}  // namespace espalier
