// Traces on disk (docs/traces.md): JSON lines, compressed by zstd; the header is a frame of its own and so is every
// turn with its rounds. `zstdcat` shows them. A file that was cut, by a killed process or a full disk, can be read up
// to its last whole turn, and a writer goes on behind that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/mapped_file.h"
#include "base/output_file.h"
#include "trace/traced_turn.h"

namespace espalier {

struct TraceHeader {
  RecordOrigin origin = {};
  std::int64_t rank = 0;
  std::int64_t world = 1;

  bool operator==(const TraceHeader&) const = default;
};

// A whole trace in memory, for those who write it at once: a frame for the header, then one for each turn.
std::string trace_bytes(const TraceHeader& header);
std::string trace_bytes(const TracedTurn& turn);

// Reads turn by turn. One thread at a time.
class TraceReader {
 public:
  // Throws InputError: no trace, or one of another schema or version.
  explicit TraceReader(const std::filesystem::path& path);
  // Of bytes in memory, which must outlive the reader. `where` stands for the path in messages.
  TraceReader(std::span<const std::byte> bytes, std::string where);

  const TraceHeader& header() const { return header_; }
  // The next whole turn; nothing at the end. Throws InputError "path: turn K: ..." where one is damaged.
  std::optional<TracedTurn> next();

  std::int64_t turns() const { return turns_; }  // read so far
  // After the end: whether the file breaks off inside a turn, and where, in a line for people.
  bool truncated() const { return truncated_; }
  std::optional<std::string> truncation() const;
  // Where the turns read so far end, in bytes.
  std::int64_t bytes_read() const { return static_cast<std::int64_t>(position_); }

 private:
  void read_header();
  std::optional<std::string> next_frame(const std::string& where);

  std::optional<MappedFile> file_;
  std::span<const std::byte> bytes_;
  std::string where_;
  TraceHeader header_;
  std::size_t position_ = 0;
  std::int64_t turns_ = 0;
  bool truncated_ = false;
};

// Writes turn by turn; a turn is on disk when add() returns. One process at a time: a second writer is refused.
// Movable, not copyable.
class TraceWriter {
 public:
  // A new file, with its header on disk, as output_file.h has it. Throws InputError when there is one already that may
  // not be replaced, DeviceError when the disk does not take it.
  static TraceWriter create(const std::filesystem::path& path, const TraceHeader& header,
                            Existing existing = Existing::refuse);
  // Goes on behind the first `turns` whole turns of an earlier trace, or behind all of them where there are fewer; what
  // stands behind is cut off. Throws InputError unless its header says the same.
  static TraceWriter append(const std::filesystem::path& path, const TraceHeader& header,
                            std::int64_t turns = INT64_MAX);

  ~TraceWriter();
  TraceWriter(TraceWriter&& other) noexcept;
  TraceWriter& operator=(TraceWriter&&) = delete;

  // Throws DeviceError, and then the file is as it was.
  void add(const TracedTurn& turn);
  std::int64_t turns() const { return turns_; }  // in the file
  const std::filesystem::path& path() const { return path_; }

 private:
  // `file` is locked, and the writer's to close.
  TraceWriter(std::filesystem::path path, int file) : path_(std::move(path)), file_(file) {}
  void write(std::string_view bytes);
  void cut(std::int64_t size);

  std::filesystem::path path_;
  int file_ = -1;
  bool regular_ = true;  // else a device or a FIFO, where nothing can be taken back
  std::int64_t turns_ = 0;
};

}  // namespace espalier
