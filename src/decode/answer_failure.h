// Failures of answers: those who listen are told (AnswerFailure in request.h), and the answer ends with what was
// thrown.
#pragma once

#include <span>

#include "decode/answer.h"
#include "decode/teacher_steps.h"

namespace espalier {

// Inside a handler. What the caller's own functions throw is not told.
void fail(Answer& answer, const TeacherSteps& teacher);

// Does something for these answers; if that fails, so do they. Tells whether it did not.
template <typename Function>
bool guarded(std::span<Answer* const> answers, const TeacherSteps& teacher, const Function& function) {
  try {
    function();
    return true;
  } catch (...) {
    for (Answer* answer : answers) fail(*answer, teacher);
    return false;
  }
}

template <typename Function>
bool guarded(Answer& answer, const TeacherSteps& teacher, const Function& function) {
  Answer* const one = &answer;
  return guarded(std::span(&one, 1), teacher, function);
}

}  // namespace espalier
