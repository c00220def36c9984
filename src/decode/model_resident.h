// The inside of a drafter with a model (model_drafter.h): its part in rounds that stay on the device
// (resident_rounds.h). Its memory holds all of an accepted path but, at most, the last node, so the first pass has two
// rows for each tree: that node, if it is lacking, and the root. Each later pass has a row for every node of the
// frontier.
#pragma once

#include <cstdint>
#include <span>

#include "decode/model_drafter.h"
#include "decode/resident_drafter.h"
#include "decode/resident_passes.h"

namespace espalier {

class ModelDrafter::Resident final : public ResidentDrafter {
 public:
  static constexpr std::int64_t kFirstRows = 2;  // of a tree in the first pass

  explicit Resident(ModelDrafter& drafter);

  bool root_has_row() const override { return true; }
  int levels_behind(DraftSequence& sequence, std::span<const std::int32_t> tokens) const override;
  std::int64_t table_words(const ResidentShape& largest) const override;
  void prepare(const ResidentRound& round, UploadedTables& tables) override;
  LevelGuesses guess(int level, const ResidentTrees& trees, const LastingFeatures& features) override;

 private:
  ConstView first_pass(const ResidentTrees& trees);
  ConstView pass(int level, const ResidentTrees& trees);

  ModelDrafter* drafter_;
  PlacedPasses passes_;
  GuessBuffers buffers_;
  // What the host has filled.
  RowTables first_rows_;
  ConstView seed_, prefix_, begin_;  // i32 [trees]
};

}  // namespace espalier
