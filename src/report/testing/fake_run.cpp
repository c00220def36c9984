#include "report/testing/fake_run.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "eval/run_folder.h"
#include "trace/testing/random_turn.h"
#include "trace/trace_file.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

TurnRecord record_of(const TracedTurn& traced, std::int64_t place) {
  TurnRecord turn{.record = place, .set = "set", .prompt_id = traced.prompt_id, .turn = traced.turn};
  turn.user = "Question " + std::to_string(place);
  turn.prompt = traced.prompt;
  turn.tokens = traced.tokens;
  turn.finish_reason = traced.finish_reason;
  turn.accept_lengths = traced.accept_lengths();
  for (const TracedRound& round : traced.rounds) count_levels(round.judged_levels(), turn.reached);
  turn.seconds = {traced.prefill_seconds, traced.decode_seconds};
  const double slower = 1 + 0.25 * static_cast<double>(place % 5);
  turn.baseline =
      BaselineTurn{{1.125 * traced.prefill_seconds, slower * traced.decode_seconds}, turn.tokens, turn.finish_reason};
  return turn;
}

void end_with_first_token(TracedTurn& turn) {
  turn.tokens.resize(1);
  turn.rounds.clear();
  turn.finish_reason = "stop";
  turn.decode_seconds = 0;
}

Json read(const std::filesystem::path& path) {
  return Json::parse(read_text_file(path));
}

}  // namespace

FakeRun random_run(std::uint64_t seed, int turns) {
  FakeRun run;
  for (int i = 0; i < turns; ++i) {
    TracedTurn traced = random_turn(seed + static_cast<std::uint64_t>(i));
    traced.prompt_id = "prompt " + std::to_string(i);
    traced.turn = 1;
    traced.prefill_seconds = 0.01 * (i + 1);
    traced.decode_seconds = 0.5 + 0.03 * static_cast<double>(i * i % 17);
    if (i % 10 == 9) end_with_first_token(traced);
    run.turns.push_back(record_of(traced, i));
    run.traced.push_back(std::move(traced));
  }
  return run;
}

void write_run(const std::filesystem::path& path, const FakeRun& run) {
  nlohmann::ordered_json manifest = {{"commit", "0123456789abcdef"},
                                     {"start", "2026-01-01T00:00:00Z"},
                                     {"configuration",
                                      {{"model", {{"path", "models/tiny.gguf"}}},
                                       {"engine", {{"isa", "avx2"}, {"threads", 3}}},
                                       {"draft", {{"drafters", "ngram"}, {"nodes", 16}}},
                                       {"sampling", {{"max_tokens", 64}}}}},
                                     {"end", nullptr}};
  std::filesystem::create_directories(path.parent_path());
  const RunFolder folder = RunFolder::create(path, manifest);
  manifest["end"] = "2026-01-01T01:00:00Z";
  folder.finish(manifest, run.turns, summarize(run.turns));
  std::filesystem::create_directories(folder.rank_path(0));
  std::string trace = trace_bytes(TraceHeader{});
  for (const TracedTurn& turn : run.traced) trace += trace_bytes(turn);
  std::ofstream(folder.rank_path(0) / "trace.jsonl.zst", std::ios::binary) << trace;
}

std::filesystem::path ReportTest::write(const std::string& name, const FakeRun& run) const {
  write_run(folder_ / name, run);
  return folder_ / name;
}

Losslessness ReportTest::make_report(const std::vector<std::filesystem::path>& sources,
                                     const ReportOptions& options) const {
  ReportFolder folder(out_, /*replace=*/false);
  const Losslessness lossless = write_report(read_sources(sources), options, folder);
  folder.publish();
  return lossless;
}

std::string ReportTest::page() const {
  return read_text_file(out_ / "index.html");
}

Json ReportTest::report() const {
  return read(out_ / "report.json");
}

Json ReportTest::table(const std::string& id) const {
  return read(out_ / "tables" / (id + ".json"));
}

Json ReportTest::figure(const std::string& id) const {
  return read(out_ / "figures" / (id + ".json"));
}

}  // namespace espalier
