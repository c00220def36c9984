#include "device/ascend/probes.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/float16.h"

namespace espalier::ascend {
namespace {

constexpr std::int64_t kSide = 16;  // of the probed matrices

// Buffers of a probe, filled from the host.
class ProbeMemory {
 public:
  ProbeMemory(const std::shared_ptr<Card>& card, Staging& staging) : card_(card), staging_(&staging) {}

  template <typename Value>
  View put(DType type, const std::vector<Value>& values, std::initializer_list<std::int64_t> shape) {
    buffers_.push_back(std::make_unique<DeviceBuffer>(card_, values.size() * sizeof(Value)));
    const View view(buffers_.back()->data(), type, shape);
    staging_->upload(std::as_bytes(std::span(values)), view.data());
    return view;
  }
  std::vector<float> floats(ConstView view) {
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    const Download part{view, std::as_writable_bytes(std::span(values))};
    staging_->download({&part, 1});
    return values;
  }

 private:
  std::shared_ptr<Card> card_;
  Staging* staging_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

// Runs a probe: false where an operator refuses, and where the probe says so.
template <typename Probe>
bool holds(const Probe& probe) {
  try {
    return probe();
  } catch (const AclFailure& failure) {
    if (!failure.is_refusal()) throw;
    return false;
  }
}

// 1 * 1 + 1 * 2^-12 has more digits than either 16-bit type.
bool product_is_unrounded(DType type, OpQueue& queue, const std::shared_ptr<Card>& card, Staging& staging) {
  ProbeMemory memory(card, staging);
  const auto half = [&](float value) { return type == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value); };
  std::vector<std::uint16_t> weight(kSide * kSide, half(0));
  std::vector<float> x(2 * kSide, 0.0f);
  for (std::int64_t n = 0; n < kSide; ++n) {
    weight[static_cast<std::size_t>(n * kSide)] = half(1);
    weight[static_cast<std::size_t>(n * kSide + 1)] = half(0x1p-12f);
  }
  x[0] = x[1] = x[kSide] = x[kSide + 1] = 1;
  const WeightPart part{type, kSide, kSide, std::as_bytes(std::span(weight))};
  const AscendWeight loaded({&part, 1}, card, staging);
  const View y = memory.put(DType::f32, std::vector<float>(2 * kSide), {2, kSide});
  const Projection projection{&loaded, {}, y};
  queue.linear(memory.put(DType::f32, x, {2, kSide}), {&projection, 1});
  for (float value : memory.floats(y))
    if (value != 1 + 0x1p-12f) return false;
  return true;
}

// Two rows that see different keys of one block; far more than roundings apart if one of them sees a key too many.
struct AttentionProbe {
  static constexpr std::int64_t kPage = 128, kDim = 16, kHeads = 2, kRows = 2;

  AttentionProbe(const std::shared_ptr<Card>& card, Staging& staging) : memory(card, staging) {
    std::vector<std::uint16_t> keys, values;
    for (std::int64_t i = 0; i < kPage * kDim; ++i) {
      keys.push_back(f32_to_f16(static_cast<float>(i * 7 % 13) / 13 - 0.5f));
      values.push_back(f32_to_f16(static_cast<float>(i / kDim % 32)));
    }
    std::vector<float> queries;
    for (std::int64_t i = 0; i < kRows * kHeads * kDim; ++i) queries.push_back(static_cast<float>(i * 5 % 11) / 11);
    std::vector<std::uint8_t> hidden(kRows * kPage, 1);
    for (std::size_t c = 0; c < 40; ++c) hidden[c] = 0;
    for (std::size_t c = 3; c < 9; ++c) hidden[kPage + c] = 0;
    kv = {memory.put(DType::f16, keys, {1, kPage, 1, kDim}), memory.put(DType::f16, values, {1, kPage, 1, kDim})};
    q = memory.put(DType::f32, queries, {kRows, kHeads, kDim});
    out = memory.put(DType::f32, std::vector<float>(queries.size()), {kRows, kHeads, kDim});
    rows.blocks = memory.put(DType::i32, std::vector<std::int32_t>{0}, {1, 1});
    rows.mask = memory.put(DType::u8, hidden, {1, 1, kRows, kPage});
  }

  ProbeMemory memory;
  View q, out;
  KvViews kv;
  RowTables rows;
};

// Values reach 31; both ways have the same scores up to 2^-11, and results are rounded to f16.
bool fused_is_eager(OpQueue& queue, const std::shared_ptr<Card>& card, Staging& staging) {
  constexpr float kFarApart = 31 * 0x1p-7f;
  AttentionProbe probe(card, staging);
  queue.attention_eager(probe.q, probe.kv, probe.rows, 0.25f, probe.out);
  const std::vector<float> eager = probe.memory.floats(probe.out);
  queue.attention(probe.q, probe.kv, probe.rows, 0.25f, probe.out);
  const std::vector<float> fused = probe.memory.floats(probe.out);
  for (std::size_t i = 0; i < eager.size(); ++i)
    if (!(std::fabs(fused[i] - eager[i]) <= kFarApart)) return false;
  return true;
}

}  // namespace

void probe(OpQueue& queue, const std::shared_ptr<Card>& card, Staging& staging, bool fused,
           const std::function<void(std::string_view)>& remark) {
  Abilities& abilities = queue.abilities();
  const auto unrounded = [&](DType type) {
    return holds([&] { return product_is_unrounded(type, queue, card, staging); });
  };
  abilities.f32_from_f16 = unrounded(DType::f16);
  abilities.f32_from_bf16 = card->chip().has_bf16 && unrounded(DType::bf16);
  abilities.fused_attention = fused && queue.fused_version() > 0;
  if (!abilities.fused_attention) return;
  abilities.fused_attention = holds([&] { return fused_is_eager(queue, card, staging); });
  if (!abilities.fused_attention && remark)
    remark(fmt::format("Ascend: attention goes the eager way: the fused operator of {} does not give its results",
                       card->chip().name));
}

}  // namespace espalier::ascend
