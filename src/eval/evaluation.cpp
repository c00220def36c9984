#include "eval/evaluation.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/whole_file.h"
#include "engine/host_facts.h"
#include "engine/receipt.h"
#include "eval/journal_reader.h"
#include "eval/prepared_prompts.h"
#include "eval/rank_run.h"
#include "eval/rank_watch.h"
#include "eval/run_folder.h"
#include "eval/shared_baseline.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTrace = "trace.jsonl.zst";
constexpr const char* kReceipts = "receipts.jsonl";
constexpr double kLastWords = 5;   // seconds in which a rank says that it has ended, once its last turn is there
constexpr double kFirstLook = 20;  // seconds in which rank 0 comes, once another rank of its launch has failed

// Without a slash at the end: the name under which a run is prepared stands beside it.
std::filesystem::path run_path(const EvalRequest& request) {
  const std::filesystem::path path = std::filesystem::path(request.out).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// Step times that the first decoder measures are there for all later ones.
void keep_step_times(Speculation& speculation) {
  if (!speculation.budget) return;
  speculation.budget->on_measured = [&speculation, save = speculation.budget->on_measured](const StepTimes& times) {
    if (save) save(times);
    speculation.budget->times = times;
  };
}

// Tells the listener, where there is one, that turns are being answered, until this is gone.
class ListenedTurns {
 public:
  ListenedTurns(EvalListener* listener, const ShareSize& size) : listener_(listener) {
    if (listener_ != nullptr) listener_->begin(size.turns, size.finished);
  }
  ~ListenedTurns() {
    if (listener_ != nullptr) listener_->end();
  }
  ListenedTurns(const ListenedTurns&) = delete;
  ListenedTurns& operator=(const ListenedTurns&) = delete;

 private:
  EvalListener* listener_;
};

// One rank's part in a run, from the directory to the merged files.
class EvalRun {
 public:
  explicit EvalRun(const EvalJob& job)
      : job_(job),
        path_(run_path(job.request)),
        setup_{.model = *job.engine.model,
               .text = *job.engine.text,
               .decoder = job.engine.decoder,
               .speculation = job.drafting.speculation(job.request.parallel),
               .options = job.request.text,
               .chat = chat_context(job.request.chat),
               .system = job.request.chat.system,
               .raw = job.request.raw,
               .baseline = job.request.baseline,
               .traced = job.request.trace} {
    keep_step_times(setup_.speculation);
    if (job.drafting.wants_answer())
      setup_.learn = [&job](const auto& prompt, const auto& answer) { job.drafting.learn(prompt, answer); };
  }

  EvalOutcome run() {
    const Json manifest =
        new_manifest({job_.request, job_.data, job_.engine, job_.drafting, job_.place, setup_.chat.date_iso});
    if (!job_.request.resume && leads()) read_baseline(manifest);  // while there is no directory yet
    if (job_.watch == nullptr) watch_.emplace(path_ / "ranks", job_.place.world, job_.request.rank_timeout);
    const std::optional<RunFolder> folder = open_folder(manifest);
    if (!folder) return {};
    if (folder->finished()) {
      EvalOutcome outcome = outcome_of(read_finished_turns(path_), folder->manifest().value("ranks", Json()));
      if (leads()) write_receipts(*folder, outcome.turns);
      return outcome;
    }
    if (job_.request.resume && leads()) folder->check_retired(job_.place.world);
    RankFolder rank(folder->rank_path(job_.place.rank), job_.place, job_.request.resume,
                    rank_start(job_.engine.threads));
    if (job_.request.resume && leads()) note_resume(*folder);
    if (!answer(*folder, rank)) return {.answered = static_cast<std::int64_t>(folder->turns().size())};
    if (!leads()) return {.finished = true, .answered = static_cast<std::int64_t>(folder->turns().size())};
    return merge(*folder, watch_ ? *watch_ : *job_.watch);
  }

 private:
  bool leads() const { return job_.place.rank == 0; }

  // Nothing when it was cancelled.
  std::optional<RunFolder> open_folder(const Json& manifest) const {
    if (job_.request.resume) return leads() ? RunFolder::open(path_, manifest) : RunFolder::follow(path_, manifest);
    if (leads()) return RunFolder::create(path_, manifest);
    return RunFolder::join(path_, manifest, job_.request.rank_timeout, job_.cancelled);
  }

  void note_resume(const RunFolder& folder) const {
    Json manifest = folder.manifest();
    note_resumed(manifest, job_.place, job_.engine.threads);
    folder.write_manifest(manifest);
  }

  // What another rank waits for is said in its place, whatever happens.
  bool answer(const RunFolder& folder, RankFolder& rank) {
    try {
      ShareSpeed speed;
      const bool done = answer_turns(folder, rank, speed);
      done ? rank.end(rank_end(speed)) : rank.fail("interrupted");
      return done;
    } catch (const std::exception& error) {
      try {
        rank.fail(error.what());
        repeat_failure(rank);
      } catch (const DeviceError&) {  // the disk may be what failed
      }
      throw;
    }
  }

  // What rank 0 finds at its first look, it takes for that of an earlier launch. It looks before it signs in, so this
  // is shown once more after that.
  void repeat_failure(const RankFolder& rank) {
    if (!job_.request.resume || leads() || !watch_) return;
    watch_->await(0, kFirstLook);
    rank.show_life();
  }

  void read_baseline(const Json& manifest) {
    if (job_.request.baseline_run.empty() || shared_) return;
    setup_.shared =
        &shared_.emplace(read_shared_baseline(job_.request.baseline_run, manifest, job_.any_baseline_world));
  }

  bool answer_turns(const RunFolder& folder, RankFolder& rank, ShareSpeed& speed) {
    const Json manifest = folder.manifest();
    setup_.chat.date_iso = manifest.value("date", "");  // all ranks, and a resumed run, have the day it began
    const RecordOrigin origin = {
        manifest.value("commit", Json()).is_string() ? manifest["commit"].get<std::string>() : "",
        one_line(manifest.value("configuration", Json()))};
    FailureDumper dumper(path_ / "dumps", origin);
    setup_.dumper = &dumper;
    read_baseline(manifest);
    std::optional<TraceWriter> trace;
    if (job_.request.trace) trace.emplace(open_trace(origin, rank.path(), job_.place.rank));
    if (job_.request.trace && leads()) cut_retired_traces(origin, folder);
    const std::vector<TurnRecord> finished = folder.turns();
    check_turns(finished, job_.data, path_);
    const ShareSize size = share_of(job_.place, job_.data, finished);
    const bool shown = leads() && size.finished < size.turns && job_.listener != nullptr;
    const ListenedTurns listened(shown ? job_.listener : nullptr, size);
    return answer_share({.data = job_.data,
                         .setup = setup_,
                         .place = job_.place,
                         .parallel = job_.request.parallel,
                         .prompts = prepared(),
                         .retimed_turns = job_.request.baseline_turns,
                         .trace = trace ? &*trace : nullptr,
                         .cancelled = job_.cancelled,
                         .on_turn =
                             [&](const TurnRecord& turn) {
                               if (shown) job_.listener->answered(turn);
                             },
                         .on_complaint = [this](const std::string& line) { job_.engine.listener->remark(line); }},
                        finished, rank, &speed);
  }

  std::vector<std::vector<TokenId>> prepared() const {
    std::optional<std::filesystem::path> folder = job_.engine.places.cache;
    if (folder) *folder /= "artefacts";
    return prepare_prompts(job_.data,
                           {.text = setup_.text,
                            .chat = setup_.chat,
                            .system = setup_.system,
                            .raw = setup_.raw,
                            .identity = folder ? text_identity(job_.engine) : ""},
                           ArtefactCache(folder));
  }

  // An earlier process of this rank may have begun it, as one of another number of ranks. Turns that its journal does
  // not have are cut off: they are answered again.
  TraceWriter open_trace(const RecordOrigin& origin, const std::filesystem::path& rank_path, int rank) const {
    const std::filesystem::path file = rank_path / kTrace;
    TraceHeader header{.origin = origin, .rank = rank, .world = job_.place.world};
    const std::vector<TurnRecord> journal = read_journal(rank_path / kJournalName);
    const std::int64_t turns = std::ranges::count_if(journal, [](const TurnRecord& turn) { return !turn.error; });
    std::error_code ignored;
    if (turns == 0) std::filesystem::remove(file, ignored);  // its header may not be whole
    if (!std::filesystem::exists(file)) return TraceWriter::create(file, header);
    header.world = TraceReader(file).header().world;
    return TraceWriter::append(file, header, turns);
  }

  // Of ranks that a resumed run no longer has.
  void cut_retired_traces(const RecordOrigin& origin, const RunFolder& folder) const {
    std::error_code ignored;
    for (const int rank : folder.ranks())
      if (rank >= job_.place.world && std::filesystem::exists(folder.rank_path(rank) / kTrace, ignored))
        open_trace(origin, folder.rank_path(rank), rank);
  }

  EvalOutcome merge(const RunFolder& folder, RankWatch& watch) const {
    JournalReader journals(folder);
    const auto unfinished = [&] {
      std::set<int> ranks = absent_ranks(folder);
      ranks.merge(unfinished_ranks(journals.look(), job_.data, job_.place.world));
      return std::vector<int>(ranks.begin(), ranks.end());
    };
    if (!watch.wait(unfinished, job_.cancelled)) return {.answered = static_cast<std::int64_t>(folder.turns().size())};
    await_ends(path_ / "ranks", job_.place.world, kLastWords);
    const Json ranks = ranks_json(folder);
    EvalOutcome outcome = outcome_of(folder.turns(), ranks);
    check_turns(outcome.turns, job_.data, path_);
    write_receipts(folder, outcome.turns);
    Json manifest = folder.manifest();
    note_end(manifest, ranks);
    folder.finish(manifest, outcome.turns, outcome.summary);
    return outcome;
  }

  // Made of the turns alone, so that those of all ranks and of earlier processes have theirs.
  void write_receipts(const RunFolder& folder, const std::vector<TurnRecord>& turns) const {
    if (!job_.request.receipts) return;
    ChatContext chat = setup_.chat;
    chat.date_iso = folder.manifest().value("date", "");
    const ReceiptOrigin origin = receipt_origin(job_.engine, chat, setup_.raw);
    std::string lines;
    for (const TurnRecord& turn : turns)
      if (!turn.error)
        lines += receipt_json({.origin = origin,
                               .prompt = turn.prompt,
                               .options = setup_.options,
                               .answer = turn.tokens,
                               .finish_reason = turn.finish_reason}) +
                 "\n";
    write_whole_file(path_ / kReceipts, lines);
  }

  // Those of a new run that have not signed in: they must find it unfinished, even if there is no prompt for them.
  std::set<int> absent_ranks(const RunFolder& folder) const {
    std::set<int> absent;
    std::error_code ignored;
    for (int rank = 0; !job_.request.resume && rank < job_.place.world; ++rank)
      if (!std::filesystem::exists(folder.rank_path(rank) / kLifeName, ignored)) absent.insert(rank);
    return absent;
  }

  Json ranks_json(const RunFolder& folder) const {
    Json ranks = Json::array();
    for (int rank = 0; rank < job_.place.world; ++rank) {
      const std::filesystem::path life = folder.rank_path(rank) / kLifeName;
      std::error_code ignored;
      if (std::filesystem::exists(life, ignored)) ranks.push_back(Json::parse(read_text_file(life)));
    }
    return ranks;
  }

  static EvalOutcome outcome_of(std::vector<TurnRecord> turns, const Json& ranks) {
    EvalOutcome outcome{.finished = true, .answered = static_cast<std::int64_t>(turns.size())};
    outcome.summary = summarize(turns);
    outcome.summary.tokens_per_second_in_all = tokens_per_second_in_all(ranks);
    outcome.turns = std::move(turns);
    return outcome;
  }

  const EvalJob& job_;
  std::filesystem::path path_;
  EvalSetup setup_;
  std::optional<SharedBaseline> shared_;  // what setup_.shared points to
  std::optional<RankWatch> watch_;        // of a run that is no suite's
};

}  // namespace

void check_evaluation(const EvalRequest& request, const DraftPlan& plan) {
  check_options(request.text);
  const bool shared = !request.baseline_run.empty();
  if (request.text.generate.logprobs >= 0) throw InputError("--logprobs: not with eval run, which does not keep them");
  if (request.baseline && shared) throw InputError("--baseline and --baseline-run: expected only one of them");
  if ((request.baseline || shared) && plan.plain())
    input_error("{}: there is nothing to compare without a drafter, got --draft none",
                shared ? "--baseline-run" : "--baseline");
  if (request.receipts) check_receipts(request.text);
  if (request.parallel < 1) input_error("--parallel: expected 1 or more, got {}", request.parallel);
  if (request.baseline_turns > 0 && !shared)
    throw InputError("--baseline-turns: only with --baseline-run, whose turns it times again");
  if (request.raw && !(request.chat.system.empty() && request.chat.variables.empty()))
    throw InputError("--system, --template-variables: not with --raw, which uses no chat template");
}

void check_run_place(const EvalRequest& request, const RankPlace& place) {
  const std::filesystem::path path = run_path(request);
  if (!request.resume && place.rank == 0 && std::filesystem::exists(path))
    input_error("-o {}: exists already, expected a new directory, or --resume", path.string());
  if (request.resume && !std::filesystem::exists(path / "manifest.json"))
    input_error("-o {}: no manifest.json, expected the directory of a run to resume", path.string());
}

PromptSet read_eval_data(const EvalRequest& request) {
  std::vector<PromptSet> sets;
  for (const std::string& path : request.data) sets.push_back(read_prompt_set(path));
  PromptSet data = join(std::move(sets));
  keep_prompts(data, request.skip, request.limit.value_or(INT64_MAX));
  for (const EvalPrompt& prompt : data.prompts)
    if (request.raw && prompt.turns.size() > 1)
      input_error("{}: {} turns, expected one with --raw, which has no history", data.place(prompt),
                  prompt.turns.size());
  return data;
}

void share_threads(const RankPlace& place, EngineOptions& options) {
  if (options.threads == 0 && place.world > 1) options.threads = threads_of_rank(place, host_cores(), usable_cores());
}

EvalOutcome run_evaluation(const EvalJob& job) {
  check_run_place(job.request, job.place);
  if (job.request.receipts) check_receipts(*job.engine.device, "--receipts");
  return EvalRun(job).run();
}

}  // namespace espalier
