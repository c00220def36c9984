#include "decode/decoder_choices.h"

#include "base/error.h"

namespace espalier {
namespace {

std::int64_t choose_prefill_rows(const Device& device, std::int64_t context, std::int64_t wanted) {
  check(wanted >= 1, "prefill steps of {} rows", wanted);
  return std::min(largest_step(device, wanted), context);
}

// The shape of the trees, with no more rows than one step of the device takes.
TreeOptions choose_tree(const Device& device, const Speculation& speculation) {
  TreeOptions tree = speculation.tree;
  if (speculation.trees) return tree;
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
  const bool wants_mask = eager || (device.prefers_dense_mask() && max_rows(tree) > 1);
  const bool dense = options.mask == MaskChoice::automatic ? wants_mask : options.mask == MaskChoice::dense;
  return {.attention = options.attention, .mask = dense ? MaskForm::dense : MaskForm::list};
}

// Lanes do not share blocks.
std::int64_t positions_of_all(std::int64_t context, int lanes) {
  check(lanes >= 1, "a decoder of {} lanes", lanes);
  const std::int64_t block = KvShape{}.block_size;
  return lanes == 1 ? context : lanes * ((context + block - 1) / block * block);
}

}  // namespace

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
  choices.cache_positions = positions_of_all(choices.context, options.lanes);
  choices.tree_rows = largest_step(device, std::int64_t{max_rows(choices.tree)} * options.lanes);
  choices.scored_rows = std::min(choices.prefill_rows, std::max(options.scored_rows, choices.tree_rows));
  return choices;
}

}  // namespace espalier
