// Failures of an answer, told to those who listen (AnswerFailure in request.h) while the exception goes on.
#pragma once

#include <span>

#include "decode/answer.h"
#include "decode/teacher_steps.h"

namespace espalier {

// Inside a handler. What the caller's own functions throw is not told.
void tell_failure(const Answer& answer, const TeacherSteps& teacher);

// Does something for these answers; if that fails, those who listen are told.
template <typename Function>
auto observed(std::span<Answer* const> answers, const TeacherSteps& teacher, const Function& function) {
  try {
    return function();
  } catch (...) {
    for (const Answer* answer : answers) tell_failure(*answer, teacher);
    throw;
  }
}

template <typename Function>
auto observed(Answer& answer, const TeacherSteps& teacher, const Function& function) {
  Answer* const one = &answer;
  return observed(std::span(&one, 1), teacher, function);
}

}  // namespace espalier
