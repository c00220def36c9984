#include "decode/medusa_resident.h"

#include <algorithm>

#include "base/error.h"
#include "decode/medusa_sequence.h"

namespace espalier {

MedusaDrafter::Resident::Resident(MedusaDrafter& drafter)
    : drafter_(&drafter),
      buffers_(drafter.head_->device(), drafter.head_->heads() * drafter.hidden_.view.dim(0), drafter.most_) {
  const MedusaHead& head = *drafter.head_;
  target_ids_ = head.device().tensor(DType::i32, {head.draft_vocabulary()});
  upload<std::int32_t>(head.device(), head.target_ids(), target_ids_);
}

int MedusaDrafter::Resident::levels_behind(DraftSequence& sequence, std::span<const std::int32_t>) const {
  return static_cast<Sequence&>(sequence).has_hidden() ? drafter_->max_depth() : 0;
}

std::int64_t MedusaDrafter::Resident::table_words(const ResidentShape& largest) const {
  return largest.trees * drafter_->head_->heads();
}

void MedusaDrafter::Resident::prepare(const ResidentRound& round, UploadedTables& tables) {
  // The others' states would be overwritten by this round.
  for (Sequence* open : drafter_->open_)
    if (std::ranges::find(round.sequences, open) == round.sequences.end()) open->save_lasting();
  std::vector<std::int32_t> states;
  for (DraftSequence* sequence : round.sequences)
    states.push_back(
        static_cast<Sequence&>(*sequence).resident_row(round.features, round.features.entry(std::ssize(states))));
  drafter_->copies_.make();
  states.resize(static_cast<std::size_t>(round.shape.trees), states[0]);
  std::vector<std::int32_t> all;
  for (std::int64_t k = 0; k < drafter_->head_->heads(); ++k) all.insert(all.end(), states.begin(), states.end());
  states_ = tables.add(all);
}

LevelGuesses MedusaDrafter::Resident::guess(int level, const ResidentTrees& trees, const LastingFeatures& features) {
  const MedusaHead& head = *drafter_->head_;
  const std::int64_t count = trees.shape.trees;
  if (level == 1) {
    guesses_ = buffers_.tables(states_.dim(0), std::min<std::int64_t>(drafter_->most_, head.draft_vocabulary()));
    head.device().round_ops()->run(RankGuesses{.logits = head.forward(features.hidden, states_, drafter_->workspace_),
                                               .target_ids = target_ids_,
                                               .scale = head.logit_scale(),
                                               .vocabulary = trees.vocabulary,
                                               .guesses = guesses_});
  }
  const std::int64_t first = (level - 1) * count;
  return {.guesses = {.token = guesses_.token.rows(first, count),
                      .log_probability = guesses_.log_probability.rows(first, count),
                      .count = guesses_.count.rows(first, count)},
          .row = trees.tree};
}

}  // namespace espalier
