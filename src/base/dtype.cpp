#include "base/dtype.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"

namespace espalier {
namespace {

// In the order of the enumeration. Block layouts: docs/formats.md.
constexpr std::array<DTypeTraits, 15> kTraits = {{{"f32", 1, 4},
                                                  {"f16", 1, 2},
                                                  {"bf16", 1, 2},
                                                  {"q4_0", 32, 18},
                                                  {"q4_1", 32, 20},
                                                  {"q5_0", 32, 22},
                                                  {"q5_1", 32, 24},
                                                  {"q8_0", 32, 34},
                                                  {"q4_k", 256, 144},
                                                  {"q5_k", 256, 176},
                                                  {"q6_k", 256, 210},
                                                  {"i32", 1, 4},
                                                  {"i64", 1, 8},
                                                  {"u8", 1, 1},
                                                  {"f64", 1, 8}}};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

const DTypeTraits& traits(DType type) {
  return kTraits[static_cast<std::size_t>(type)];
}

std::int64_t row_bytes(DType type, std::int64_t elements) {
  const DTypeTraits& t = traits(type);
  check(elements >= 0 && elements % t.block_elements == 0, "row of {} elements is not a whole number of {} blocks",
        elements, t.name);
  return elements / t.block_elements * t.block_bytes;
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (std::size_t i = 0; i < kTraits.size(); ++i)
    if (equal_ignoring_case(text, kTraits[i].name)) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace espalier
