#include "report/report.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "eval/run_folder.h"
#include "eval/turn_journal.h"
#include "format/temporary_folder.h"
#include "trace/failure_dump.h"
#include "trace/random_turn.h"
#include "trace/trace_file.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Json read(const std::filesystem::path& path) {
  return Json::parse(bytes_of(path));
}

Json rows_of(const std::filesystem::path& table) {
  return read(table).at("rows");
}

// A run directory whose turns are those of its trace, answered without speculation too.
struct FakeRun {
  std::vector<TracedTurn> traced = {};
  std::vector<TurnRecord> turns = {};
};

TurnRecord record_of(const TracedTurn& traced, std::int64_t place) {
  TurnRecord turn{.record = place, .set = "set", .prompt_id = traced.prompt_id, .turn = traced.turn};
  turn.prompt = traced.prompt;
  turn.tokens = traced.tokens;
  turn.finish_reason = traced.finish_reason;
  turn.accept_lengths = traced.accept_lengths();
  for (const TracedRound& round : traced.rounds) {
    turn.reached.resize(std::max<std::size_t>(turn.reached.size(), static_cast<std::size_t>(round.judged_levels())));
    for (std::int64_t i = 0; i < round.judged_levels(); ++i) ++turn.reached[static_cast<std::size_t>(i)];
  }
  turn.seconds = {traced.prefill_seconds, traced.decode_seconds};
  const double slower = 1 + 0.25 * static_cast<double>(place % 5);
  turn.baseline =
      BaselineTurn{{traced.prefill_seconds, slower * traced.decode_seconds}, turn.tokens, turn.finish_reason};
  return turn;
}

FakeRun random_run(std::uint64_t seed, int turns) {
  FakeRun run;
  for (int i = 0; i < turns; ++i) {
    TracedTurn traced = random_turn(seed + static_cast<std::uint64_t>(i));
    traced.prompt_id = "prompt " + std::to_string(i);
    traced.turn = 1;
    traced.prefill_seconds = 0.01 * (i + 1);
    traced.decode_seconds = 0.5 + 0.03 * static_cast<double>(i * i % 17);
    run.turns.push_back(record_of(traced, i));
    run.traced.push_back(std::move(traced));
  }
  return run;
}

void write_run(const std::filesystem::path& path, const FakeRun& run) {
  nlohmann::ordered_json manifest = {{"configuration", {{"draft", {{"drafters", "ngram"}}}}}, {"end", nullptr}};
  const RunFolder folder = RunFolder::create(path, manifest);
  manifest["end"] = "2026-01-01T00:00:00Z";
  folder.finish(manifest, run.turns, summarize(run.turns));
  std::filesystem::create_directories(folder.rank_path(0));
  std::string trace = trace_bytes(TraceHeader{});
  for (const TracedTurn& turn : run.traced) trace += trace_bytes(turn);
  std::ofstream(folder.rank_path(0) / "trace.jsonl.zst", std::ios::binary) << trace;
}

Losslessness make_report(const std::vector<std::filesystem::path>& runs, const std::filesystem::path& out,
                         const ReportOptions& options = {}) {
  ReportFolder folder(out, false);
  const Losslessness lossless = write_report(read_sources(runs), options, folder);
  folder.publish();
  return lossless;
}

// ---- figures of traces, computed in the plainest way, without the code that summarises ----

double average(const std::vector<double>& samples) {
  double sum = 0;
  for (const double sample : samples) sum += sample;
  return sum / static_cast<double>(samples.size());
}

double percentile(std::vector<double> samples, double share) {
  std::sort(samples.begin(), samples.end());
  const double place = share * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (place - std::floor(place)) * (samples[above] - samples[below]);
}

using Samples = std::map<std::string, std::vector<double>>;

Samples samples_of(const std::filesystem::path& trace, const std::vector<TurnRecord>& baselines) {
  Samples samples;
  TraceReader reader(trace);
  for (std::size_t i = 0; const auto turn = reader.next(); ++i) {
    const double tokens = static_cast<double>(turn->tokens.size());
    const double seconds = turn->prefill_seconds + turn->decode_seconds;
    const TurnSeconds& plain = baselines[i].baseline->seconds;
    samples["speculative Tok/s"].push_back(tokens / seconds);
    samples["baseline Tok/s"].push_back(tokens / (plain.prefill + plain.decode));
    samples["speed-up"].push_back((plain.prefill + plain.decode) / seconds);
    samples["TTFT, ms"].push_back(1000 * turn->prefill_seconds);
    if (tokens > 1) samples["TPOT, ms"].push_back(1000 * turn->decode_seconds / (tokens - 1));
    samples["tokens of the prompt"].push_back(static_cast<double>(turn->prompt.size()));
    samples["tokens of the answer"].push_back(tokens);
    for (const TracedRound& round : turn->rounds) {
      samples["accept_L"].push_back(static_cast<double>(round.visits.size()) - 1);
      samples["verify"].push_back(1000 * round.times.verify);
      samples["commit"].push_back(1000 * round.times.commit);
    }
  }
  return samples;
}

double number(const Json& cell) {
  return cell.is_object() ? cell["value"].get<double>() : cell.get<double>();
}

void expect_near(double value, double expected, const std::string& what) {
  EXPECT_NEAR(value, expected, 1e-9 * std::max(1.0, std::abs(expected))) << what;
}

class Report : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const FakeRun& run) {
    write_run(folder_ / name, run);
    return folder_ / name;
  }
  std::string page() const { return bytes_of(out_ / "index.html"); }

  TemporaryFolder folder_;
  std::filesystem::path out_ = folder_ / "report";
};

TEST_F(Report, TablesAreThoseThatTheTracesGive) {
  const FakeRun run = random_run(11, 23);
  make_report({write("run", run)}, out_);
  const Samples samples = samples_of(folder_ / "run/ranks/0000/trace.jsonl.zst", run.turns);
  std::map<std::string, int> seen;
  for (const Json& row : rows_of(out_ / "tables/runs-headline.json")) {
    const std::string figure = row[0];
    if (!samples.contains(figure)) continue;
    const std::vector<double>& expected = samples.at(figure);
    expect_near(number(row[2]), average(expected), figure + " mean");
    expect_near(number(row[3]), percentile(expected, 0.5), figure + " p50");
    expect_near(number(row[4]), percentile(expected, 0.9), figure + " p90");
    expect_near(number(row[5]), percentile(expected, 0.99), figure + " p99");
    EXPECT_LE(row[2]["interval"][0].get<double>(), number(row[2]) + 1e-12) << figure;
    EXPECT_GE(row[2]["interval"][1].get<double>(), number(row[2]) - 1e-12) << figure;
    ++seen[figure];
  }
  EXPECT_EQ(seen.size(), 8u);
  for (const Json& row : rows_of(out_ / "tables/runs-stages.json")) {
    if (!samples.contains(row[0].get<std::string>())) continue;
    const std::vector<double>& expected = samples.at(row[0]);
    expect_near(number(row[3]), average(expected), row[0]);
    expect_near(number(row[6]), percentile(expected, 0.99), row[0]);
    if (average(expected) > 0) expect_near(number(row[7]), percentile(expected, 0.99) / average(expected), row[0]);
  }
}

TEST_F(Report, AcceptPosIsCountedFromTheTraces) {
  const FakeRun run = random_run(5, 17);
  make_report({write("run", run)}, out_);
  std::map<std::int64_t, std::int64_t> judged, accepted;
  for (const TracedTurn& turn : run.traced)
    for (const TracedRound& round : turn.rounds) {
      for (std::int64_t depth = 1; depth < static_cast<std::int64_t>(round.visits.size()); ++depth)
        ++judged[depth], ++accepted[depth];
      const bool rejected = round.finish.empty() && round.tree[round.visits.back().node].children > 0;
      if (rejected) ++judged[static_cast<std::int64_t>(round.visits.size())];
    }
  const Json rows = rows_of(out_ / "tables/runs-accept-pos-table.json");
  ASSERT_EQ(rows.size(), judged.size());
  for (const Json& row : rows) {
    const std::int64_t depth = std::stoll(row[0].get<std::string>());
    EXPECT_EQ(number(row[2]), static_cast<double>(judged[depth]));
    expect_near(number(row[3]), static_cast<double>(accepted[depth]) / static_cast<double>(judged[depth]), row[0]);
  }
}

TEST_F(Report, TheListOfTurnsHasEveryTurnAsItsTraceHasIt) {
  const FakeRun run = random_run(3, 9);
  make_report({write("run", run)}, out_);
  const Json rows = rows_of(out_ / "tables/turns.json");
  ASSERT_EQ(rows.size(), run.traced.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TracedTurn& traced = run.traced[i];
    const double tokens = static_cast<double>(traced.tokens.size());
    EXPECT_EQ(rows[i][0], static_cast<double>(i + 1));
    EXPECT_EQ(rows[i][5], tokens);
    EXPECT_EQ(rows[i][7], static_cast<double>(traced.rounds.size()));
    expect_near(number(rows[i][10]), tokens / (traced.prefill_seconds + traced.decode_seconds), "Tok/s");
    EXPECT_EQ(rows[i][12], "true");
  }
}

TEST_F(Report, TheFirstLineSaysHowManyTurnsAreIdentical) {
  const Losslessness lossless = make_report({write("run", random_run(1, 4))}, out_);
  EXPECT_TRUE(lossless.holds());
  const std::string html = page();
  const std::string body = html.substr(html.find("<main>"));
  EXPECT_THAT(body,
              StartsWith("<main>\n<p class=\"lossless holds\" id=\"lossless\">\u2714 4 of 4 turns are identical"));
  EXPECT_THAT(html, HasSubstr("4 of 4 turns have a trace; tokens, rounds, judged guesses and seconds of 4 of them"));
}

TEST_F(Report, ADifferenceIsToldInRedWithItsDump) {
  FakeRun run = random_run(2, 3);
  run.turns[1].baseline->tokens[0] += 1;
  const auto path = write("run", run);
  std::filesystem::create_directory(path / "dumps");
  FailureDump dump = mismatch_dump(run.traced[1], run.turns[1].baseline->tokens, run.turns[1].finish_reason);
  const auto dumped = write_failure_dump(dump, {}, path / "dumps");
  const Losslessness lossless = make_report({path}, out_);
  EXPECT_FALSE(lossless.holds());
  ASSERT_EQ(lossless.failures.size(), 1u);
  EXPECT_THAT(lossless.failures[0], HasSubstr(dumped.string()));
  EXPECT_THAT(page(), HasSubstr("<p class=\"lossless failed\" id=\"lossless\">FAILED: 2 of 3 turns are identical"));
  EXPECT_THAT(page(), HasSubstr("class=\"differs\""));
}

TEST_F(Report, ATraceThatTellsAnotherStoryIsAFailure) {
  FakeRun run = random_run(2, 3);
  run.turns[2].accept_lengths.back() += 1;
  make_report({write("run", run)}, out_);
  EXPECT_THAT(page(), HasSubstr("accept_lengths in the trace is not that of turns.json"));
}

TEST_F(Report, RunsStandSideBySide) {
  const auto left = write("left", random_run(1, 6)), right = write("right", random_run(50, 6));
  make_report({left, right}, out_);
  const Json rows = rows_of(out_ / "tables/runs-side-by-side.json");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0][0], "left");
  EXPECT_EQ(rows[1][0], "right");
  EXPECT_TRUE(rows[0][5].contains("interval"));
  EXPECT_TRUE(std::filesystem::exists(out_ / "figures/runs-speed-up-of-runs.svg"));
}

TEST_F(Report, EveryTableAndFigureIsAFileToo) {
  make_report({write("run", random_run(1, 6))}, out_);
  const Json report = read(out_ / "report.json");
  for (const Json& section : report["sections"]) {
    for (const std::string id : section["tables"])
      for (const char* ending : {".csv", ".json"})
        EXPECT_TRUE(std::filesystem::exists(out_ / "tables" / (id + ending))) << id;
    for (const std::string id : section["figures"])
      for (const char* ending : {".svg", ".csv", ".json"})
        EXPECT_TRUE(std::filesystem::exists(out_ / "figures" / (id + ending))) << id;
  }
}

TEST_F(Report, HostileTextStaysText) {
  FakeRun run = random_run(8, 2);
  const std::string hostile = "</script><script>alert(1)</script>\"'&\x01";
  for (std::size_t i = 0; i < 2; ++i) run.turns[i].prompt_id = run.traced[i].prompt_id = hostile + std::to_string(i);
  const ReportOptions options{.words = [&](const auto&) {
    return TokenWords{.word = [&](std::int32_t) { return hostile + "\xff"; }, .drafters = {hostile}};
  }};
  make_report({write("<b>run", run)}, out_, options);
  const std::string html = page();
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("<b>run")));
  EXPECT_THAT(html, Not(HasSubstr("\x01")));
  EXPECT_THAT(html, HasSubstr("\\u003c/script\\u003e"));
}

TEST_F(Report, TurnsBeyondTheBoundLieInFilesBesideThePage) {
  const FakeRun run = random_run(8, 5);
  make_report({write("run", run)}, out_, {.embedded_bytes = 0});
  EXPECT_THAT(page(), Not(HasSubstr("turn-data-1")));
  for (int turn = 1; turn <= 5; ++turn)
    EXPECT_THAT(bytes_of(out_ / "turns" / (std::to_string(turn) + ".js")),
                StartsWith("espalierTurn(" + std::to_string(turn) + ", {"));
}

TEST_F(Report, ARunOfASingleTurnAndOneWithoutTracesHaveAReport) {
  FakeRun run = random_run(4, 1);
  make_report({write("one", run)}, out_);
  EXPECT_THAT(page(), HasSubstr("1 of 1 turns are identical"));
  for (TurnRecord& turn : run.turns) turn.baseline.reset();
  run.traced.clear();
  make_report({write("alone", run)}, folder_ / "alone-report");
  EXPECT_THAT(bytes_of(folder_ / "alone-report/index.html"), HasSubstr("No turn was compared"));
}

TEST_F(Report, ARunWithoutTurnsHasAReport) {
  make_report({write("empty", {})}, out_);
  EXPECT_THAT(page(), HasSubstr("No turn was compared: 0 turns"));
}

void expect_refused(const std::function<void()>& action, const std::string& message) {
  try {
    action();
    ADD_FAILURE() << "expected: " << message;
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr(message));
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
  }
}

TEST_F(Report, WhatIsNoRunIsRefusedInOneLine) {
  expect_refused([&] { read_sources({folder_ / "nothing"}); }, "no such directory");
  expect_refused([&] { read_sources({folder_.path()}); }, "neither manifest.json nor suite.json");
  folder_.write("run-manifest", "");
  const auto run = write("run", random_run(1, 2));
  std::ofstream(run / "turns.json") << "[{]";
  expect_refused([&] { read_sources({run}); }, "turns.json");
  std::ofstream(run / "manifest.json") << "{\"end\": null}";
  expect_refused([&] { read_sources({run}); }, "not finished");
}

TEST_F(Report, AFailedReportLeavesNothingBehind) {
  const auto run = write("run", random_run(1, 2));
  std::ofstream(run / "ranks/0000/trace.jsonl.zst") << "no trace";
  expect_refused([&] { make_report({run}, out_); }, "trace.jsonl.zst");
  EXPECT_FALSE(std::filesystem::exists(out_));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) EXPECT_EQ(entry.path().extension(), "");
}

TEST_F(Report, OnlyAnEarlierReportIsReplaced) {
  const auto run = write("run", random_run(1, 2));
  make_report({run}, out_);
  expect_refused([&] { ReportFolder(out_, false); }, "exists already");
  expect_refused([&] { ReportFolder(run, true); }, "no report.json");
  ReportFolder again(out_, true);
  again.add("report.json", "new");
  EXPECT_NE(bytes_of(out_ / "report.json"), "new");
  again.publish();
  EXPECT_EQ(bytes_of(out_ / "report.json"), "new");
  EXPECT_FALSE(std::filesystem::exists(out_ / "index.html"));
}

}  // namespace
}  // namespace espalier
