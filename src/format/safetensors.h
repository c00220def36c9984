// Safetensors files and Hugging Face model directories, mapped read-only. The same distrust as in gguf.h.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "format/tensor_info.h"

namespace espalier {

// One or several safetensors files seen as one set of tensors: F32, F16, BF16, I64, I32, U8 and BOOL (read as u8).
// Immutable after construction. The format does not promise that the bytes of a tensor are aligned to its type.
class Safetensors final : public TensorSource {
 public:
  // A single .safetensors file; or a directory with model.safetensors, or with model.safetensors.index.json and its
  // shards (every name of the index must be in the shard it names, and every name of a shard in the index; a shard may
  // not hold a name twice).
  explicit Safetensors(const std::filesystem::path& path);

  const TensorInfo* find(std::string_view name) const override;
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  std::string_view description() const override { return description_; }
  void release(const TensorInfo& info) const override {
    for (const MappedFile& file : files_) file.release(info.bytes);
  }

 private:
  void open_sharded(const std::filesystem::path& index);

  std::string description_;
  std::vector<MappedFile> files_;
  std::vector<TensorInfo> tensors_;  // sorted by name
};

// A JSON file of a model directory (config.json, tokenizer_config.json, ...). Throws InputError with path, line and
// column on a syntax error, on duplicate keys, and when nested deeper than 64 levels (json_text.h).
nlohmann::json read_json_file(const std::filesystem::path& path);

}  // namespace espalier
