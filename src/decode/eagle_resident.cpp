#include "decode/eagle_resident.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "decode/eagle_sequence.h"

namespace espalier {

EagleDrafter::Resident::Resident(EagleDrafter& drafter)
    : drafter_(&drafter),
      most_rows_(drafter.options_.sequences *
                 std::max<std::int64_t>(drafter.options_.tree.depth + 1, widest_level(drafter.options_.tree))),
      workspace_(*drafter.head_, *drafter.memory_, most_rows_, drafter.positions(), {},
                 drafter.options_.sequences * widest_level(drafter.options_.tree)),
      passes_(drafter.head_->device(), most_rows_, drafter.options_.tree.depth + 1),
      buffers_(drafter.head_->device(), drafter.options_.sequences * widest_level(drafter.options_.tree),
               most_guesses(drafter.options_.tree)) {
  const EagleHead& head = *drafter.head_;
  Device& device = head.device();
  const std::int64_t first_rows = drafter.options_.sequences * (drafter.options_.tree.depth + 1);
  features_ = device.tensor(DType::f32, {first_rows, head.config().feature_width()});
  vectors_ = device.tensor(DType::f32, {first_rows, head.hidden()});
  if (head.target_ids().empty()) return;
  target_ids_ = device.tensor(DType::i32, {std::ssize(head.target_ids())});
  upload<std::int32_t>(device, head.target_ids(), target_ids_);
}

std::int64_t EagleDrafter::Resident::table_words(const ResidentShape& largest) const {
  return largest.trees * ((FirstRows::kWords + 2) * (largest.depth + 1) + 4);
}

void EagleDrafter::Resident::prepare(const ResidentRound& round, UploadedTables& tables) {
  // The others' features would be overwritten by this round.
  for (Sequence* open : drafter_->open_)
    if (std::ranges::find(round.sequences, open) == round.sequences.end()) open->save_lasting();
  const std::int64_t most = round.shape.depth + 1;
  FirstRows rows;
  std::vector<std::int32_t> input, seed, first, root_position, begin;
  for (std::size_t s = 0; s < round.sequences.size(); ++s) {
    auto& sequence = static_cast<Sequence&>(*round.sequences[s]);
    const SequenceId branch = sequence.branch().id();
    const std::vector<Row> own =
        sequence.resident_rows(most, round.features, round.features.entry(static_cast<std::int64_t>(s)));
    const std::int32_t tree_place = sequence.tree_place();
    for (const Row& row : own) rows.add(row, drafter_->cache_->slot(branch, row.place), s);
    seed.push_back(static_cast<std::int32_t>(rows.size()) - 1);
    // Rows that are not there have the slots of nodes that come later.
    for (std::int64_t i = 0; i < most - std::ssize(own); ++i)
      rows.add({.input = own[0].input}, drafter_->cache_->slot(branch, tree_place + i), s);
    first.push_back(tree_place);
    root_position.push_back(tree_place - 2);
    begin.push_back(sequence.context_begin(tree_place));
  }
  for (std::int64_t i = 0; i < round.padding_trees(); ++i) {
    seed.push_back(static_cast<std::int32_t>(rows.size()));
    for (std::vector<std::int32_t>* list : {&first, &root_position, &begin}) list->push_back(0);
    for (std::int64_t place = 0; place < most; ++place)
      rows.add({.input = rows.inputs()[0]}, round.padding.slot(i, place),
               round.sequences.size() + static_cast<std::size_t>(i));
  }
  drafter_->copies_.make();
  for (std::int32_t i = 0; i < rows.size(); ++i) input.push_back(i);
  filled_.rows = rows.add_to(tables);
  filled_.input = tables.add(input);
  filled_.feature = tables.add(rows.inputs());
  filled_.seed = tables.add(seed);
  filled_.first = tables.add(first);
  filled_.root_position = tables.add(root_position);
  filled_.begin = tables.add(begin);
}

LevelGuesses EagleDrafter::Resident::guess(int level, const ResidentTrees& trees, const LastingFeatures& features) {
  const ConstView logits = level == 1 ? first_pass(trees, features) : pass(level, trees);
  const EagleHead& head = *drafter_->head_;
  const GuessTables guesses =
      buffers_.tables(logits.dim(0), std::min(most_guesses(drafter_->options_.tree), head.draft_vocabulary()));
  return rank(*head.device().round_ops(),
              {.logits = logits, .target_ids = target_ids_, .scale = head.logit_scale(), .guesses = guesses}, trees);
}

ConstView EagleDrafter::Resident::first_pass(const ResidentTrees& trees, const LastingFeatures& features) {
  const EagleHead& head = *drafter_->head_;
  const std::int64_t rows = filled_.feature.dim(0);
  const View taps = features_.view.rows(0, rows), vectors = vectors_.view.rows(0, rows);
  head.device().gather_rows(features.taps, filled_.feature, taps);
  head.fuse(taps, workspace_, vectors);
  RowTables tables = filled_.rows;
  tables.blocks = trees.blocks;
  const EagleOutput output =
      head.forward(PlacedStep{.number = 0, .rows = tables, .input = filled_.input, .output_rows = filled_.seed},
                   vectors, workspace_);
  feedback_ = output.feedback;
  return output.logits;
}

ConstView EagleDrafter::Resident::pass(int level, const ResidentTrees& trees) {
  const EagleHead& head = *drafter_->head_;
  const std::int64_t rows = trees.shape.trees * trees.width;
  const PlacedRows placed = passes_.rows(rows, trees.shape.depth + 1, true);
  head.device().round_ops()->run(PlaceRows{.nodes = trees.nodes,
                                           .listed = trees.frontier,
                                           .first = filled_.first,
                                           .root_position = filled_.root_position,
                                           .begin = filled_.begin,
                                           .seed = filled_.seed,
                                           .places = {.blocks = trees.blocks, .block_size = trees.block_size},
                                           .rows = placed,
                                           .offset = static_cast<std::int32_t>(trees.offset),
                                           .prior_rows = static_cast<std::int32_t>(trees.prior_width),
                                           .prior_offset = static_cast<std::int32_t>(trees.prior_offset)});
  const EagleOutput output = head.forward(PlacedStep{.number = level - 1,
                                                     .rows = placed.tables(trees.blocks),
                                                     .input = placed.input,
                                                     .output_rows = trees.counting.rows(0, rows)},
                                          feedback_, workspace_);
  feedback_ = output.feedback;
  return output.logits;
}

}  // namespace espalier
