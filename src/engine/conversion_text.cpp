#include "engine/conversion_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace espalier {
namespace {

struct ConvertedTensors {
  std::int64_t tensors = 0;
  std::uint64_t before = 0;
  std::uint64_t after = 0;

  ConvertedTensors& operator+=(const ConvertedTensors& other) {
    tensors += other.tensors;
    before += other.before;
    after += other.after;
    return *this;
  }
};

std::string conversion_label(const TensorConversion& conversion) {
  const std::string_view old = name(conversion.from->type);
  if (conversion.kept()) return fmt::format("{} kept", old);
  return fmt::format("{} -> {}{}", old, name(conversion.to), conversion.odd_rows ? ", rows are no multiple of 32" : "");
}

std::string conversion_row(const std::string& label, const ConvertedTensors& sum) {
  return fmt::format("{:<42} {:>7} {:>9.2f} MB {:>9.2f} MB\n", label, sum.tensors,
                     static_cast<double>(sum.before) / 1e6, static_cast<double>(sum.after) / 1e6);
}

bool loses_twice(const TensorConversion& conversion) {
  return is_block_quantised(conversion.from->type) && !conversion.kept();
}

}  // namespace

std::string conversion_lines(const std::vector<TensorConversion>& conversions) {
  std::string text;
  for (const TensorConversion& conversion : conversions)
    text +=
        fmt::format("{:<42} {:>5} -> {}\n", conversion.from->name, name(conversion.from->type), name(conversion.to));
  return text;
}

std::string conversion_table(const std::vector<TensorConversion>& conversions) {
  std::map<std::string, ConvertedTensors> sums;
  ConvertedTensors all;
  for (const TensorConversion& conversion : conversions) {
    const ConvertedTensors one{1, conversion.from->bytes.size(), conversion.bytes()};
    sums[conversion_label(conversion)] += one;
    all += one;
  }
  std::string text = fmt::format("{:<42} {:>7} {:>12} {:>12}\n", "", "tensors", "before", "after");
  for (const auto& [label, sum] : sums) text += conversion_row(label, sum);
  text += conversion_row("all", all);
  if (std::ranges::any_of(conversions, loses_twice))
    text += "note: what a block format has lost does not come back; quantise from f16 or f32 for best results\n";
  return text;
}

}  // namespace espalier
