// Any bytes, read as a safetensors file and as the JSON of an index: opens with consistent tensors inside the bytes, or
// throws InputError in one line.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/json_text.h"
#include "check_tensor.h"
#include "format/safetensors_file.h"
#include "require.h"

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
