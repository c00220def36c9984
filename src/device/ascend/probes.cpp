#include "device/ascend/probes.h"

#include <fmt/format.h>

#include <algorithm>
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

// Runs a probe: false where the operator that it looks at refuses, and where the probe says so.
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

// Whether a product of this type is unrounded. Where it is not, the other way must do: if that is refused too,
// operators are not installed or not found, and the refusal says so.
void probe_product(DType type, bool& unrounded, OpQueue& queue, const std::shared_ptr<Card>& card, Staging& staging) {
  unrounded = true;  // so that it is tried
  unrounded = holds([&] { return product_is_unrounded(type, queue, card, staging); });
  if (!unrounded) product_is_unrounded(type, queue, card, staging);
}

// Rows that see a few keys each, before key 512 and behind it, where masks of a single row are known to be ignored. All
// numbers are exact in both 16-bit types, so that one eager result judges them both.
struct AttentionProbe {
  static constexpr std::int64_t kPage = 128, kPages = 5, kKeys = kPage * kPages, kDim = 16, kHeads = 2;
  static constexpr std::int64_t kMostRows = 32, kForgotten = 512;
  static constexpr float kScale = 0.25f;

  AttentionProbe(const std::shared_ptr<Card>& card, Staging& staging) : memory(card, staging) {
    std::vector<float> queries;
    for (std::int64_t i = 0; i < kMostRows * kHeads * kDim; ++i) queries.push_back(static_cast<float>(i * 5 % 11) / 16);
    q = memory.put(DType::f32, queries, {kMostRows, kHeads, kDim});
    out = memory.put(DType::f32, std::vector<float>(queries.size()), {kMostRows, kHeads, kDim});
    rows.blocks = memory.put(DType::i32, std::vector<std::int32_t>{3, 0, 4, 1, 2}, {1, kPages});
    mask = memory.put(DType::u8, hidden(), {1, 1, kMostRows, kKeys});
  }

  // Each row sees eight keys and one of four behind key 512.
  static std::vector<std::uint8_t> hidden() {
    std::vector<std::uint8_t> hides(kMostRows * kKeys, 1);
    for (std::int64_t r = 0; r < kMostRows; ++r) {
      std::uint8_t* const row = hides.data() + r * kKeys;
      std::fill_n(row + 3 * r, 8, std::uint8_t{0});
      row[far_key(r)] = 0;
    }
    return hides;
  }
  static std::int64_t far_key(std::int64_t row) { return kForgotten + 32 * (row % 4); }
  // Small before key 512; behind it large where somebody sees it, so that nine keys weigh otherwise than all of them.
  static float value_at(std::int64_t key, std::int64_t d) {
    if (key < kForgotten) return static_cast<float>((key + d) % 8);
    return key % 32 == 0 ? 31.0f : 0.0f;
  }

  KvViews cache(DType type) {
    const auto half = [&](float value) { return type == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value); };
    constexpr std::int64_t kLogical[kPages] = {1, 3, 4, 0, 2};  // of a block, whose place the table says
    std::vector<std::uint16_t> keys, values;
    for (const std::int64_t page : kLogical)
      for (std::int64_t key = page * kPage; key < (page + 1) * kPage; ++key)
        for (std::int64_t d = 0; d < kDim; ++d) {
          keys.push_back(half(static_cast<float>((key * kDim + d) * 7 % 13 - 6) / 16));
          values.push_back(half(value_at(key, d)));
        }
    return {memory.put(type, keys, {kPages, kPage, 1, kDim}), memory.put(type, values, {kPages, kPage, 1, kDim})};
  }
  RowTables first_rows(std::int64_t count) const {
    RowTables some = rows;
    some.mask = View(mask.data(), DType::u8, {1, 1, count, kKeys});
    return some;
  }

  ProbeMemory memory;
  View q, out, mask;
  RowTables rows;
};

// Values reach 31, of which bf16 keeps 8 digits; a key too many or too few changes a result by more than 2.
constexpr float kFarApart = 1;

// For few rows and many: kernels for up to 16 of them are others.
bool fused_is_eager(DType type, const std::vector<float>& eager, AttentionProbe& probe, OpQueue& queue) {
  const KvViews kv = probe.cache(type);
  for (const std::int64_t rows : {2, 16, 32}) {
    const View out = probe.out.rows(0, rows);
    queue.attention(probe.q.rows(0, rows), kv, probe.first_rows(rows), AttentionProbe::kScale, out);
    const std::vector<float> fused = probe.memory.floats(out);
    for (std::size_t i = 0; i < fused.size(); ++i)
      if (!(std::fabs(fused[i] - eager[i]) <= kFarApart)) return false;
  }
  return true;
}

void probe_attention(OpQueue& queue, const std::shared_ptr<Card>& card, Staging& staging,
                     const std::function<void(std::string_view)>& remark) {
  AttentionProbe probe(card, staging);
  queue.attention_eager(probe.q, probe.cache(DType::f16), probe.first_rows(AttentionProbe::kMostRows),
                        AttentionProbe::kScale, probe.out);
  const std::vector<float> eager = probe.memory.floats(probe.out);
  for (const DType type : {DType::f16, DType::bf16}) {
    if (type == DType::bf16 && !card->chip().has_bf16) continue;
    bool& fuses = type == DType::f16 ? queue.abilities().fused_f16 : queue.abilities().fused_bf16;
    fuses = true;  // so that it is tried
    fuses = holds([&] { return fused_is_eager(type, eager, probe, queue); });
    if (!fuses && remark)
      remark(fmt::format(
          "Ascend: attention goes the eager way over {} keys: the fused operator of {} does not give its results",
          name(type), card->chip().name));
  }
}

}  // namespace

void probe(OpQueue& queue, const std::shared_ptr<Card>& card, Staging& staging, bool fused,
           const std::function<void(std::string_view)>& remark) {
  Abilities& abilities = queue.abilities();
  probe_product(DType::f16, abilities.f32_from_f16, queue, card, staging);
  abilities.f32_from_bf16 = false;
  if (card->chip().has_bf16) probe_product(DType::bf16, abilities.f32_from_bf16, queue, card, staging);
  abilities.fused_f16 = abilities.fused_bf16 = false;
  if (fused && queue.fused_version() > 0) probe_attention(queue, card, staging, remark);
}

}  // namespace espalier::ascend
