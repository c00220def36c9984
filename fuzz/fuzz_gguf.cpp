// Any bytes, read as a GGUF file: opens with consistent tensors inside the bytes, or throws InputError in one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "base/error.h"
#include "format/gguf_file.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_tensor(const espalier::TensorInfo& tensor, std::span<const std::byte> file) {
  require(tensor.bytes.data() >= file.data());
  require(tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
  std::int64_t size = espalier::row_bytes(tensor.type, tensor.shape.back());
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) size *= tensor.shape[i];
  require(static_cast<std::size_t>(size) == tensor.bytes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  try {
    for (const espalier::TensorInfo& tensor : espalier::parse_gguf(file, "fuzz.gguf").tensors)
      check_tensor(tensor, file);
  } catch (const espalier::InputError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
