// The inside of an EAGLE drafter (eagle_drafter.h): its part in rounds that stay on the device (resident_rounds.h).
// The first pass has a row for every position that the last round committed, and rows that are not there up to depth +
// 1; its outputs seed the trees. Each later pass has a row for every node of the frontier.
#pragma once

#include <cstdint>
#include <span>

#include "decode/eagle_drafter.h"
#include "decode/resident_drafter.h"
#include "decode/resident_passes.h"

namespace espalier {

class EagleDrafter::Resident final : public ResidentDrafter {
 public:
  explicit Resident(EagleDrafter& drafter);

  std::int64_t table_words(const ResidentShape& largest) const override;
  void prepare(const ResidentRound& round, UploadedTables& tables) override;
  LevelGuesses guess(int level, const ResidentTrees& trees, const LastingFeatures& features) override;

 private:
  // The tables of the first pass, and where the later ones stand.
  struct Filled {
    RowTables rows;
    ConstView input, feature, seed;
    ConstView first, root_position, begin;  // [trees]
  };

  ConstView first_pass(const ResidentTrees& trees, const LastingFeatures& features);
  ConstView pass(int level, const ResidentTrees& trees);

  EagleDrafter* drafter_;
  std::int64_t most_rows_;  // of a pass
  EagleWorkspace workspace_;
  PlacedPasses passes_;
  GuessBuffers buffers_;
  Tensor features_, vectors_;  // of the first pass: taps, and what they fuse to
  Tensor target_ids_;          // i32; empty: draft ids are the teacher's
  Filled filled_;
  ConstView feedback_;  // of the pass before
};

}  // namespace espalier
