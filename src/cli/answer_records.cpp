#include "cli/answer_records.h"

#include "base/error.h"

namespace espalier {

void add_record_flags(CLI::App& app, RecordFlags& flags) {
  app.add_option("--trace", flags.trace, "write every round to this file: trees, choices, times (docs/traces.md)")
      ->type_name("FILE");
  app.add_option("--dump-dir", flags.dump_folder,
                 "where to leave a dump of an answer that fails, for espalier replay; without it here")
      ->type_name("DIR");
}

void check_record_flags(const RecordFlags& flags) {
  if (flags.trace.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(flags.trace).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    input_error("--trace {}: no such directory as {}", flags.trace, folder.string());
}

AnswerRecords::AnswerRecords(const RecordFlags& flags, PromptId prompt, std::function<RecordOrigin()> origin,
                             Keeper keep)
    : traces_(!flags.trace.empty()),
      prompt_(std::move(prompt)),
      keep_(std::move(keep)),
      dumper_(flags.dump_folder.empty() ? "." : flags.dump_folder, std::move(origin)) {}

TextResult AnswerRecords::answer(Answering& answering, const std::string& prompt, bool raw, const TextOptions& options,
                                 TextEvents events) {
  recorder_.clear();
  ++turns_;
  if (traces_) events.on_round = recorder_.observer();
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
