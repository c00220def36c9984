#include "trace/trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/whole_file.h"
#include "trace/trace_frame.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string trace_bytes(const TraceHeader& header) {
  Json object = record_head("trace", header.origin);
  object["rank"] = header.rank;
  object["world"] = header.world;
  return compress_frame(one_line(object) + "\n");
}

std::string trace_bytes(const TracedTurn& turn) {
  std::string text;
  for (const std::string& line : to_lines(turn)) text += line + "\n";
  return compress_frame(text);
}

TraceReader::TraceReader(const std::filesystem::path& path)
    : file_(std::in_place, path), bytes_(file_->bytes()), where_(path.string()) {
  read_header();
}

TraceReader::TraceReader(std::span<const std::byte> bytes, std::string where)
    : bytes_(bytes), where_(std::move(where)) {
  read_header();
}

// The text of the frame at the current position; nothing at the end of the file, or where it breaks off.
std::optional<std::string> TraceReader::next_frame(const std::string& where) {
  const auto rest = bytes_.subspan(position_);
  if (rest.empty() || truncated_) return std::nullopt;
  const auto size = frame_size(rest, where);
  if (!size) {
    truncated_ = true;
    return std::nullopt;
  }
  std::string text = decompress_frame(rest.first(*size), where);
  position_ += *size;
  return text;
}

void TraceReader::read_header() {
  if (bytes_.empty()) input_error("{}: expected a trace, got an empty file", where_);
  const auto text = next_frame(where_);
  if (!text) input_error("{}: the file breaks off in its header, expected a trace", where_);
  const nlohmann::json object = parse_json(*text, where_);
  const JsonField record(object, where_);
  header_.origin = record_origin_from(record, "trace");
  // Once more, for the order of its fields.
  header_.origin.configuration = one_line(Json::parse(*text).at("configuration"));
  header_.rank = count_from(record.at("rank"));
  header_.world = count_from(record.at("world"), 1);
}

std::optional<TracedTurn> TraceReader::next() {
  const std::string where = fmt::format("{}: turn {}", where_, turns_ + 1);
  const auto text = next_frame(where);
  if (!text) return std::nullopt;
  TracedTurn turn = traced_turn_from(split_lines(*text), where);
  ++turns_;
  return turn;
}

std::optional<std::string> TraceReader::truncation() const {
  if (!truncated_) return std::nullopt;
  return fmt::format("{}: the file breaks off behind turn {}", where_, turns_);
}

namespace {

int open_locked(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) device_error("{}: cannot write: {}", path.string(), std::strerror(errno));
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    ::close(file);
    input_error("{}: another process is writing to this trace", path.string());
  }
  return file;
}

}  // namespace

TraceWriter::~TraceWriter() {
  if (file_ >= 0) ::close(file_);
}

TraceWriter::TraceWriter(TraceWriter&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      regular_(other.regular_),
      turns_(other.turns_) {}

TraceWriter TraceWriter::create(const std::filesystem::path& path, const TraceHeader& header, Existing existing) {
  OutputFile file(path, existing);
  file.write(trace_bytes(header));
  file.finish();
  TraceWriter writer(path, file.release());
  writer.regular_ = file.regular();
  return writer;
}

TraceWriter TraceWriter::append(const std::filesystem::path& path, const TraceHeader& header, std::int64_t turns) {
  TraceWriter writer(path, open_locked(path));
  TraceReader reader(path);
  if (reader.header() != header)
    input_error("{}: the trace of another run: its header differs from this one's", path.string());
  while (reader.turns() < turns && reader.next()) {
  }
  writer.cut(reader.bytes_read());
  writer.turns_ = reader.turns();
  return writer;
}

void TraceWriter::cut(std::int64_t size) {
  if (::ftruncate(file_, static_cast<off_t>(size)) != 0)
    device_error("{}: cannot cut: {}", path_.string(), std::strerror(errno));
}

// All of it is on disk, or none.
void TraceWriter::write(std::string_view bytes) {
  if (!regular_) return write_all(file_, bytes, path_);
  struct stat before = {};
  if (::fstat(file_, &before) != 0) device_error("{}: cannot write: {}", path_.string(), std::strerror(errno));
  try {
    write_all(file_, bytes, path_);
    if (::fdatasync(file_) != 0) device_error("{}: cannot write: {}", path_.string(), std::strerror(errno));
  } catch (...) {
    [[maybe_unused]] const int ignored = ::ftruncate(file_, before.st_size);
    throw;
  }
}

void TraceWriter::add(const TracedTurn& turn) {
  write(trace_bytes(turn));
  ++turns_;
}

}  // namespace espalier
