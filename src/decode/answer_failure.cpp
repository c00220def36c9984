#include "decode/answer_failure.h"

namespace espalier {
namespace {

void tell_failure(const Answer& answer, const TeacherSteps& teacher) {
  const GenerateRequest& request = answer.request;
  if (!request.events.on_failure || answer.callers_failure) return;
  if (!answer.sequence) return;  // not even the prompt found its memory
  const auto path = std::span<const std::int32_t>(answer.path);
  const bool has_tree = answer.stage > AnswerStage::draft;
  const bool is_open = answer.branch && answer.branch->open();
  const std::int64_t length = teacher.cache().length(*answer.sequence);
  request.events.on_failure({.stage = answer.stage,
                             .round = answer.result.rounds(),
                             .prompt = request.prompt,
                             .options = request.options,
                             .answered = path.first(answer.round_path).subspan(request.prompt.size()),
                             .tree = has_tree ? &*answer.tree : nullptr,
                             .drawn = path.subspan(answer.round_path),
                             .tables = has_tree ? teacher.tables() : nullptr,
                             .first_row = answer.first_row,
                             .cache = teacher.cache(),
                             .table = is_open ? answer.branch->id() : *answer.sequence,
                             .committed = length,
                             .positions = length + (is_open ? answer.branch->rows() : 0),
                             .form = teacher.form()});
}

}  // namespace

void fail(Answer& answer, const TeacherSteps& teacher) {
  if (answer.failure) return;
  answer.failure = std::current_exception();
  tell_failure(answer, teacher);
}

}  // namespace espalier
