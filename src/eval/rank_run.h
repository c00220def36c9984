// The share of a run that one rank answers: each turn is on disk, journal and trace, before the next one begins. Of
// prompts that are answered in company, turns wait until those of earlier prompts are on disk. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "eval/journal_reader.h"
#include "eval/launcher.h"
#include "eval/manifest.h"
#include "eval/prompt_runner.h"
#include "eval/prompt_set.h"
#include "eval/rank_folder.h"
#include "trace/trace_file.h"

namespace espalier {

struct RankRun {
  const PromptSet& data;
  const EvalSetup& setup;
  const RankPlace& place;
  int parallel = 1;                                // prompts at once; more than 1: in company (company.h)
  std::vector<std::vector<TokenId>> prompts = {};  // the ids of first turns, by record; none: made turn by turn
  std::int64_t retimed_turns = 0;                  // of the data, from its beginning (TurnRequest::retimed)
  TraceWriter* trace = nullptr;
  std::function<bool()> cancelled = {};
  std::function<void(const TurnRecord&)> on_turn = {};  // it is on disk
  // Which turn differs where, and its dump; or why one could not be answered. It is on disk too.
  std::function<void(const std::string& line)> on_complaint = {};
};

// Answers what is left: `finished` are turns of this run that are on disk already, by whatever rank. A prompt that was
// interrupted between two turns is begun again, for its history and for what its drafters had learned; its finished
// turns must give the same tokens once more. A turn that cannot be answered is kept with its `error`, and so are those
// that it leads to; the next prompt follows. False when it was cancelled. Throws InputError "path:line: turn N: ..."
// where no prompt at all can be answered, or a shared baseline does not fit. Of prompts in company, what was finished
// is on disk then too.
bool answer_share(const RankRun& run, const std::vector<TurnRecord>& finished, RankFolder& folder,
                  ShareSpeed* speed = nullptr);

// Throws InputError unless all are turns of the data; `where` is the directory of the run.
void check_turns(const std::vector<TurnRecord>& turns, const PromptSet& data, const std::filesystem::path& where);

// Turns of the rank's prompts, and how many of them are among these.
struct ShareSize {
  std::int64_t turns = 0;
  std::int64_t finished = 0;
};
ShareSize share_of(const RankPlace& place, const PromptSet& data, const std::vector<TurnRecord>& turns);

// The ranks whose prompts have turns that are not among these.
std::set<int> unfinished_ranks(const std::set<TurnPlace>& turns, const PromptSet& data, int world);

}  // namespace espalier
