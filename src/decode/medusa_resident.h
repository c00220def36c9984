// The inside of a Medusa drafter (medusa_drafter.h): its part in rounds that stay on the device (resident_rounds.h).
// All heads guess at once, before the first level; a level's nodes share the guesses of their head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decode/medusa_drafter.h"
#include "decode/resident_drafter.h"
#include "decode/resident_passes.h"

namespace espalier {

class MedusaDrafter::Resident final : public ResidentDrafter {
 public:
  explicit Resident(MedusaDrafter& drafter);

  int levels_behind(DraftSequence& sequence, std::span<const std::int32_t> tokens) const override;
  bool wants_hidden() const override { return true; }
  std::int64_t table_words(const ResidentShape& largest) const override;
  void prepare(const ResidentRound& round, UploadedTables& tables) override;
  LevelGuesses guess(int level, const ResidentTrees& trees, const LastingFeatures& features) override;

 private:
  MedusaDrafter* drafter_;
  GuessBuffers buffers_;
  Tensor target_ids_;    // i32
  GuessTables guesses_;  // of all heads on all trees, head by head
  ConstView states_;     // i32 [heads * trees]: the rows of the hidden states, for each head
};

}  // namespace espalier
