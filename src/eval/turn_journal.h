// The finished turns of one process, a line each, on disk as soon as they are there. A process that is killed at any
// point leaves a journal whose whole lines count; it loses at most the turn in flight. One writer at a time: the second
// is refused. Movable, not copyable.
#pragma once

#include <filesystem>
#include <vector>

#include "eval/turn_record.h"

namespace espalier {

class TurnJournal {
 public:
  // Makes the file, or goes on behind its last whole line, whatever the lines say. Throws InputError when another
  // process is writing to it, DeviceError when the disk does not take it.
  explicit TurnJournal(const std::filesystem::path& path);
  ~TurnJournal();
  TurnJournal(TurnJournal&& other) noexcept;
  TurnJournal& operator=(TurnJournal&&) = delete;

  // The turn is on disk when this returns. Throws DeviceError, and then the journal is as it was.
  void add(const TurnRecord& turn);

 private:
  void lock();

  std::filesystem::path path_;
  int file_ = -1;
};

// The turns of the whole lines; none where there is no such file. Throws InputError "path: turn N: ...".
std::vector<TurnRecord> read_journal(const std::filesystem::path& path);

// As a line of JSON, without its end.
std::string journal_line(const TurnRecord& turn);

}  // namespace espalier
