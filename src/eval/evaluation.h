// One configuration answered into the directory of a run, on a model that is already loaded. `eval run` does it once, a
// suite for every setting:
//
//   share_threads(place, request.engine);                 // before the engine is opened
//   const OpenEngine engine = open_engine(request.engine);
//   for each setting: fill request (out, drafting, ...), plan = plan_drafting(...), check_evaluation(request, plan);
//     Drafting drafting(plan, engine, request.text.generate.seed);
//     const EvalOutcome outcome =
//         run_evaluation({.request = request, .data = data, .engine = engine, .drafting = drafting, .place = place});
//
// With a baseline that several runs share, one run with `--draft none` comes first, and the others name its directory
// in `request.baseline_run`; `request.baseline_turns` says how many turns are timed once more beside them. Every rank
// of a launch calls this for the same runs in the same order: rank 0 returns when the run is merged, the others when
// their share is done.
#pragma once

#include <functional>
#include <vector>

#include "eval/manifest.h"
#include "eval/summary.h"

namespace espalier {

class RankWatch;

// Hears how far the share of rank 0 is.
class EvalListener {
 public:
  virtual ~EvalListener() = default;
  // `finished` of the turns were answered by an earlier process.
  virtual void begin(std::int64_t turns, std::int64_t finished) = 0;
  virtual void answered(const TurnRecord& turn) = 0;
  virtual void end() = 0;  // all are answered, or it was cancelled, or something failed
};

struct EvalJob {
  const EvalRequest& request;  // `data`, `skip` and `limit` are only recorded
  const PromptSet& data;       // what is answered
  const OpenEngine& engine;    // opened with request.engine
  Drafting& drafting;          // made of request.drafting
  RankPlace place = {};
  std::function<bool()> cancelled = {};
  RankWatch* watch = nullptr;  // over the ranks of the suite that this is a run of; null: the run has its own
  // Whether another number of ranks may have answered the shared baseline: a suite that is resumed says what that
  // means.
  bool any_baseline_world = false;
  EvalListener* listener = nullptr;  // null: nobody
};

struct EvalOutcome {
  bool finished = false;               // false: it was cancelled; `--resume` goes on
  std::int64_t answered = 0;           // turns that are on disk, of all ranks
  std::vector<TurnRecord> turns = {};  // of rank 0: all of them, by record and turn
  Summary summary = {};                // likewise

  // Every turn was answered, and none differs from its baseline.
  bool holds() const { return summary.failed == 0 && !(summary.compared && summary.compared->difference); }
};

// Throws InputError where the request contradicts itself; before a model is loaded.
void check_evaluation(const EvalRequest& request, const DraftPlan& plan);

// Throws InputError when request.out is there already, or with request.resume is no run's directory. Only rank 0 can
// tell the first: the others may find what it has just created.
void check_run_place(const EvalRequest& request, const RankPlace& place);

// All files of --data, and of those what --skip and --limit leave.
PromptSet read_eval_data(const EvalRequest& request);

// Ranks on one host share its cores, unless a number of threads was asked for.
void share_threads(const RankPlace& place, EngineOptions& options);

// Into request.out, which must be new, or with request.resume that of the same run: a finished one is only read. A turn
// that differs from its baseline, or that fails while it is answered, leaves a dump in DIR/dumps; the engine's listener
// hears of these and of turns that cannot be answered at all, which are kept as failed. Throws what else goes wrong
// with turns, and DeviceError when ranks are lost.
EvalOutcome run_evaluation(const EvalJob& job);

}  // namespace espalier
