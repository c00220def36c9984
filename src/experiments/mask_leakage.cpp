#include "experiments/mask_leakage.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/random.h"

namespace espalier {
namespace {

constexpr std::int64_t kPrefillRows = 32;
constexpr std::int64_t kStrangers = 4;  // rows of the other conversation

std::vector<std::int32_t> tokens_of(const TokenTree& tree) {
  std::vector<std::int32_t> tokens;
  for (const TreeNode& node : tree.nodes()) tokens.push_back(node.token);
  return tokens;
}

// NaN is any NaN.
bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (a != a && b != b);
}

std::int64_t differences(std::span<const float> a, std::span<const float> b) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += same(a[i], b[i]) ? 0 : 1;
  return count;
}

// Room for both conversations, in whole blocks.
std::int64_t positions(const LeakageOptions& options) {
  const std::int64_t block = KvShape{}.block_size;
  return (options.context + options.max_rows + block) / block * block + block;
}

}  // namespace

LeakageProbe::LeakageProbe(const Transformer& model, const LeakageOptions& options)
    : model_(&model),
      options_(options),
      cache_(model.device(), model.kv_shape(options.kv_type), positions(options), options.kv),
      sequence_(cache_.create()),
      stranger_(cache_.create()),
      workspace_(model, cache_.memory(),
                 {.rows = std::max<std::int64_t>(kPrefillRows, options.max_rows + kStrangers),
                  .outputs = options.max_rows,
                  .positions = options.context + options.max_rows,
                  .form = options.form}) {}

std::int32_t LeakageProbe::other_token(std::int32_t token) {
  const auto vocabulary = static_cast<double>(model_->config().vocabulary - 1);
  const auto drawn = static_cast<std::int32_t>(uniform(options_.seed, drawn_++) * vocabulary);
  return drawn < token ? drawn : drawn + 1;  // any but this one
}

void LeakageProbe::commit_prefix(std::span<const std::int32_t> prefix) {
  const auto kept = std::mismatch(committed_.begin(), committed_.end(), prefix.begin(), prefix.end()).first;
  committed_.erase(kept, committed_.end());
  cache_.truncate(sequence_, static_cast<std::int64_t>(committed_.size()));
  while (committed_.size() < prefix.size()) {
    const std::int64_t begin = static_cast<std::int64_t>(committed_.size());
    const std::int64_t count = std::min(kPrefillRows, static_cast<std::int64_t>(prefix.size()) - begin);
    std::optional<Branch> branch = cache_.begin(sequence_, count);
    check(branch.has_value(), "leakage: no room for {} rows behind {}", count, begin);
    std::vector<Row> rows;
    for (std::int64_t p = begin; p < begin + count; ++p)
      rows.push_back(model_->prefill_row(branch->id(), p, prefix[static_cast<std::size_t>(p)]));
    model_->forward(rows, workspace_);
    branch->commit_length(count);
    for (const Row& row : rows) committed_.push_back(row.token);
  }
}

std::vector<Row> LeakageProbe::rows_of(const TokenTree& tree, SequenceId branch,
                                       std::span<const std::int32_t> tokens) const {
  const auto prefix = static_cast<std::int32_t>(committed_.size());
  std::vector<Row> rows;
  for (int node = 0; node < tree.size(); ++node) {
    std::vector<std::int32_t> above;
    for (int ancestor : tree.path(node)) above.push_back(prefix + ancestor);
    above.pop_back();
    rows.push_back(model_->tree_row(branch, prefix, prefix + node, tokens[static_cast<std::size_t>(node)], above));
  }
  return rows;
}

std::vector<LeakageProbe::Logits> LeakageProbe::verify(const TokenTree& tree, std::span<const std::int32_t> tokens,
                                                       std::span<const std::int32_t> strangers,
                                                       std::span<const int> wanted) {
  std::optional<Branch> branch = cache_.begin(sequence_, tree.size());
  std::optional<Branch> other = cache_.begin(stranger_, kStrangers);
  check(branch && other, "leakage: no room for a tree of {} rows behind {}", tree.size(), committed_.size());
  std::vector<Row> rows = rows_of(tree, branch->id(), tokens);
  for (int node : wanted) rows[static_cast<std::size_t>(node)].wants_logits = true;
  for (std::int64_t p = 0; p < kStrangers; ++p)
    rows.push_back(model_->prefill_row(other->id(), p, strangers[static_cast<std::size_t>(p)]));
  const StepOutput output = model_->forward(rows, workspace_);
  std::vector<Logits> logits(wanted.size(), Logits(static_cast<std::size_t>(model_->config().vocabulary)));
  for (std::size_t i = 0; i < logits.size(); ++i)
    download<float>(model_->device(), output.logits.rows(static_cast<std::int64_t>(i), 1), logits[i]);
  return logits;
}

// Everything is changed but the path to the node.
void LeakageProbe::probe_row(const TokenTree& tree, int node, std::span<const std::int32_t> tokens,
                             const Logits& expected) {
  const std::vector<int> path = tree.path(node);
  std::vector<std::int32_t> changed(tokens.begin(), tokens.end()), strangers(kStrangers, tree[0].token);
  for (int other = 0; other < tree.size(); ++other)
    if (std::ranges::find(path, other) == path.end())
      changed[static_cast<std::size_t>(other)] = other_token(changed[static_cast<std::size_t>(other)]);
  for (std::int32_t& token : strangers) token = other_token(token);
  const std::int64_t count = differences(verify(tree, changed, strangers, std::span(&node, 1)).front(), expected);
  ++counts_.rows;
  counts_.tokens_changed += tree.size() - static_cast<std::int64_t>(path.size()) + kStrangers;
  counts_.logits += static_cast<std::int64_t>(expected.size());
  counts_.logits_changed += count;
  if (count == 0) return;
  if (++counts_.rows_changed == 1)
    counts_.first = fmt::format("round {}, node {} of {}, prefix {}: {} of {} logits changed", counts_.rounds, node,
                                tree.size(), committed_.size(), count, expected.size());
}

// The last node sees the root, so it must notice another one.
void LeakageProbe::probe_sight(const TokenTree& tree, std::span<const std::int32_t> tokens, const Logits& expected) {
  std::vector<std::int32_t> changed(tokens.begin(), tokens.end());
  changed[0] = other_token(changed[0]);
  const int last = tree.size() - 1;
  const std::vector<std::int32_t> strangers(kStrangers, tree[0].token);
  if (differences(verify(tree, changed, strangers, std::span(&last, 1)).front(), expected) == 0) ++counts_.blind_rows;
}

void LeakageProbe::add(std::span<const std::int32_t> prefix, const TokenTree& tree) {
  check(tree.size() <= options_.max_rows, "leakage: a tree of {} rows, expected at most {}", tree.size(),
        options_.max_rows);
  commit_prefix(prefix);
  const std::vector<std::int32_t> tokens = tokens_of(tree), strangers(kStrangers, tree[0].token);
  std::vector<int> all(static_cast<std::size_t>(tree.size()));
  for (int node = 0; node < tree.size(); ++node) all[static_cast<std::size_t>(node)] = node;
  const std::vector<Logits> expected = verify(tree, tokens, strangers, all);
  for (int node : all) probe_row(tree, node, tokens, expected[static_cast<std::size_t>(node)]);
  probe_sight(tree, tokens, expected.back());
  ++counts_.rounds;
}

}  // namespace espalier
