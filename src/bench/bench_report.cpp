#include "bench/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHostWork[] = {"grow", "tensorise", "tables", "mask", "commit"};
constexpr const char* kRounds[] = {"round_draft",  "round_prepare", "round_verify",
                                   "round_accept", "round_commit",  "round_trace"};

double median_of(const BenchResult& result, std::string_view name, std::int64_t rows, std::int64_t context) {
  const Figure* figure = find_figure(result.figures, name, rows, context);
  return figure == nullptr || figure->samples.empty() ? 0 : figure->spread().median;
}

// Our time for the duel's figure.
const Figure* ours(const BenchResult& result, const Duel& duel) {
  return find_figure(result.figures, duel.figure, duel.rows, duel.context);
}

// Repeat by repeat.
std::vector<double> paired_quotients(std::span<const double> dividends, std::span<const double> divisors) {
  std::vector<double> quotients;
  for (std::size_t i = 0; i < std::min(dividends.size(), divisors.size()); ++i)
    quotients.push_back(dividends[i] / divisors[i]);
  return quotients;
}

double ratio_of_medians(const Figure& figure, const PeerTrack& peer) {
  return spread_of(peer.samples).median / figure.spread().median;
}

Json spread_json(const Spread& spread) {
  return {{"median_seconds", spread.median},
          {"lower_quartile_seconds", spread.lower},
          {"upper_quartile_seconds", spread.upper}};
}

Json number_or_null(std::int64_t value) {
  return value == 0 ? Json(nullptr) : Json(value);
}

Json figure_json(const Figure& figure) {
  Json object = {
      {"name", figure.name}, {"rows", number_or_null(figure.rows)}, {"context", number_or_null(figure.context)}};
  object.update(spread_json(figure.spread()));
  object["samples"] = figure.samples;
  return object;
}

Json peer_json(const PeerTrack& peer) {
  Json object = {{"program", peer.program}, {"depth", peer.depth}};
  if (peer.samples.empty()) {
    object["median_seconds"] = nullptr;
  } else {
    object.update(spread_json(spread_of(peer.samples)));
  }
  object["samples"] = peer.samples;
  object["problem"] = peer.problem.empty() ? Json(nullptr) : Json(peer.problem);
  return object;
}

Json duel_json(const BenchResult& result, const Duel& duel) {
  Json object = {{"figure", duel.figure},
                 {"rows", number_or_null(duel.rows)},
                 {"context", number_or_null(duel.context)},
                 {"ratio", nullptr},
                 {"ratio_lower_quartile", nullptr},
                 {"ratio_upper_quartile", nullptr},
                 {"best", nullptr},
                 {"peers", Json::array()}};
  const Figure* figure = ours(result, duel);
  if (const PeerTrack* best = duel.best(); best != nullptr && figure != nullptr) {
    const Spread pairs = spread_of(paired_quotients(best->samples, figure->samples));
    object["ratio"] = ratio_of_medians(*figure, *best);
    object["ratio_lower_quartile"] = pairs.lower;
    object["ratio_upper_quartile"] = pairs.upper;
    object["best"] = best->program;
  }
  for (const PeerTrack& peer : duel.peers) object["peers"].push_back(peer_json(peer));
  return object;
}

Json row_ratios_json(const BenchResult& result) {
  Json list = Json::array();
  for (std::int64_t context : result.sizes.contexts) {
    const double one = median_of(result, "step", 1, context);
    for (std::int64_t rows : result.sizes.rows)
      if (one > 0)
        list.push_back(
            {{"context", context}, {"rows", rows}, {"to_one_row", median_of(result, "step", rows, context) / one}});
  }
  return list;
}

Json shares_json(const BenchResult& result) {
  Json list = Json::array();
  for (const StepShare& share : step_shares(result))
    list.push_back({{"figure", share.figure},
                    {"rows", share.rows},
                    {"context", share.context},
                    {"linears", share.linears},
                    {"attention", share.attention},
                    {"other", share.other()}});
  return list;
}

Json memory_json(const BenchMemory& memory) {
  return {{"peak_after_loading_bytes", memory.peak_after_loading},
          {"peak_bytes", memory.peak},
          {"weights_bytes", memory.weights},
          {"kv_bytes", memory.kv},
          {"kv_bytes_per_token", memory.kv_per_token}};
}

bool in_microseconds(double seconds) {
  return seconds < 1e-4;
}

std::string number_text(double seconds, bool micro) {
  const double value = seconds * (micro ? 1e6 : 1e3);
  return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0);
}

// 5.81 ms, 12.3 us.
std::string time_text(double seconds) {
  const bool micro = in_microseconds(seconds);
  return fmt::format("{} {}", number_text(seconds, micro), micro ? "us" : "ms");
}

// 5.81 ms [5.70, 6.02]
std::string spread_text(const Spread& spread) {
  const bool micro = in_microseconds(spread.median);
  return fmt::format("{} [{}, {}]", time_text(spread.median), number_text(spread.lower, micro),
                     number_text(spread.upper, micro));
}

// As many contexts as stand side by side.
std::string steps_text(const BenchResult& result, std::span<const std::int64_t> contexts) {
  std::string text = fmt::format("\n{:<9}", "step");
  for (std::int64_t context : contexts) text += fmt::format("{:>30}", fmt::format("context {}", context));
  for (std::int64_t rows : result.sizes.rows) {
    text += fmt::format("\n{:>4} {:<4}", rows, rows == 1 ? "row" : "rows");
    for (std::int64_t context : contexts) {
      const Figure* figure = find_figure(result.figures, "step", rows, context);
      const double one = median_of(result, "step", 1, context);
      const std::string times = one > 0 ? fmt::format(" {:>5.2f}x", figure->spread().median / one) : "";
      text += fmt::format("{:>30}", spread_text(figure->spread()) + times);
    }
  }
  return text + "\n";
}

std::string steps_text(const BenchResult& result) {
  std::string text;
  for (std::span<const std::int64_t> rest = result.sizes.contexts; !rest.empty();) {
    const std::size_t count = std::min<std::size_t>(rest.size(), 3);
    text += steps_text(result, rest.first(count));
    rest = rest.subspan(count);
  }
  return text;
}

std::string line(std::string_view label, const Spread& spread, const std::string& more = {}) {
  return fmt::format("{:<22} {:>30}{}\n", label, spread_text(spread), more.empty() ? "" : "  " + more);
}

std::string loop_text(const BenchResult& result) {
  const BenchSizes& sizes = result.sizes;
  const Spread token = find_figure(result.figures, "plain_decoding", 0, sizes.prompt)->spread();
  const Spread prompt = find_figure(result.figures, "prefill", sizes.prefill, 0)->spread();
  return "\n" +
         line("plain decoding", token,
              fmt::format("{:.1f} tokens/s, {} tokens after {}", 1 / token.median, sizes.answer, sizes.prompt)) +
         line(fmt::format("prefill of {}", sizes.prefill), prompt,
              fmt::format("{:.1f} tokens/s", static_cast<double>(sizes.prefill) / prompt.median));
}

std::string users_text(const BenchResult& result) {
  std::string text;
  for (std::int64_t users : result.sizes.users) {
    const Spread step = find_figure(result.figures, "users_step", users, result.sizes.prompt)->spread();
    text += line(fmt::format("a step of {} user{}", users, users == 1 ? "" : "s"), step,
                 fmt::format("{:.1f} tokens/s in all", static_cast<double>(users) / step.median));
  }
  return text;
}

std::string rounds_text(const BenchResult& result) {
  if (result.draft == "none") return "";
  std::string text = fmt::format("\na round with drafts by {}, {:.1f} rows\n", result.draft, result.draft_rows);
  for (const char* name : kRounds)
    text += line(fmt::format("  {}", std::string_view(name).substr(sizeof "round")),
                 find_figure(result.figures, name, 0, result.sizes.prompt)->spread());
  return text;
}

std::string host_text(const BenchResult& result) {
  std::string text = fmt::format("\nhost work, tree of {} rows, context {}\n", result.host_rows, result.host_context);
  for (const char* name : kHostWork)
    text += line(fmt::format("  {}", name),
                 find_figure(result.figures, name, result.host_rows, result.host_context)->spread());
  if (const auto share = host_share(result))
    text += fmt::format("  together {:.2f} % of a step of the same rows\n", 100 * *share);
  return text;
}

std::string shares_text(const BenchResult& result) {
  std::string text = fmt::format("\n{:<36} {:>8} {:>10} {:>8}\n", "share of", "linears", "attention", "other");
  for (const StepShare& share : step_shares(result))
    text += fmt::format(
        "{:<36} {:>6.1f} % {:>8.1f} % {:>6.1f} %\n",
        share.figure == "step" ? fmt::format("step of {}, context {}", share.rows, share.context) : "plain decoding",
        100 * share.linears, 100 * share.attention, 100 * share.other());
  return text;
}

std::string memory_text(const BenchResult& result) {
  const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const BenchMemory& memory = result.memory;
  return fmt::format(
      "\nloaded in {:.2f} s; peak memory {:.0f} MB after loading, {:.0f} MB at the end\nweights in the file {:.0f} MB; "
      "KV of the steps {:.0f} MB, {:.1f} KB a token\n",
      result.load_seconds, mb(memory.peak_after_loading), mb(memory.peak), mb(memory.weights), mb(memory.kv),
      static_cast<double>(memory.kv_per_token) / 1e3);
}

std::string duel_label(const Duel& duel) {
  if (duel.figure == "prompt_step")
    return fmt::format("{} row{} of a prompt, context {}", duel.rows, duel.rows == 1 ? "" : "s", duel.context);
  if (duel.figure == "step")
    return fmt::format("{} row{} of a tree, context {}", duel.rows, duel.rows == 1 ? "" : "s", duel.context);
  return duel.figure == "prefill" ? fmt::format("prefill of {}", duel.rows)
                                  : fmt::format("plain decoding after {}", duel.test.depth);
}

std::string peers_text(const BenchResult& result) {
  if (result.duels.empty()) return "";
  std::string text = fmt::format("\n{:<34} {:>10}", "against llama.cpp", "espalier");
  for (std::size_t i = 0; i < result.duels[0].peers.size(); ++i)
    text += fmt::format(" {:>10}", fmt::format("[{}]", i + 1));
  text += fmt::format(" {:>8}\n", "ratio");
  std::string notes;
  for (const Duel& duel : result.duels) {
    const Figure* figure = ours(result, duel);
    text += fmt::format("{:<34} {:>10}", duel_label(duel), time_text(figure->spread().median));
    for (std::size_t i = 0; i < duel.peers.size(); ++i) {
      const PeerTrack& peer = duel.peers[i];
      text += fmt::format(" {:>10}", peer.samples.empty() ? "failed" : time_text(spread_of(peer.samples).median));
      if (!peer.problem.empty()) notes += fmt::format("[{}] {}: {}\n", i + 1, duel_label(duel), peer.problem);
    }
    const PeerTrack* best = duel.best();
    text +=
        best == nullptr ? fmt::format(" {:>8}\n", "-") : fmt::format(" {:>7.2f}x\n", ratio_of_medians(*figure, *best));
  }
  for (std::size_t i = 0; i < result.duels[0].peers.size(); ++i)
    text += fmt::format("[{}] {}\n", i + 1, result.duels[0].peers[i].program);
  return text + notes;
}

}  // namespace

const PeerTrack* Duel::best() const {
  const PeerTrack* best = nullptr;
  for (const PeerTrack& peer : peers) {
    if (peer.samples.empty()) continue;
    if (best == nullptr || spread_of(peer.samples).median < spread_of(best->samples).median) best = &peer;
  }
  return best;
}

std::vector<StepShare> step_shares(const BenchResult& result) {
  std::vector<StepShare> shares;
  for (const char* name : {"step", "plain_decoding"})
    for (const Figure& whole : result.figures) {
      if (whole.name != fmt::format("{}_by_ops", name) || whole.samples.empty()) continue;
      const auto part = [&](const char* op) {
        const Figure* ops = find_figure(result.figures, fmt::format("{}_{}", name, op), whole.rows, whole.context);
        return spread_of(paired_quotients(ops->samples, whole.samples)).median;
      };
      shares.push_back({name, whole.rows, whole.context, part("linears"), part("attention")});
    }
  return shares;
}

std::optional<double> host_share(const BenchResult& result) {
  const double step = median_of(result, "step", result.host_rows, result.host_context);
  if (step <= 0) return std::nullopt;
  double sum = 0;
  for (const char* name : kHostWork) sum += median_of(result, name, result.host_rows, result.host_context);
  return sum / step;
}

Json bench_json(const BenchResult& result) {
  Json object = {{"model", result.model},
                 {"device", result.device},
                 {"isa", result.isa},
                 {"threads", result.threads},
                 {"kv", result.kv},
                 {"repeats", result.repeats},
                 {"cut", result.sizes.cuts},
                 {"load_seconds", result.load_seconds},
                 {"draft", result.draft},
                 {"draft_rows", result.draft_rows},
                 {"figures", Json::array()},
                 {"row_ratios", row_ratios_json(result)},
                 {"shares", shares_json(result)}};
  for (const Figure& figure : result.figures) object["figures"].push_back(figure_json(figure));
  const auto share = host_share(result);
  object["host_work"] = {{"rows", result.host_rows},
                         {"context", result.host_context},
                         {"share_of_step", share ? Json(*share) : Json(nullptr)}};
  object["memory"] = memory_json(result.memory);
  object["against"] = Json::array();
  for (const Duel& duel : result.duels) object["against"].push_back(duel_json(result, duel));
  return object;
}

std::string bench_text(const BenchResult& result) {
  std::string text =
      fmt::format("{}\ndevice {} ({}), {} thread{}, KV {}; median [quartiles] of {}\n", result.model, result.device,
                  result.isa, result.threads, result.threads == 1 ? "" : "s", result.kv, result.repeats);
  return text + steps_text(result) + loop_text(result) + users_text(result) + rounds_text(result) + host_text(result) +
         shares_text(result) + memory_text(result) + peers_text(result);
}

}  // namespace espalier
