#include "decode/decoder_choices.h"

#include <algorithm>

#include "base/error.h"
#include "decode/draft_rows.h"
#include "decode/padding_trees.h"

namespace espalier {
namespace {

std::int64_t choose_prefill_rows(const Device& device, std::int64_t context, std::int64_t wanted) {
  check(wanted >= 1, "prefill steps of {} rows", wanted);
  return std::min(largest_step(device, wanted), context);
}

// The shape of the trees, with no more rows than one step of the device takes.
TreeOptions choose_tree(const Device& device, const Speculation& speculation) {
  TreeOptions tree = speculation.tree;
  if (speculation.trees) {
    const int rows = max_rows(tree);
    if (rows > largest_step(device, rows))
      input_error("trees of {} rows: a step of this device takes {}", rows, largest_step(device, rows));
    return tree;
  }
  if (!speculation.drafters) return {.shape = TreeShape::chain, .nodes = 1, .depth = 0};
  if (tree.shape == TreeShape::fixed) {
    check(tree.choices.has_value(), "a static tree without choices");
    const int rows = tree.nodes == 0 ? tree.choices->size() : std::min(tree.nodes, tree.choices->size());
    tree.choices = tree.choices->best(static_cast<int>(largest_step(device, rows)));
    tree.nodes = tree.choices->size();
    tree.depth = std::min(tree.depth, tree.choices->depth());
  }
  tree.nodes = static_cast<int>(largest_step(device, tree.nodes));
  if (tree.branch == 0) tree.branch = tree.expand;
  return tree;
}

// Lists say the same as a mask in fewer bytes; a mask is for eager attention, and for devices that want it as soon as
// there is a tree to hide.
StepForm choose_form(const Device& device, const DecoderOptions& options, const TreeOptions& tree) {
  const bool eager = options.attention == AttentionOp::eager;
  if (eager && options.mask == MaskChoice::list)
    throw InputError("--attention eager --mask list: eager attention needs the dense mask");
  if (device.needs_dense_mask() && options.mask == MaskChoice::list)
    input_error("--mask list: the device {} needs the dense mask", device.name());
  const bool wants_mask = eager || device.needs_dense_mask() || (device.prefers_dense_mask() && max_rows(tree) > 1);
  const bool dense = options.mask == MaskChoice::automatic ? wants_mask : options.mask == MaskChoice::dense;
  return {.attention = options.attention, .mask = dense ? MaskForm::dense : MaskForm::list};
}

// Rounds that stay on the device may be padded with whole trees, all other steps with rows.
std::int64_t choose_padding_slots(const Device& device, const DecoderChoices& choices, const DecoderOptions& options,
                                  const Speculation& speculation) {
  const bool may_stay = speculation.drafters && speculation.networks && max_rows(choices.tree) > 1 &&
                        options.round_route != RoundRoute::host && options.kv.reorder == Reorder::fast &&
                        choices.form.mask == MaskForm::list && device.row_buckets().empty();
  const std::int64_t block = KvShape{}.block_size;
  const std::int64_t trees = may_stay ? padding_tree_slots(device, options.parallel, choices.branch_rows, block) : 0;
  return (std::max(trees, most_padding(device)) + block - 1) / block * block;
}

// What `parallel` sequences of a whole context need by the scheduler's count, so that each of them is admitted.
std::int64_t choose_cache_positions(const DecoderChoices& choices, const DecoderOptions& options) {
  const std::int64_t one = pool_of_context(choices, choices.context);
  if (options.cache_positions == 0) return options.parallel * one;
  if (options.cache_positions < one)
    input_error("a cache of {} positions, expected at least {} for a context of {}", options.cache_positions, one,
                choices.context);
  return options.cache_positions;
}

}  // namespace

// A block more than it holds: where it goes on inside a block that others have too, it needs a copy.
std::int64_t pool_of_context(const DecoderChoices& choices, std::int64_t context) {
  const std::int64_t block = KvShape{}.block_size;
  const std::int64_t positions = context + choices.branch_rows + choices.reserve;
  return ((positions + block - 1) / block + 1) * block;
}

std::int64_t context_of_pool(const DecoderChoices& choices, std::int64_t positions) {
  const std::int64_t block = KvShape{}.block_size;
  return (positions / block - 1) * block - choices.branch_rows - choices.reserve;
}

std::int64_t choose_context(const ModelConfig& config, std::int64_t wanted) {
  if (wanted < 0 || wanted > config.context)
    input_error("--context: expected 1 to {} (what the model was made for), got {}", config.context, wanted);
  return wanted == 0 ? config.context : wanted;
}

DecoderChoices decoder_choices(const ModelConfig& config, const Device& device, const DecoderOptions& options,
                               const Speculation& speculation) {
  DecoderChoices choices;
  choices.context = choose_context(config, options.context);
  choices.prefill_rows = choose_prefill_rows(device, choices.context, options.prefill_rows);
  choices.tree = choose_tree(device, speculation);
  choices.form = choose_form(device, options, choices.tree);
  check(options.parallel >= 1, "a batch of {} sequences", options.parallel);
  choices.tree_rows = largest_step(device, std::int64_t{max_rows(choices.tree)} * options.parallel);
  // Drafters may have been made for a larger tree than one step of the device takes.
  choices.branch_rows = speculation.drafters && max_rows(choices.tree) > 1
                            ? std::max(branch_rows(choices.tree), branch_rows(speculation.tree))
                            : max_rows(choices.tree);
  // One sequence has either a tree or a prompt in a step.
  const bool alone = options.parallel == 1;
  choices.step_rows = alone ? std::max(choices.prefill_rows, choices.tree_rows)
                            : largest_step(device, choices.prefill_rows + choices.tree_rows);
  choices.scored_rows = std::min(choices.prefill_rows, std::max(options.scored_rows, choices.tree_rows));
  choices.drawn_rows = std::min(choices.step_rows, choices.tree_rows + (alone ? 0 : options.parallel));
  choices.logit_rows = std::max(choices.scored_rows, choices.drawn_rows);
  choices.cache_positions = choose_cache_positions(choices, options);
  choices.padding_slots = choose_padding_slots(device, choices, options, speculation);
  return choices;
}

}  // namespace espalier
