// `espalier eval run --suite`: experiments one after another into one directory (docs/experiments.md).
//
//   DIR/suite.json                     which suite, with which options, and how far it is
//   DIR/EXPERIMENT/SETTING/            a run each, as `eval run` leaves it
//   DIR/EXPERIMENT/result.json         what the experiment found
//   DIR/baselines/PROMPTS-TOKENS/      answers without speculation that sweeps share
//   DIR/ranks/NNNN/                    of several processes: each of them
//
// A process that ends at any point leaves a directory that --resume goes on with. Every rank of a launch calls this
// with the same flags.
#pragma once

#include "cli/eval_suite_flags.h"

namespace espalier {

// The exit code: 1 when a turn differs, when an experiment failed, or when it was interrupted. Of other ranks than the
// first it is 0 when all results are there, whatever they say.
int run_suite(EvalFlags base, const SuiteFlags& flags);

}  // namespace espalier
