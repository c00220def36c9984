// Any bytes, read as a safetensors file and as the JSON of an index: opens with consistent tensors inside the bytes, or
// throws InputError in one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/json_text.h"
#include "format/safetensors_file.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_tensor(const espalier::TensorInfo& tensor, std::span<const std::byte> file) {
  require(tensor.bytes.data() >= file.data());
  require(tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
  std::int64_t size = espalier::row_bytes(tensor.type, 1);
  for (std::int64_t dimension : tensor.shape) size *= dimension;
  require(static_cast<std::size_t>(size) == tensor.bytes.size());
}

void refuse_in_one_line(const std::function<void()>& read) {
  try {
    read();
  } catch (const espalier::InputError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refuse_in_one_line([&] {
    for (const espalier::TensorInfo& tensor : espalier::parse_safetensors(file, "fuzz.safetensors"))
      check_tensor(tensor, file);
  });
  refuse_in_one_line([&] { espalier::parse_json(text, "fuzz.json"); });
  return 0;
}
