// The inside of a Medusa drafter (medusa_drafter.h): what it knows of one sequence. Nobody else sees one.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "decode/medusa_drafter.h"
#include "decode/resident_drafter.h"

namespace espalier {

// One row of hidden states, and what the heads say of it.
class MedusaDrafter::Sequence final : public DraftSequence {
 public:
  Sequence(MedusaDrafter& drafter, std::int32_t row) : drafter_(&drafter), row_(row) { drafter.open_.push_back(this); }
  ~Sequence() override {
    std::erase(drafter_->open_, this);
    drafter_->free_rows_.push_back(row_);
  }

  // The state that comes next belongs to another position: the last token before a round is always computed.
  bool reused(std::span<const std::int32_t>) override {
    lasting_row_.reset();
    return has_hidden_ = false;
  }
  void committed(const CommittedRows& rows) override;
  void begin_round(const DraftRound&) override { guesses_.clear(); }

  bool has_hidden() const { return has_hidden_; }
  std::int32_t row() const { return row_; }
  // Where its state lies for a round that stays on the device: among the lasting ones, or in row `entry`, where it
  // goes.
  std::int32_t resident_row(const LastingFeatures& features, std::int64_t entry);
  // The state is about to be overwritten where it lies.
  void save_lasting();
  void hear(Guesses guesses) { guesses_ = std::move(guesses); }
  Guesses expand(const DraftJob& job) const;

 private:
  MedusaDrafter* drafter_;
  std::int32_t row_;
  bool has_hidden_ = false;
  ConstView lasting_;                        // the states among which its own is,
  std::optional<std::int32_t> lasting_row_;  // in this row; nothing: it is the drafter's
  Guesses guesses_;                          // of every head in this round
};

}  // namespace espalier
