// Writes a dump when an answer fails, and lets the error say where it is. One thread at a time.
//
//   const TextResult result = dumper.guard(id, turn, [&](const FailureObserver& on_failure) {
//     return session.ask(prompt, options, {.on_failure = on_failure});
//   });
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>

#include "trace/failure_dump.h"

namespace espalier {

class FailureDumper {
 public:
  // Dumps go to `folder`, which is made when the first is written; `origin` is asked only then.
  FailureDumper(std::filesystem::path folder, std::function<RecordOrigin()> origin);
  FailureDumper(std::filesystem::path folder, RecordOrigin origin);

  // Calls `answer` with what it shall hand to the decoder. An exception that left a dump goes on as one of the same
  // kind, with "dump: PATH" behind the first line of its message; other exceptions go on as they are.
  template <typename Function>
  auto guard(const PromptId& prompt, std::int64_t turn, const Function& answer) {
    note_.clear();
    try {
      return answer(observer(prompt, turn));
    } catch (...) {
      throw_with_note(std::current_exception());
    }
  }

  // Of a mismatch; the path.
  std::filesystem::path write(const FailureDump& dump) const;

 private:
  FailureObserver observer(const PromptId& prompt, std::int64_t turn);
  [[noreturn]] void throw_with_note(std::exception_ptr error) const;

  std::filesystem::path folder_;
  std::function<RecordOrigin()> origin_;
  std::string note_;  // about the last dump
};

}  // namespace espalier
