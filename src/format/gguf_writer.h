// Writes a GGUF v3 file tensor by tensor, without ever holding more than what is handed in: first the metadata and the
// list of tensors, then the data of each in that order, into a file as output_file.h has it: it has its name from
// finish() on. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/output_file.h"

namespace espalier {

// An entry of the metadata section as a file spells it: copying `bytes` changes nothing, not even the width of an
// integer, which GgufMetadata does not keep.
struct GgufEntry {
  std::string key = {};
  std::string bytes = {};  // key, type and value
};

// The entries of a GGUF file, in file order. Requires bytes that parse_gguf accepts.
std::vector<GgufEntry> read_gguf_entries(std::span<const std::byte> bytes, std::string_view path);

struct GgufTensorPlan {
  std::string name = {};
  DType type = DType::f32;
  std::vector<std::int64_t> shape = {};  // outermost first

  std::uint64_t bytes() const;
};

struct GgufPlan {
  std::vector<GgufEntry> metadata = {};
  std::vector<GgufTensorPlan> tensors = {};
  std::uint64_t alignment = 32;  // what general.alignment says, where the metadata has it
};

class GgufWriter {
 public:
  // Opens the file and writes everything before the data. All methods throw DeviceError with the path and the system's
  // reason when the disk does not take it.
  GgufWriter(const std::filesystem::path& path, const GgufPlan& plan, Existing existing = Existing::refuse);

  // All data of the next tensor of the plan.
  void tensor(std::span<const std::byte> data);
  // After the last tensor: the file is on disk and takes its name.
  void finish();

  std::uint64_t bytes_written() const { return written_; }

 private:
  void write(std::string_view bytes);
  void pad();

  OutputFile file_;
  std::vector<std::uint64_t> sizes_;  // of the tensors
  std::uint64_t alignment_;
  std::size_t next_ = 0;
  std::uint64_t written_ = 0;
};

}  // namespace espalier
