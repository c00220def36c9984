#include "trace/failure_dumper.h"

#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

// Behind the first line: what an exception says further is for reading, not for scripts.
std::string with_note(std::string_view message, std::string_view note) {
  const std::size_t end = std::min(message.find('\n'), message.size());
  return fmt::format("{}; {}{}", message.substr(0, end), note, message.substr(end));
}

}  // namespace

FailureDumper::FailureDumper(std::filesystem::path folder, std::function<RecordOrigin()> origin)
    : folder_(std::move(folder)), origin_(std::move(origin)) {}

FailureDumper::FailureDumper(std::filesystem::path folder, RecordOrigin origin)
    : FailureDumper(std::move(folder), [known = std::move(origin)] { return known; }) {}

std::filesystem::path FailureDumper::write(const FailureDump& dump) const {
  return write_failure_dump(dump, origin_(), folder_);
}

// A dump that cannot be written is told too, and does not hide what went wrong first.
FailureObserver FailureDumper::observer(const PromptId& prompt, std::int64_t turn) {
  return [this, prompt, turn](const AnswerFailure& failure) {
    try {
      FailureDump dump = dump_of(failure, std::current_exception());
      dump.prompt_id = prompt;
      dump.turn = turn;
      note_ = "dump: " + write(dump).string();
    } catch (const std::exception& error) {
      note_ = fmt::format("no dump: {}", error.what());
    }
  };
}

void FailureDumper::throw_with_note(std::exception_ptr error) const {
  if (note_.empty()) std::rethrow_exception(error);
  try {
    std::rethrow_exception(error);
  } catch (const InputError& known) {
    throw InputError(with_note(known.what(), note_));
  } catch (const DeviceError& known) {
    throw DeviceError(with_note(known.what(), note_));
  } catch (const std::logic_error& known) {
    throw std::logic_error(with_note(known.what(), note_));
  } catch (const std::bad_alloc&) {
    throw DeviceError(with_note("out of memory", note_));
  } catch (const std::exception& known) {
    throw std::runtime_error(with_note(known.what(), note_));
  }
}

}  // namespace espalier
