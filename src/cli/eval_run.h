// One configuration answered into the directory of a run, on a model that is already loaded. `eval run` does it once, a
// suite for every setting:
//
//   const RankPlace place = place_from(process_environment);
//   share_threads(place, flags.engine);                 // before the engine is opened
//   const Engine engine = open_engine(flags.engine);
//   for each setting: fill flags (out, speculation, ...), plan = plan_speculation(...), check_eval_flags(flags, plan);
//     Drafting drafting(flags.speculation, plan, engine, flags.sampling.seed);
//     const EvalOutcome outcome =
//         run_evaluation({.flags = flags, .data = data, .engine = engine, .drafting = drafting, .place = place});
//
// With a baseline that several runs share, one run with `--draft none` comes first, and the others name its directory
// in `flags.baseline_run`; `flags.baseline_turns` says how many turns are timed once more beside them. Every rank of a
// launch calls this for the same runs in the same order: rank 0 returns when the run is merged, the others when their
// share is done.
#pragma once

#include <functional>
#include <vector>

#include "cli/eval_manifest.h"
#include "eval/summary.h"

namespace espalier {

class RankWatch;

struct EvalJob {
  const EvalFlags& flags;  // `data`, `skip` and `limit` are only recorded
  const PromptSet& data;   // what is answered
  const Engine& engine;    // opened with flags.engine
  Drafting& drafting;      // made of flags.speculation
  RankPlace place = {};
  std::function<bool()> cancelled = {};
  RankWatch* watch = nullptr;  // over the ranks of the suite that this is a run of; null: the run has its own
  // Whether another number of ranks may have answered the shared baseline: a suite that is resumed says what that
  // means.
  bool any_baseline_world = false;
};

struct EvalOutcome {
  bool finished = false;               // false: it was cancelled; `--resume` goes on
  std::int64_t answered = 0;           // turns that are on disk, of all ranks
  std::vector<TurnRecord> turns = {};  // of rank 0: all of them, by record and turn
  Summary summary = {};                // likewise

  // Every turn was answered, and none differs from its baseline.
  bool holds() const { return summary.failed == 0 && !(summary.compared && summary.compared->difference); }
};

// Throws InputError where flags contradict each other; before a model is loaded.
void check_eval_flags(const EvalFlags& flags, const DraftPlan& plan);

// Throws InputError when flags.out is there already, or with flags.resume is no run's directory. Only rank 0 can tell
// the first: the others may find what it has just created.
void check_run_place(const EvalFlags& flags, const RankPlace& place);

// All files of --data, and of those what --skip and --limit leave.
PromptSet read_eval_data(const EvalFlags& flags);

// Ranks on one host share its cores, unless a number of threads was asked for.
void share_threads(const RankPlace& place, EngineOptions& options);

// Into flags.out, which must be new, or with flags.resume that of the same run: a finished one is only read. A turn
// that differs from its baseline, or that fails while it is answered, leaves a dump in DIR/dumps; standard error names
// these and turns that cannot be answered at all, which are kept as failed. Throws what else goes wrong with turns, and
// DeviceError when ranks are lost.
EvalOutcome run_evaluation(const EvalJob& job);

}  // namespace espalier
