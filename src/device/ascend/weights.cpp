#include "device/ascend/weights.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/float16.h"
#include "device/blocks.h"

namespace espalier::ascend {
namespace {

constexpr std::int64_t kRowsAtOnce = 64;  // converted, then uploaded

std::int64_t outputs_of(std::span<const WeightPart> parts) {
  std::int64_t outputs = 0;
  for (const WeightPart& part : parts) outputs += part.outputs;
  return outputs;
}

// Numbers as the NPU has them, behind those that are there already.
void append_as(AclType type, std::span<const float> values, std::vector<std::byte>& bytes) {
  const std::size_t begin = bytes.size();
  bytes.resize(begin + values.size() * static_cast<std::size_t>(element_bytes(type)));
  if (type == AclType::f32) {
    std::memcpy(bytes.data() + begin, values.data(), values.size_bytes());
    return;
  }
  std::vector<std::uint16_t> halves;
  for (float value : values) halves.push_back(type == AclType::bf16 ? f32_to_bf16(value) : f32_to_f16(value));
  std::memcpy(bytes.data() + begin, halves.data(), halves.size() * sizeof(std::uint16_t));
}

void upload_converted(const WeightPart& part, AclType type, Staging& staging, std::byte* to) {
  const auto row = static_cast<std::size_t>(row_bytes(part.type, part.inputs));
  std::vector<float> values(static_cast<std::size_t>(part.inputs));
  std::vector<std::byte> converted;
  for (std::int64_t n = 0; n < part.outputs; ++n) {
    widen_row(part.type, part.bytes.subspan(static_cast<std::size_t>(n) * row, row), values);
    append_as(type, values, converted);
    if ((n + 1) % kRowsAtOnce != 0 && n + 1 < part.outputs) continue;
    staging.upload(converted, to);
    to += converted.size();
    converted.clear();
  }
}

}  // namespace

AclType stored_type(std::span<const WeightPart> parts, bool has_bf16) {
  const auto any = [&](DType type) { return std::ranges::find(parts, type, &WeightPart::type) != parts.end(); };
  if (any(DType::f32)) return AclType::f32;
  return any(DType::bf16) ? (has_bf16 ? AclType::bf16 : AclType::f32) : AclType::f16;
}

AscendWeight::AscendWeight(std::span<const WeightPart> parts, const std::shared_ptr<Card>& card, Staging& staging)
    : Weight(outputs_of(parts), parts[0].inputs),
      type_(stored_type(parts, card->chip().has_bf16)),
      memory_(card, static_cast<std::size_t>(outputs() * inputs() * element_bytes(type_)), "a weight") {
  std::byte* to = memory_.data();
  for (const WeightPart& part : parts) {
    if (is_float(part.type) && acl_type(part.type) == type_) {
      staging.upload(part.bytes, to);
    } else {
      upload_converted(part, type_, staging, to);
    }
    to += part.outputs * part.inputs * element_bytes(type_);
  }
}

Layout AscendWeight::rows() const {
  return {memory_.data(), type_, {outputs(), inputs()}};
}

Layout AscendWeight::transposed() const {
  return {memory_.data(), type_, {inputs(), outputs()}, {1, inputs()}};
}

}  // namespace espalier::ascend
