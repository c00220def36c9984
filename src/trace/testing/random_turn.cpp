#include "trace/testing/random_turn.h"

#include <random>

#include "trace/trace_file.h"
#include "tree/testing/random_tree.h"

namespace espalier {
namespace {

using Random = std::mt19937_64;

int below(Random& random, int count) {
  return static_cast<int>(random() % static_cast<unsigned>(count));
}

// The same tree below another root.
TokenTree below_root(std::int32_t root, const TokenTree& shape) {
  TokenTree tree(root);
  for (const TreeNode& node : shape.nodes().subspan(1))
    tree.append(node.parent, {.token = node.token, .score = node.score, .sources = node.sources});
  return tree;
}

// Down some path, and a token that nobody guessed at its end.
std::vector<Visit> random_walk(Random& random, const TokenTree& tree) {
  std::vector<Visit> visits;
  for (int node = 0;;) {
    const TreeNode& at = tree[node];
    if (at.children == 0 || below(random, 3) == 0) {
      visits.push_back({node, 5000 + below(random, 100)});
      return visits;
    }
    const int child = at.first_child + below(random, at.children);
    visits.push_back({node, tree[child].token});
    node = child;
  }
}

RoundTimes random_times(Random& random) {
  const auto seconds = [&] { return 1e-4 * (1 + below(random, 1000)); };
  return {seconds(), seconds(), seconds(), seconds(), seconds()};
}

}  // namespace

TracedTurn random_turn(std::uint64_t seed) {
  Random random(seed);
  TracedTurn turn{.prompt_id = PromptId("prompt/" + std::to_string(seed)), .turn = 1 + below(random, 3)};
  if (seed % 2 == 0) turn.prompt_id = static_cast<std::int64_t>(seed);
  if (seed % 3 == 0) turn.set = "some set";
  for (int i = 1 + below(random, 20); i > 0; --i) turn.prompt.push_back(below(random, 1000));
  turn.tokens.push_back(below(random, 1000));
  for (int number = 0, rounds = 1 + below(random, 6); number < rounds; ++number) {
    TracedRound round;
    round.number = number;
    round.prefix = static_cast<std::int64_t>(turn.prompt.size() + turn.tokens.size()) - 1;
    round.tree = below_root(turn.tokens.back(), random_tree(random(), 1 + below(random, 12)));
    round.visits = random_walk(random, round.tree);
    round.times = random_times(random);
    round.kv = {128 * below(random, 9), 128 * below(random, 9)};
    round.form.mask = below(random, 2) == 0 ? MaskForm::list : MaskForm::dense;
    if (below(random, 2) == 0) round.budget = TracedBudget{true, round.tree.size(), {0.125, 0.25}};
    for (const Visit& visit : round.visits) turn.tokens.push_back(visit.token);
    turn.rounds.push_back(std::move(round));
  }
  turn.rounds.back().finish = turn.finish_reason = "length";
  turn.draw = {.sampling = {.logit_bias = {{7, -0.5f}}, .temperature = 0.7f, .top_k = 40, .top_p = 0.95f},
               .seed = random(),
               .max_tokens = static_cast<std::int64_t>(turn.tokens.size())};
  turn.prefill_seconds = 0.5;
  turn.decode_seconds = 1.5;
  return turn;
}

TracedTurn through_a_file(const TracedTurn& turn) {
  const std::string bytes = trace_bytes(TraceHeader{}) + trace_bytes(turn);
  TraceReader reader(std::as_bytes(std::span(bytes)), "t.zst");
  return reader.next().value();
}

}  // namespace espalier
