// How a batch is made: its memory and its arithmetic (DecoderOptions), and who guesses ahead (Speculation), which
// changes the speed and never the text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "cache/kv_cache.h"
#include "decode/draft_tree.h"
#include "decode/drafter.h"
#include "decode/step_times.h"
#include "model/step_tables.h"
#include "tree/token_tree.h"

namespace espalier {

enum class MaskChoice { automatic, dense, list };
// Where the turns of a round are taken: by the host, level by level, or by the device, in one launch
// (resident_rounds.h). The same text either way.
enum class RoundRoute { automatic, host, device };

struct DecoderOptions {
  std::int64_t context = 0;  // positions of each sequence; 0: what the model was made for
  DType kv_type = DType::f16;
  std::int64_t prefill_rows = 64;  // rows of one prefill step: between two of them a request can be cancelled
  std::int64_t scored_rows = 1;    // rows of one step of score(): each needs room for logits of the whole vocabulary
  int parallel = 1;                // answers at once; others wait
  // Of all sequences and of what is kept for later ones; 0: what `parallel` of them need.
  std::int64_t cache_positions = 0;
  double stall_seconds = 0.1;  // that a step in which somebody decodes may always take
  AttentionOp attention = AttentionOp::fused;
  MaskChoice mask = MaskChoice::automatic;
  RoundRoute round_route = RoundRoute::automatic;
  KvOptions kv = {};
  bool invariants = false;  // check tables, masks and slots of every tree before its launch
};

// Rows chosen round by round (budget.h): TreeOptions::nodes is then the most a tree gets. What steps cost also bounds
// the prompt rows beside those who decode (scheduler.h), so that there may be a budget where no tree is cut.
struct ChosenBudget {
  bool cuts = true;                     // false: every tree as large as the options say
  std::optional<StepTimes> times = {};  // of this model, machine and form, from an earlier run; none: measured at once
  std::function<void(const StepTimes&)> on_measured = {};  // for later runs
  SecondsClock clock = steady_seconds;
};

// The tree of a round, from somebody who knows it already. `tokens`: prompt and answer; the last one is the root, and
// the tree's root token.
using TreeSource = std::function<TokenTree(std::span<const std::int32_t> tokens)>;

// Who guesses, and in which shape; none: plain decoding. The drafters of a batch have their memories under its block
// tables, and serve so many sequences at once.
struct Speculation {
  TreeOptions tree = {};
  std::function<DrafterSet(KvCache& cache, int sequences)> drafters = {};
  std::vector<KvShape> memories = {};  // that those drafters add to the cache, for whoever counts bytes beforehand
  bool networks = true;                // one of them runs a network, so that rounds may stay on the device
  // Nothing: every tree as large as the options say, and prompt rows of a step bounded by their number alone.
  std::optional<ChosenBudget> budget = {};
  // In place of drafters and budget: whole trees, verified as they are. They have at most `tree.nodes` rows, all inside
  // context and vocabulary.
  TreeSource trees = {};
};

}  // namespace espalier
