// What an application keeps of its answers besides the text: a trace where one was asked for, and a dump of an
// answer that failed (docs/traces.md). One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/answering.h"
#include "trace/failure_dumper.h"
#include "trace/trace_file.h"
#include "trace/turn_recorder.h"

namespace espalier {

struct RecordOptions {
  std::string trace = {};  // empty: none
  Existing existing = Existing::refuse;
  std::string dump_folder = {};  // empty: the current one
};
// What can be told before a model is loaded.
void check_record_options(const RecordOptions& options);

class AnswerRecords {
 public:
  // How a turn gets into the trace is the application's business.
  using Keeper = std::function<void(const TracedTurn&)>;

  // prompt: the id of all its turns. `origin` is asked when a dump is written.
  AnswerRecords(const RecordOptions& options, PromptId prompt, std::function<RecordOrigin()> origin, Keeper keep);

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
