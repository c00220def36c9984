#include "engine/answer_records.h"

#include "base/error.h"

namespace espalier {
namespace {

RoundObserver both(RoundObserver listener, RoundObserver recorder) {
  if (!listener) return recorder;
  return [=](const Round& round) {
    recorder(round);
    listener(round);
  };
}

}  // namespace

void check_record_options(const RecordOptions& options) {
  if (options.trace == "-") throw InputError("--trace -: expected a file, standard output has the answer");
  if (!options.trace.empty()) check_output(options.trace, options.existing);
}

AnswerRecords::AnswerRecords(const RecordOptions& options, PromptId prompt, std::function<RecordOrigin()> origin,
                             Keeper keep)
    : traces_(!options.trace.empty()),
      prompt_(std::move(prompt)),
      keep_(std::move(keep)),
      dumper_(options.dump_folder.empty() ? "." : options.dump_folder, std::move(origin)) {}

TextResult AnswerRecords::answer(Answering& answering, const std::string& prompt, bool raw, const TextOptions& options,
                                 TextEvents events) {
  recorder_.clear();
  ++turns_;
  if (traces_) events.on_round = both(std::move(events.on_round), recorder_.observer());
  TextResult result = dumper_.guard(prompt_, turns_, [&](const FailureObserver& on_failure) {
    events.on_failure = on_failure;
    return answering.answer(prompt, raw, options, events);
  });
  if (traces_)
    keep_(recorder_.take({.prompt_id = prompt_, .turn = turns_, .prompt = result.prompt}, options.generate,
                         result.generated));
  return result;
}

}  // namespace espalier
