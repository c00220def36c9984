// What generate and chat keep of their answers besides the text: a trace where one was asked for, and a dump of an
// answer that failed (docs/traces.md). One thread at a time.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "cli/answering.h"
#include "trace/failure_dumper.h"
#include "trace/trace_file.h"
#include "trace/turn_recorder.h"

namespace espalier {

struct RecordFlags {
  std::string trace = {};        // empty: none
  std::string dump_folder = {};  // empty: the current one
};
void add_record_flags(CLI::App& app, RecordFlags& flags);
// What can be told before a model is loaded.
void check_record_flags(const RecordFlags& flags);

class AnswerRecords {
 public:
  // How a turn gets into the trace is the command's business.
  using Keeper = std::function<void(const TracedTurn&)>;

  // prompt: the id of all its turns. `origin` is asked when a dump is written.
  AnswerRecords(const RecordFlags& flags, PromptId prompt, std::function<RecordOrigin()> origin, Keeper keep);

  // The next turn, answered and recorded.
  TextResult answer(Answering& answering, const std::string& prompt, bool raw, const TextOptions& options,
                    TextEvents events);

 private:
  bool traces_;
  PromptId prompt_;
  Keeper keep_;
  FailureDumper dumper_;
  TurnRecorder recorder_;
  std::int64_t turns_ = 0;
};

}  // namespace espalier
