// A node of a tree sees its own path and nothing else: verifying a tree in one step gives the bits of verifying each of
// its paths in a sequence of its own in another memory, and of computing the path as plain text.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>

#include "base/testing/judged_device.h"
#include "testing/engine.h"
#include "testing/recording_devices.h"
#include "tree/testing/random_tree.h"

namespace espalier::testing {
namespace {

struct IsolationCase {
  std::string family;
  StepForm form;
  NamedDevice device;
};

class Isolation : public ::testing::TestWithParam<IsolationCase> {};

std::vector<std::vector<float>> download_rows(Device& device, ConstView rows) {
  std::vector<std::vector<float>> all;
  for (std::int64_t row = 0; row < rows.dim(0); ++row)
    download<float>(device, rows.rows(row, 1), all.emplace_back(static_cast<std::size_t>(rows.dim(1))));
  return all;
}

// A sequence that holds the prefix.
SequenceId with_prefix(const Transformer& model, KvCache& cache, Workspace& workspace,
                       std::span<const std::int32_t> prefix) {
  const SequenceId sequence = cache.create();
  std::optional<Branch> branch = cache.begin(sequence, static_cast<std::int64_t>(prefix.size()));
  std::vector<Row> rows;
  for (std::size_t p = 0; p < prefix.size(); ++p)
    rows.push_back(model.prefill_row(branch->id(), static_cast<std::int64_t>(p), prefix[p]));
  model.forward(rows, workspace);
  branch->commit_length(static_cast<std::int64_t>(prefix.size()));
  return sequence;
}

// Tokens of a tree with every id inside the vocabulary, siblings different.
TokenTree small_tree(std::uint32_t seed, std::int32_t vocabulary) {
  const TokenTree wide = random_tree(seed, 2 + static_cast<int>(seed % 19));
  TokenTree tree(wide[0].token % vocabulary);
  for (int node = 1; node < wide.size(); ++node)
    tree.append(wide[node].parent,
                {.token = (wide[wide[node].parent].token + node - wide[wide[node].parent].first_child) % vocabulary,
                 .score = wide[node].score});
  return tree;
}

// A chain that is deeper than any tiny window, with some leaves beside it.
TokenTree deep_tree(std::mt19937& random, std::int32_t vocabulary) {
  TokenTree tree(static_cast<std::int32_t>(random() % static_cast<unsigned>(vocabulary)));
  const int depth = 20 + static_cast<int>(random() % 5);
  for (int level = 1, parent = 0; level <= depth; ++level) {
    const auto token = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocabulary));
    const int leaf = random() % 5 == 0 ? tree.append(parent, {.token = token, .score = -1.0 * level}) : 0;
    const int next = tree.append(parent, {.token = (token + 1) % vocabulary, .score = -1.0 * level});
    parent = leaf > 0 && random() % 2 == 0 ? leaf : next;
  }
  return tree;
}

// Few positions, or as many as come near the beginning of a tile of keys: the ordinals of some trees cross it, and the
// places of others, whose columns in a mask are no ordinals.
struct PrefixLengths {
  int shortest, longest;
};
constexpr PrefixLengths kPrefixes[] = {{1, 30}, {120, 136}, {250, 260}};
// Each range with both kinds of trees, and twice where computing is quick.
std::uint32_t seeds_on(std::string_view device) {
  return kSanitized || device == "reference" ? 6 : 12;
}

struct IsolationDraw {
  std::vector<std::int32_t> prefix;
  TokenTree tree;
};

IsolationDraw draw_isolation(std::uint32_t seed, std::int32_t vocabulary) {
  std::mt19937 random(seed);
  const auto [shortest, longest] = kPrefixes[seed % std::size(kPrefixes)];
  std::vector<std::int32_t> prefix(shortest + random() % static_cast<unsigned>(longest - shortest + 1));
  for (std::int32_t& token : prefix) token = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocabulary));
  const bool deep = seed / std::size(kPrefixes) % 2 == 1;
  return {std::move(prefix), deep ? deep_tree(random, vocabulary) : small_tree(seed, vocabulary)};
}

// What the rows of all draws have met.
struct Met {
  int crossing = 0;  // trees with rows on both sides of the beginning of a tile
  int strayed = 0;   // rows whose place is in another tile than their ordinal
  int inside = 0;    // rows whose window begins inside the tree

  void count(std::span<const Row> rows) {
    const auto tile = [](std::int32_t ordinal) { return ordinal / 128; };
    const auto [first, last] = std::ranges::minmax(rows, {}, &Row::position);
    crossing += tile(first.position) != tile(last.position);
    for (const Row& row : rows) {
      strayed += tile(row.place) != tile(row.position);
      inside += row.begin > row.end;
    }
  }
};

TEST_P(Isolation, ATreeGivesTheBitsOfItsPathsInBranchesOfTheirOwn) {
  const auto device = GetParam().device.make(2);
  const Transformer model = load_transformer(*device, data_path("tiny/" + GetParam().family));
  const auto vocabulary = static_cast<std::int32_t>(model.config().vocabulary);
  Met met;
  for (std::uint32_t seed = 0; seed < seeds_on(GetParam().device.name); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const auto [prefix, tree] = draw_isolation(seed, vocabulary);
    const auto length = static_cast<std::int32_t>(prefix.size());
    const std::vector<int> leaves = tree.leaves();
    const WorkspaceShape shape{.rows = 384, .outputs = 384, .positions = 384, .form = GetParam().form};
    KvCache cache(*device, model.kv_shape(DType::f16), 384);
    KvCache path_cache(*device, model.kv_shape(DType::f16), static_cast<std::int64_t>(1 + leaves.size()) * 384);
    Workspace workspace(model, cache.memory(), shape), path_workspace(model, path_cache.memory(), shape);

    // The tree, in one step and one branch.
    const SequenceId sequence = with_prefix(model, cache, workspace, prefix);
    const Branch branch = *cache.begin(sequence, tree.size());
    std::vector<Row> rows;
    for (int node = 0; node < tree.size(); ++node) {
      std::vector<std::int32_t> above;
      for (int ancestor : tree.path(node)) above.push_back(length + ancestor);
      above.pop_back();
      rows.push_back(model.tree_row(branch.id(), length, length + node, tree[node].token, above));
      rows.back().wants_logits = true;
    }
    met.count(rows);
    const auto expected = download_rows(*device, model.forward(rows, workspace).logits);

    // Its paths, in one step, each in a branch of a sequence of its own.
    const SequenceId first = with_prefix(model, path_cache, path_workspace, prefix);
    std::vector<Branch> branches;
    std::vector<Row> path_rows;
    std::vector<int> node_of_row;
    for (int leaf : leaves) {
      const std::vector<int> path = tree.path(leaf);
      branches.push_back(path_cache.begin(path_cache.fork(first, length), std::ssize(path)).value());
      std::vector<std::int32_t> above;
      for (int node : path) {
        const std::int32_t place = length + static_cast<std::int32_t>(above.size());
        path_rows.push_back(model.tree_row(branches.back().id(), length, place, tree[node].token, above));
        path_rows.back().wants_logits = true;
        node_of_row.push_back(node);
        above.push_back(place);
      }
    }
    const auto separate = download_rows(*device, model.forward(path_rows, path_workspace).logits);
    for (std::size_t r = 0; r < path_rows.size(); ++r)
      ASSERT_EQ(separate[r], expected[static_cast<std::size_t>(node_of_row[r])]) << "node " << node_of_row[r];

    // The tree once more, where another memory has been at work meanwhile.
    EXPECT_EQ(download_rows(*device, model.forward(rows, workspace).logits), expected);

    // The path of the last leaf as plain text.
    std::vector<std::int32_t> text = prefix;
    for (int node : tree.path(leaves.back())) text.push_back(tree[node].token);
    const ForwardRun plain = run_forward(model, text, {.kv_type = DType::f16});
    EXPECT_EQ(std::vector(plain.logits.end() - vocabulary, plain.logits.end()),
              expected[static_cast<std::size_t>(leaves.back())]);
    cache.check_conservation();
    path_cache.check_conservation();
  }
  EXPECT_GT(met.crossing, 0);
  EXPECT_GT(met.strayed, 0);
  EXPECT_EQ(met.inside > 0, model.config().sliding_window > 0);
}

// The reference device is slow: recorded, it computes the family with a window, and under sanitizers no other one.
bool computes(std::string_view device, bool window) {
  if (judged_device()) return true;
  if (device == "recording_cpu" || device == "cuda") return true;
  return device == "reference" ? !kSanitized : window;
}

std::vector<IsolationCase> isolation_cases() {
  std::vector<IsolationCase> all;
  std::vector<NamedDevice> devices = {all_devices()[0]};
  for (const NamedDevice& device : recording_devices()) devices.push_back(device);
  if (!judged_device())
    for (const NamedDevice& device : gpu_devices()) devices.push_back(device);
  for (const std::string& family : tiny_families())
    for (const StepForm& form :
         {StepForm{AttentionOp::fused, MaskForm::list}, StepForm{AttentionOp::fused, MaskForm::dense},
          StepForm{AttentionOp::eager, MaskForm::dense}})
      for (const NamedDevice& device : devices)
        if (computes(device.name, family == "mistral")) all.push_back({family, form, device});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Tiny, Isolation, ::testing::ValuesIn(isolation_cases()), [](const auto& info) {
  return info.param.family + (info.param.form.attention == AttentionOp::eager ? "_eager" : "_fused") +
         (info.param.form.mask == MaskForm::dense ? "_dense_" : "_list_") + info.param.device.name;
});

}  // namespace
}  // namespace espalier::testing
