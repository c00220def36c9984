#include "trace/replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace espalier {
namespace {

// The trees of a record must fit model and device, whatever wrote them.
void check_tree(const Transformer& model, const TokenTree& tree, std::string_view where) {
  const auto buckets = model.device().row_buckets();
  if (!buckets.empty() && tree.size() > buckets.back())
    input_error("{}: a tree of {} rows, the device takes up to {}", where, tree.size(), buckets.back());
  for (const TreeNode& node : tree.nodes())
    if (node.token >= model.config().vocabulary)
      input_error("{}: token {}, the vocabulary has {}", where, node.token, model.config().vocabulary);
}

void check_room(const Transformer& model, const DecoderOptions& options, std::int64_t positions,
                std::string_view where) {
  const std::int64_t context = options.context == 0 ? model.config().context : options.context;
  if (positions > context) input_error("{}: {} positions, the context holds {}", where, positions, context);
}

Speculation with_trees(int rows, TreeSource trees) {
  return {.tree = {.shape = TreeShape::dynamic, .nodes = rows}, .trees = std::move(trees)};
}

// Runs a turn with the trees of its trace and keeps the first difference.
class TurnReplay {
 public:
  TurnReplay(const TracedTurn& turn, const std::function<bool()>& cancelled) : turn_(turn), cancelled_(cancelled) {}

  std::optional<TurnDifference> run(const Transformer& model, const DecoderOptions& options) {
    int rows = 1;
    for (const TracedRound& round : turn_.rounds) {
      const std::string where = fmt::format("round {}", round.number);
      check_tree(model, round.tree, where);
      check_room(model, options, round.prefix + round.tree.size(), where);
      rows = std::max(rows, round.tree.size());
    }
    Batch decoder(model, options, with_trees(rows, [this](std::span<const std::int32_t> path) { return tree(path); }));
    const GenerateResult result = decoder.generate(turn_.prompt, turn_.draw.generate_options(), events());
    if (!difference_) compare(result);
    return difference_;
  }

 private:
  // Where the replay has left the trace there is nothing to verify but the root: its next tree may not even fit.
  TokenTree tree(std::span<const std::int32_t> path) {
    const bool left = difference_ || next_ >= turn_.rounds.size() || turn_.rounds[next_].tree[0].token != path.back();
    return left ? TokenTree(path.back()) : turn_.rounds[next_].tree;
  }

  GenerateEvents events() {
    GenerateEvents events;
    // An answer that a stop string, a stop token or its user ended: the trace knows where.
    events.on_token = [this](const GeneratedToken&) {
      ++tokens_;
      return !(turn_.finish_reason == "stop" && tokens_ >= turn_.tokens.size());
    };
    events.cancelled = [this] {
      return difference_.has_value() || (cancelled_ && cancelled_()) ||
             (turn_.finish_reason == "cancelled" && tokens_ >= turn_.tokens.size());
    };
    events.on_round = [this](const Round& round) { compare(round); };
    return events;
  }

  template <typename... Args>
  void differ(std::optional<std::int64_t> round, fmt::format_string<Args...> format, Args&&... args) {
    if (!difference_) difference_ = {round, fmt::format(format, std::forward<Args>(args)...)};
  }

  void compare(const Round& round) {
    const std::int64_t number = round.number;
    if (next_ >= turn_.rounds.size()) return differ(number, "one round more than the trace has");
    const TracedRound& expected = turn_.rounds[next_++];
    if (round.tree != expected.tree)
      differ(number, "root: expected token {}, got {}", expected.tree[0].token, round.tree[0].token);
    for (std::size_t i = 0; i < std::max(round.visits.size(), expected.visits.size()); ++i) {
      if (i >= round.visits.size() || i >= expected.visits.size())
        return differ(number, "accepted: expected {} drafted tokens, got {}", expected.accepted(), round.accepted());
      if (round.visits[i] != expected.visits[i])
        return differ(number, "node {}: expected token {}, got {}", expected.visits[i].node, expected.visits[i].token,
                      round.visits[i].token);
    }
    const std::string_view finish = round.finish ? name(*round.finish) : std::string_view();
    if (finish != expected.finish) differ(number, "finish: expected '{}', got '{}'", expected.finish, finish);
  }

  void compare(const GenerateResult& result) {
    const auto at =
        static_cast<std::size_t>(std::ranges::mismatch(turn_.tokens, result.tokens).in1 - turn_.tokens.begin());
    if (turn_.tokens != result.tokens)
      differ({}, "token {} of the answer: expected {}, got {}", at,
             at < turn_.tokens.size() ? std::to_string(turn_.tokens[at]) : "the end",
             at < result.tokens.size() ? std::to_string(result.tokens[at]) : "the end");
    if (name(result.finish_reason) != turn_.finish_reason)
      differ({}, "finish_reason: expected {}, got {}", turn_.finish_reason, name(result.finish_reason));
  }

  const TracedTurn& turn_;
  const std::function<bool()>& cancelled_;
  std::size_t next_ = 0;    // round
  std::size_t tokens_ = 0;  // drawn so far
  std::optional<TurnDifference> difference_;
};

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

struct RoundOver {};  // thrown to leave a decoder that would go on

// How far to go. A round that is cut off by a number of tokens does not say why the answer ends.
struct RunLimits {
  std::size_t tokens = SIZE_MAX;
  bool one_round = false;
};

std::optional<FinishReason> known_end(const std::optional<FinishReason>& finish) {
  return finish == FinishReason::stopped ? std::nullopt : finish;
}

// The answer from where the dump has it.
RoundOutcome run_from(Batch& decoder, const FailureDump& dump, const RunLimits& limits) {
  RoundOutcome outcome;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken& drawn) {
    outcome.tokens.push_back(drawn.token);
    return outcome.tokens.size() < limits.tokens;
  };
  events.on_round = [&](const Round& round) {
    if (!limits.one_round) return;
    outcome.end = known_end(round.finish);
    throw RoundOver();
  };
  try {
    const GenerateResult result = decoder.generate(
        {.prompt = dump.prompt, .options = dump.draw.generate_options(), .events = events, .answered = dump.answered});
    outcome.end = known_end(result.finish_reason);
  } catch (const RoundOver&) {
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

// A round that failed while it was committed had come to an end that only its caller knew: a stop string. Any other
// ends by failing, or with its tree.
std::size_t draws_of(const FailureDump& dump) {
  if (dump.answered.empty()) return 1;
  return dump.stage == "commit" ? dump.drawn.size() : SIZE_MAX;
}

RoundOutcome run_one_round(const Transformer& model, const DecoderOptions& options, const FailureDump& dump,
                           const Speculation& drafters) {
  Batch decoder(model, options, dump.tree ? with_trees(dump.tree->size(), [&](auto) { return *dump.tree; }) : drafters);
  return run_from(decoder, dump, {.tokens = draws_of(dump), .one_round = true});
}

// One token further than the round went: whether it goes on there matters too.
RoundOutcome run_plainly(const Transformer& model, const DecoderOptions& options, const FailureDump& dump,
                         const RoundOutcome& round) {
  Batch decoder(model, options);
  return run_from(decoder, dump, {.tokens = round.tokens.size() + 1});
}

void check_dump_fits(const Transformer& model, const DecoderOptions& options, const FailureDump& dump) {
  const std::string where = fmt::format("round {}", dump.round);
  const auto check_vocabulary = [&](std::int32_t token) {
    if (token >= model.config().vocabulary)
      input_error("{}: token {}, the vocabulary has {}", where, token, model.config().vocabulary);
  };
  std::ranges::for_each(dump.prompt, check_vocabulary);
  std::ranges::for_each(dump.answered, check_vocabulary);
  for (const auto& [token, bias] : dump.draw.sampling.logit_bias) check_vocabulary(token);
  if (dump.tree) check_tree(model, *dump.tree, where);
  const auto known = static_cast<std::int64_t>(dump.prompt.size() + dump.answered.size());
  check_room(model, options, known + (dump.tree ? dump.tree->size() - 1 : 0), where);
}

std::optional<std::size_t> first_difference(const RoundOutcome& a, const RoundOutcome& b) {
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(a.tokens, b.tokens).in1 - a.tokens.begin());
  if (at < a.tokens.size() && at < b.tokens.size()) return at;
  if (a.error || b.error) return std::nullopt;
  const bool same_length = a.tokens.size() == b.tokens.size();
  const RoundOutcome& shorter = a.tokens.size() < b.tokens.size() ? a : b;
  const bool parted = same_length ? a.end && b.end && a.end != b.end : shorter.end.has_value();
  return parted ? std::optional(at) : std::nullopt;
}

}  // namespace

std::optional<TurnDifference> replay_turn(const Transformer& model, const DecoderOptions& options,
                                          const TracedTurn& turn, const std::function<bool()>& cancelled) {
  return TurnReplay(turn, cancelled).run(model, options);
}

DumpReplay replay_dump(const Transformer& model, const DecoderOptions& options, const FailureDump& dump,
                       const Speculation& drafters) {
  check_dump_fits(model, options, dump);
  DumpReplay replay{.speculative = run_one_round(model, options, dump, drafters)};
  if (dump.kind != FailureKind::mismatch) {
    replay.reproduced = replay.speculative.error && first_line(*replay.speculative.error) == first_line(dump.error);
    return replay;
  }
  replay.plain = run_plainly(model, options, dump, replay.speculative);
  replay.difference = first_difference(replay.speculative, *replay.plain);
  replay.reproduced = replay.difference.has_value();
  const std::size_t compared =
      std::max(replay.speculative.tokens.size(), replay.difference ? *replay.difference + 1 : 0);
  if (replay.plain->tokens.size() > compared) replay.plain->tokens.resize(compared);
  return replay;
}

}  // namespace espalier
