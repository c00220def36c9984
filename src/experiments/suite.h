// A suite: experiments one after another into one directory (docs/experiments.md).
//
//   DIR/suite.json                     which suite, with which options, and how far it is
//   DIR/EXPERIMENT/SETTING/            a run each, as `eval run` leaves it
//   DIR/EXPERIMENT/result.json         what the experiment found
//   DIR/baselines/PROMPTS-TOKENS/      answers without speculation that sweeps share
//   DIR/ranks/NNNN/                    of several processes: each of them
//
// A process that ends at any point leaves a directory that can be gone on with. Every rank of a launch calls this with
// the same request.
#pragma once

#include <functional>
#include <string>

#include "eval/evaluation.h"
#include "experiments/suite_plan.h"

namespace espalier {

// Hears how far a suite is, and how far each of its runs.
class SuiteListener : public EvalListener {
 public:
  // A run or an experiment begins; about so many seconds are left of the suite.
  virtual void begin_part(const std::string& what, double seconds_left) = 0;
};

// What can be told before a model is loaded. Throws InputError: a sandbox that the system does not allow, a directory
// that is there already, or none to resume.
void check_suite(const EvalRequest& base, const SuiteRequest& suite, const RankPlace& place);

struct SuiteJob {
  const EvalRequest& base;
  const SuiteRequest& suite;
  const SuitePlan& plan;  // of both
  OpenEngine& engine;     // opened with base.engine; its modes change while settings are measured
  RankPlace place = {};
  std::function<bool()> cancelled = {};
  SuiteListener& listener;
};

struct SuiteOutcome {
  bool finished = false;  // false: it was cancelled
  bool holds = true;      // no turn differs, no experiment failed; other ranks than the first cannot tell
  std::string text = {};  // of rank 0: what the experiments found
};
SuiteOutcome run_suite(const SuiteJob& job);

}  // namespace espalier
