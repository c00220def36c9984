// What the host does for a round, without the network: opens a branch, lays out the rows of a tree, prepares and
// uploads the tables of the step, and commits the deepest path. Should not depend on how much stands before the tree.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "cache/kv_cache.h"
#include "device/reference/reference_device.h"
#include "model/step_tables.h"
#include "tree/token_tree.h"
#include "tree/tree_tensors.h"

namespace espalier {
namespace {

constexpr int kRows = 16;
constexpr std::int64_t kLongest = 32768;

TokenTree binary_tree() {
  TokenTree tree(0);
  for (int k = 1; k < kRows; ++k) tree.append((k - 1) / 2, {.token = k, .score = -static_cast<double>(k)});
  return tree;
}

std::vector<Row> rows_of(const TreeTensors& tensors, SequenceId table) {
  std::vector<Row> rows;
  for (int k = 0; k < tensors.nodes; ++k) {
    Row row{.sequence = table,
            .token = tensors.token[static_cast<std::size_t>(k)],
            .position = tensors.position[static_cast<std::size_t>(k)],
            .place = tensors.prefix + k,
            .end = tensors.prefix,
            .wants_logits = true};
    for (std::int32_t ancestor : tensors.ancestors(k)) row.ancestors.push_back(tensors.prefix + ancestor);
    rows.push_back(std::move(row));
  }
  return rows;
}

void host_work_of_a_round(benchmark::State& state) {
  const std::int64_t context = state.range(0);
  const auto device = make_reference_device();
  // One small layer: what is measured is the bookkeeping, not the copying.
  KvCache cache(*device, {.layers = 1, .kv_heads = 1, .head_size = 8}, kLongest + 1024);
  StepTables tables(*device, cache.memory(), kRows, kLongest + 512);
  const SequenceId sequence = cache.create();
  cache.begin(sequence, context)->commit_length(context);
  const TokenTree tree = binary_tree();
  const std::vector<int> deepest = tree.path(tree.size() - 1);
  for (auto _ : state) {
    Branch branch = *cache.begin(sequence, tree.size());
    const TreeTensors tensors = tensorize(tree, static_cast<std::int32_t>(context));
    benchmark::DoNotOptimize(tables.prepare(rows_of(tensors, branch.id())));
    std::vector<std::int32_t> path;
    for (int node : deepest) path.push_back(tensors.prefix + node);
    branch.commit_path(path);
    cache.truncate(sequence, context);
  }
  check(cache.length(sequence) == context && cache.counts().reorder_fallbacks == 0, "the rounds went wrong");
}
BENCHMARK(host_work_of_a_round)->RangeMultiplier(4)->Range(128, kLongest)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace espalier

BENCHMARK_MAIN();
