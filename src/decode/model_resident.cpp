#include "decode/model_resident.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "decode/model_sequence.h"

namespace espalier {

ModelDrafter::Resident::Resident(ModelDrafter& drafter)
    : drafter_(&drafter),
      passes_(drafter.model_->device(), drafter.options_.sequences * widest_level(drafter.options_.tree),
              drafter.options_.tree.depth + 1),
      buffers_(drafter.model_->device(), drafter.options_.sequences * widest_level(drafter.options_.tree),
               most_guesses(drafter.options_.tree)) {}

int ModelDrafter::Resident::levels_behind(DraftSequence& sequence, std::span<const std::int32_t> tokens) const {
  return static_cast<Sequence&>(sequence).levels_behind(tokens);
}

std::int64_t ModelDrafter::Resident::table_words(const ResidentShape& largest) const {
  return largest.trees * (FirstRows::kWords * kFirstRows + 3);
}

void ModelDrafter::Resident::prepare(const ResidentRound& round, UploadedTables& tables) {
  FirstRows rows;
  std::vector<std::int32_t> seed, prefix;
  for (std::size_t s = 0; s < round.sequences.size(); ++s) {
    auto& sequence = static_cast<Sequence&>(*round.sequences[s]);
    const SequenceId branch = sequence.branch().id();
    const std::vector<Row> own = sequence.resident_rows(kFirstRows);
    for (const Row& row : own) rows.add(row, drafter_->cache_->slot(branch, row.place), s);
    seed.push_back(static_cast<std::int32_t>(rows.size()) - 1);
    prefix.push_back(static_cast<std::int32_t>(sequence.prefix()));
    // A row that is not there has the slot of a node that comes later.
    if (std::ssize(own) < kFirstRows) rows.add({}, drafter_->cache_->slot(branch, sequence.prefix() + 1), s);
  }
  for (std::int64_t i = 0; i < round.padding_trees(); ++i) {
    seed.push_back(static_cast<std::int32_t>(rows.size()));
    prefix.push_back(0);
    for (std::int64_t place = 0; place < kFirstRows; ++place)
      rows.add({}, round.padding.slot(i, place), round.sequences.size() + static_cast<std::size_t>(i));
  }
  first_rows_ = rows.add_to(tables);
  seed_ = tables.add(seed);
  prefix_ = tables.add(prefix);
  begin_ = tables.add(std::vector<std::int32_t>(prefix.size()));
}

LevelGuesses ModelDrafter::Resident::guess(int level, const ResidentTrees& trees, const LastingFeatures&) {
  const ConstView logits = level == 1 ? first_pass(trees) : pass(level, trees);
  const std::int64_t guesses = std::min(most_guesses(drafter_->options_.tree), logits.dim(1));
  return rank(*drafter_->model_->device().round_ops(),
              {.logits = logits, .guesses = buffers_.tables(logits.dim(0), guesses)}, trees);
}

ConstView ModelDrafter::Resident::first_pass(const ResidentTrees& trees) {
  RowTables rows = first_rows_;
  rows.blocks = trees.blocks;
  return drafter_->model_->forward(PlacedStep{.number = 0, .rows = rows, .output_rows = seed_}, drafter_->workspace_)
      .logits;
}

ConstView ModelDrafter::Resident::pass(int level, const ResidentTrees& trees) {
  const Transformer& model = *drafter_->model_;
  const std::int64_t count = trees.shape.trees * trees.width;
  const PlacedRows rows = passes_.rows(count, trees.shape.depth + 1, false);
  model.device().round_ops()->run(PlaceRows{.nodes = trees.nodes,
                                            .listed = trees.frontier,
                                            .first = prefix_,
                                            .root_position = prefix_,
                                            .begin = begin_,
                                            .places = {.blocks = trees.blocks, .block_size = trees.block_size},
                                            .rows = rows,
                                            .offset = static_cast<std::int32_t>(1 + trees.offset),
                                            .window = static_cast<std::int32_t>(model.config().sliding_window)});
  return model
      .forward(
          PlacedStep{
              .number = level - 1, .rows = rows.tables(trees.blocks), .output_rows = trees.counting.rows(0, count)},
          drafter_->workspace_)
      .logits;
}

}  // namespace espalier
