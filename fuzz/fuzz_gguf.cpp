// Any bytes, read as a GGUF file: opens with consistent tensors inside the bytes, or throws InputError in one line.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"
#include "check_tensor.h"
#include "format/gguf_file.h"
#include "require.h"

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
