#include "device/reference/reference_device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <vector>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/float16.h"
#include "base/math.h"
#include "base/thread_pool.h"
#include "device/blocks.h"
#include "device/host_device.h"
#include "device/host_views.h"
#include "device/reference/round_loops.h"

namespace espalier {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(std::size_t bytes) : size_(bytes) {
    data_ = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}, std::nothrow));
    if (data_ == nullptr) device_error("operator new: no memory for {} bytes", bytes);
  }
  ~HostBuffer() override { ::operator delete (data_, std::align_val_t{64}); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  std::byte* data() override { return data_; }
  std::size_t size() const override { return size_; }

 private:
  std::byte* data_;
  std::size_t size_;
};

// The parts as they came: rows in their file format.
class RowWeight final : public Weight {
 public:
  explicit RowWeight(std::span<const WeightPart> parts) : Weight(count_outputs(parts), parts[0].inputs) {
    for (const WeightPart& part : parts)
      parts_.push_back({part.type, part.outputs, {part.bytes.begin(), part.bytes.end()}});
  }

  bool has_block_rows() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return is_block_quantised(part.type); });
  }

  bool has_float_rows() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return is_float(part.type); });
  }

  struct Row {
    DType type;
    std::span<const std::byte> bytes;
  };
  Row row(std::int64_t n) const {
    for (const Part& part : parts_) {
      if (n < part.outputs) {
        const auto bytes = static_cast<std::size_t>(row_bytes(part.type, inputs()));
        return {part.type, std::span(part.bytes).subspan(static_cast<std::size_t>(n) * bytes, bytes)};
      }
      n -= part.outputs;
    }
    throw std::logic_error(fmt::format("weight row out of range of {}", outputs()));
  }

 private:
  struct Part {
    DType type;
    std::int64_t outputs;
    std::vector<std::byte> bytes;
  };
  static std::int64_t count_outputs(std::span<const WeightPart> parts) {
    std::int64_t sum = 0;
    for (const WeightPart& part : parts) sum += part.outputs;
    return sum;
  }
  std::vector<Part> parts_;
};

float dot16(const float* a, const float* b, std::int64_t n) {
  float lane[16] = {};
  for (std::int64_t i = 0; i < n; ++i) lane[i % 16] = std::fma(a[i], b[i], lane[i % 16]);
  return add_halves(lane);
}

// The rows of a linear's input, quantised as the contract says.
struct QuantisedActivations {
  std::vector<std::int8_t> q;     // [rows, inputs]
  std::vector<float> d;           // [rows, inputs / 32]
  std::vector<std::int32_t> sum;  // [rows, inputs / 32] of the q of a block, for formats with a minimum
  std::vector<bool> not_finite;   // [rows]
};

void quantise_activation_block(const float* x, std::int8_t* q, float& d, std::int32_t& sum) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) largest = std::max(largest, std::fabs(x[j]));
  const bool counts_as_zero = largest < 0x1p-100f;
  d = counts_as_zero ? 0.0f : largest / 127.0f;
  const float inverse = counts_as_zero ? 0.0f : 127.0f / largest;
  for (int j = 0; j < 32; ++j) q[j] = static_cast<std::int8_t>(std::nearbyint(x[j] * inverse));
  sum = std::accumulate(q, q + 32, 0);
}

QuantisedActivations quantise_activations(ConstView x) {
  const std::int64_t rows = x.dim(0), inputs = x.dim(1);
  QuantisedActivations a;
  a.q.resize(static_cast<std::size_t>(rows * inputs));
  a.d.resize(static_cast<std::size_t>(rows * inputs / 32));
  a.sum.resize(a.d.size());
  a.not_finite.resize(static_cast<std::size_t>(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = floats(x, r);
    if (!std::all_of(row, row + inputs, [](float v) { return std::isfinite(v); })) {
      a.not_finite[static_cast<std::size_t>(r)] = true;
      continue;
    }
    for (std::int64_t k = 0; k < inputs; k += 32) {
      const auto block = static_cast<std::size_t>((r * inputs + k) / 32);
      quantise_activation_block(row + k, a.q.data() + r * inputs + k, a.d[block], a.sum[block]);
    }
  }
  return a;
}

// One output of one row whose input is quantised.
float quantised_sum(const QuantisedRow& w, const QuantisedActivations& a, std::int64_t r) {
  const auto inputs = static_cast<std::int64_t>(w.q.size());
  const std::int8_t* q = a.q.data() + r * inputs;
  float acc = 0;
  for (std::size_t b = 0; b < w.scale.size(); ++b) {
    const std::int64_t k = static_cast<std::int64_t>(b) * w.block;
    std::int32_t dot = 0;
    for (std::int64_t j = k; j < k + w.block; ++j)
      dot += std::int32_t{w.q[static_cast<std::size_t>(j)]} * std::int32_t{q[j]};
    const auto block = static_cast<std::size_t>((r * inputs + k) / 32);
    const float scale = w.scale[b] * a.d[block];
    acc = std::fma(scale, static_cast<float>(dot), acc);
    if (w.has_minimum) acc = std::fma(w.minimum[b], a.d[block] * static_cast<float>(a.sum[block]), acc);
  }
  return acc;
}

// x[r,k] at [k * rows + r]: the rows of a step stand side by side, each with its own sum.
std::vector<float> transpose(ConstView x) {
  const std::int64_t rows = x.dim(0), inputs = x.dim(1);
  std::vector<float> t(static_cast<std::size_t>(rows * inputs));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t k = 0; k < inputs; ++k) t[static_cast<std::size_t>(k * rows + r)] = floats(x, r)[k];
  return t;
}

// NaN counts as minus infinity; the lowest id wins among equals.
float rank_value(float x) {
  return std::isnan(x) ? -kInfinity : x;
}

class ReferenceDevice final : public HostDevice {
 public:
  explicit ReferenceDevice(int threads) : pool_(threads) {}

  std::string_view name() const override { return "reference"; }
  RoundOps* round_ops() override { return round_ops_.get(); }

 private:
  std::unique_ptr<Buffer> do_allocate(std::size_t bytes) override { return std::make_unique<HostBuffer>(bytes); }

  std::unique_ptr<const Weight> do_load_weight(std::span<const WeightPart> parts) override {
    return std::make_unique<RowWeight>(parts);
  }

  void do_embed(const Weight& table, ConstView token, View y) override {
    const auto& rows = static_cast<const RowWeight&>(table);
    for (std::int64_t r = 0; r < y.dim(0); ++r) {
      const RowWeight::Row row = rows.row(ints(token)[r]);
      widen_row(row.type, row.bytes, std::span(floats(y, r), static_cast<std::size_t>(y.dim(1))));
    }
  }

  void do_rms_norm(ConstView x, ConstView w, float eps, View y) override {
    const std::int64_t dim = w.dim(0);
    for (std::int64_t i = 0; i < x.elements(); i += dim) {
      const float* in = floats(x) + i;
      const float mean = dot16(in, in, dim) / static_cast<float>(dim);
      const float s = 1.0f / std::sqrt(mean + eps);
      for (std::int64_t c = 0; c < dim; ++c) floats(y)[i + c] = (in[c] * s) * floats(w)[c];
    }
  }

  void do_linear(ConstView x, std::span<const Projection> projections) override {
    QuantisedActivations quantised;  // made when the first weight with block-quantised rows asks for them
    std::vector<float> transposed;   // likewise for float rows
    for (const Projection& p : projections) {
      const auto& weight = static_cast<const RowWeight&>(*p.weight);
      if (quantised.q.empty() && weight.has_block_rows()) quantised = quantise_activations(x);
      if (transposed.empty() && weight.has_float_rows()) transposed = transpose(x);
      pool_.run(weight.outputs(), [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> acc(static_cast<std::size_t>(x.dim(0)));
        for (std::int64_t n = begin; n < end; ++n) {
          const RowWeight::Row row = weight.row(n);
          if (is_block_quantised(row.type)) {
            block_output(row, quantised, weight.inputs(), acc);
          } else {
            float_output(row, transposed, weight.inputs(), acc);
          }
          for (std::int64_t r = 0; r < x.dim(0); ++r) {
            const float sum = acc[static_cast<std::size_t>(r)];
            floats(p.y, r)[n] = p.bias.empty() ? sum : sum + floats(p.bias)[n];
          }
        }
      });
    }
  }

  // One output of every row, block-quantised weights.
  static void block_output(const RowWeight::Row& row, const QuantisedActivations& x, std::int64_t inputs,
                           std::vector<float>& acc) {
    QuantisedRow w;
    decode_row(row.type, row.bytes, inputs, w);
    for (std::size_t r = 0; r < acc.size(); ++r)
      acc[r] = x.not_finite[r] ? kNan : quantised_sum(w, x, static_cast<std::int64_t>(r));
  }

  // One output of every row, float weights.
  static void float_output(const RowWeight::Row& row, const std::vector<float>& transposed, std::int64_t inputs,
                           std::vector<float>& acc) {
    std::vector<float> w(static_cast<std::size_t>(inputs));
    widen_row(row.type, row.bytes, w);
    std::fill(acc.begin(), acc.end(), 0.0f);
    for (std::size_t k = 0; k < w.size(); ++k)
      for (std::size_t r = 0; r < acc.size(); ++r) acc[r] = std::fma(w[k], transposed[k * acc.size() + r], acc[r]);
  }

  void do_rope(View x, ConstView position, ConstView cosine, ConstView sine) override {
    const std::int64_t half = x.dim(2) / 2;
    for (std::int64_t r = 0; r < x.dim(0); ++r) {
      const float* c = floats(cosine, ints(position)[r]);
      const float* s = floats(sine, ints(position)[r]);
      for (std::int64_t h = 0; h < x.dim(1); ++h) {
        float* head = floats(x, r) + h * 2 * half;
        for (std::int64_t j = 0; j < half; ++j) {
          const float a = head[j], b = head[j + half];
          head[j] = std::fma(a, c[j], -(b * s[j]));
          head[j + half] = std::fma(b, c[j], a * s[j]);
        }
      }
    }
  }

  static void store(float value, View memory, std::int64_t index) {
    if (memory.type() == DType::f32) {
      reinterpret_cast<float*>(memory.data())[index] = value;
    } else {
      reinterpret_cast<std::uint16_t*>(memory.data())[index] =
          memory.type() == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    }
  }

  static float load(ConstView memory, std::int64_t index) {
    if (memory.type() == DType::f32) return reinterpret_cast<const float*>(memory.data())[index];
    const std::uint16_t half = reinterpret_cast<const std::uint16_t*>(memory.data())[index];
    return memory.type() == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
  }

  void do_kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) override {
    const std::int64_t width = k.dim(1) * k.dim(2);
    for (std::int64_t r = 0; r < k.dim(0); ++r) {
      const std::int64_t base = std::int64_t{ints(slot)[r]} * width;
      for (std::int64_t i = 0; i < width; ++i) {
        store(floats(k, r)[i], kv.k, base + i);
        store(floats(v, r)[i], kv.v, base + i);
      }
    }
  }

  void do_kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) override {
    for (const KvViews& kv : layers)
      for (const View& memory : {kv.k, kv.v}) move_slots(memory, from, to);
  }

  static void move_slots(View memory, ConstView from, ConstView to) {
    const auto slots = memory.reshaped({memory.dim(0) * memory.dim(1), memory.dim(2), memory.dim(3)});
    const auto bytes = static_cast<std::size_t>(slots.rows(0, 1).bytes_spanned());
    std::vector<std::byte> read(static_cast<std::size_t>(from.dim(0)) * bytes);
    for (std::int64_t i = 0; i < from.dim(0); ++i)
      std::memcpy(read.data() + static_cast<std::size_t>(i) * bytes, slots.rows(ints(from)[i], 1).data(), bytes);
    for (std::int64_t i = 0; i < to.dim(0); ++i)
      std::memcpy(slots.rows(ints(to)[i], 1).data(), read.data() + static_cast<std::size_t>(i) * bytes, bytes);
  }

  static std::int64_t slot_of(const RowTables& rows, std::int64_t block_size, std::int64_t r, std::int64_t position) {
    const std::int32_t block = ints(rows.blocks, ints(rows.sequence)[r])[position / block_size];
    return block * block_size + position % block_size;
  }

  // The slots row r sees, in the order of the contract.
  static std::vector<std::int64_t> visible_slots(const RowTables& rows, std::int64_t block_size, std::int64_t r) {
    std::vector<std::int64_t> slots;
    if (!rows.mask.empty()) {
      const std::int64_t columns = rows.mask.dim(3);
      const auto* hidden = reinterpret_cast<const std::uint8_t*>(rows.mask.data()) + r * columns;
      for (std::int64_t c = 0; c < columns; ++c)
        if (hidden[c] == 0) slots.push_back(slot_of(rows, block_size, r, c));
      return slots;
    }
    for (std::int64_t p = ints(rows.begin)[r]; p < ints(rows.end)[r]; ++p)
      slots.push_back(slot_of(rows, block_size, r, p));
    for (std::int64_t i = 0; i < ints(rows.ancestor_count)[r]; ++i) slots.push_back(ints(rows.ancestors, r)[i]);
    slots.push_back(ints(rows.slot)[r]);
    return slots;
  }

  static void load_head(ConstView memory, std::int64_t slot, std::int64_t head, std::vector<float>& out) {
    const std::int64_t dim = memory.dim(3);
    const std::int64_t base = (slot * memory.dim(2) + head) * dim;
    for (std::int64_t i = 0; i < dim; ++i) out[static_cast<std::size_t>(i)] = load(memory, base + i);
  }

  // One head of one row over the slots it sees, the first of which has the ordinal `begin`: tile by tile.
  static void attend(const float* q, const KvViews& kv, std::int64_t kv_head, const std::vector<std::int64_t>& slots,
                     std::int64_t begin, float scale, float* out) {
    const std::int64_t dim = kv.k.dim(3);
    std::vector<float> head(static_cast<std::size_t>(dim)), score;
    float largest = -kInfinity;
    bool has_nan = false;
    for (std::int64_t slot : slots) {
      load_head(kv.k, slot, kv_head, head);
      score.push_back(scale * dot16(q, head.data(), dim));
      has_nan = has_nan || std::isnan(score.back());
      largest = std::max(largest, score.back());
    }
    if (has_nan || !std::isfinite(largest)) {
      std::fill(out, out + dim, kNan);
      return;
    }
    std::vector<float> sum(static_cast<std::size_t>(dim)), tile_sum(static_cast<std::size_t>(dim));
    float denominator = 0;
    for (std::size_t first = 0, end; first < slots.size(); first = end) {
      const auto inside = static_cast<std::size_t>((begin + static_cast<std::int64_t>(first)) % kKeyTile);
      end = std::min(slots.size(), first + static_cast<std::size_t>(kKeyTile) - inside);
      const float tile_largest = *std::max_element(&score[first], score.data() + end);
      if (tile_largest == -kInfinity) continue;
      float tile_denominator = 0;
      std::fill(tile_sum.begin(), tile_sum.end(), 0.0f);
      for (std::size_t j = first; j < end; ++j) {
        const float e = exp_f32(score[j] - tile_largest);
        tile_denominator = tile_denominator + e;
        load_head(kv.v, slots[j], kv_head, head);
        for (std::size_t i = 0; i < sum.size(); ++i) tile_sum[i] = std::fma(e, head[i], tile_sum[i]);
      }
      const float w = exp_f32(tile_largest - largest);
      denominator = std::fma(w, tile_denominator, denominator);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = std::fma(w, tile_sum[i], sum[i]);
    }
    for (std::size_t i = 0; i < sum.size(); ++i) out[i] = sum[i] / denominator;
  }

  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    const std::int64_t heads = q.dim(1), dim = q.dim(2);
    const std::int64_t group = heads / kv.k.dim(2);
    pool_.run(q.dim(0) * heads, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t listed = -1;
      std::vector<std::int64_t> slots;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t r = i / heads, h = i % heads;
        if (r != listed) slots = visible_slots(rows, kv.k.dim(1), r);
        listed = r;
        attend(floats(q, r) + h * dim, kv, h / group, slots, ints(rows.begin)[r], scale, floats(out, r) + h * dim);
      }
    });
  }

  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    const std::int64_t heads = q.dim(1), dim = q.dim(2);
    const std::int64_t group = heads / kv.k.dim(2);
    pool_.run(q.dim(0) * heads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        attend_eager(floats(q, i / heads) + i % heads * dim, kv, rows, i / heads, i % heads / group, scale,
                     floats(out, i / heads) + i % heads * dim);
    });
  }

  // Scores of every column first, then the softmax of every tile, then the weighted sums; hidden columns are left out
  // of each.
  static void attend_eager(const float* q, const KvViews& kv, const RowTables& rows, std::int64_t r,
                           std::int64_t kv_head, float scale, float* out) {
    struct Tile {
      float largest = -kInfinity, denominator = 0;
      std::vector<float> sum = {};
    };
    const std::int64_t columns = rows.mask.dim(3), dim = kv.k.dim(3), block_size = kv.k.dim(1);
    const auto* hidden = reinterpret_cast<const std::uint8_t*>(rows.mask.data()) + r * columns;
    std::vector<float> weight(static_cast<std::size_t>(columns)), head(static_cast<std::size_t>(dim));
    std::vector<std::size_t> tile_of(static_cast<std::size_t>(columns));
    std::vector<Tile> tiles;
    std::int64_t ordinal = ints(rows.begin)[r];
    bool has_nan = false;
    for (std::int64_t c = 0; c < columns; ++c) {
      if (hidden[c]) continue;
      if (tiles.empty() || ordinal % kKeyTile == 0) tiles.push_back({.sum = std::vector<float>(head.size())});
      ++ordinal;
      tile_of[static_cast<std::size_t>(c)] = tiles.size() - 1;
      load_head(kv.k, slot_of(rows, block_size, r, c), kv_head, head);
      float& score = weight[static_cast<std::size_t>(c)];
      score = scale * dot16(q, head.data(), dim);
      has_nan = has_nan || std::isnan(score);
      tiles.back().largest = std::max(tiles.back().largest, score);
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      if (hidden[c]) continue;
      Tile& tile = tiles[tile_of[static_cast<std::size_t>(c)]];
      float& e = weight[static_cast<std::size_t>(c)];
      e = exp_f32(e - tile.largest);
      tile.denominator = tile.denominator + e;
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      if (hidden[c]) continue;
      std::vector<float>& sum = tiles[tile_of[static_cast<std::size_t>(c)]].sum;
      load_head(kv.v, slot_of(rows, block_size, r, c), kv_head, head);
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] = std::fma(weight[static_cast<std::size_t>(c)], head[i], sum[i]);
    }
    float largest = -kInfinity, denominator = 0;
    for (const Tile& tile : tiles) largest = std::max(largest, tile.largest);
    std::fill(out, out + dim, 0.0f);
    for (const Tile& tile : tiles) {
      if (tile.largest == -kInfinity) continue;
      const float w = exp_f32(tile.largest - largest);
      denominator = std::fma(w, tile.denominator, denominator);
      for (std::int64_t i = 0; i < dim; ++i) out[i] = std::fma(w, tile.sum[static_cast<std::size_t>(i)], out[i]);
    }
    for (std::int64_t i = 0; i < dim; ++i) out[i] = has_nan || !std::isfinite(largest) ? kNan : out[i] / denominator;
  }

  void do_swiglu(ConstView x, View y) override {
    const std::int64_t width = y.dim(1);
    for (std::int64_t r = 0; r < y.dim(0); ++r)
      for (std::int64_t c = 0; c < width; ++c) floats(y, r)[c] = silu_f32(floats(x, r)[c]) * floats(x, r)[c + width];
  }

  void do_silu(View x) override {
    for (std::int64_t r = 0; r < x.dim(0); ++r)
      for (std::int64_t c = 0; c < x.dim(1); ++c) floats(x, r)[c] = silu_f32(floats(x, r)[c]);
  }

  void do_add(View x, ConstView y) override {
    for (std::int64_t r = 0; r < x.dim(0); ++r)
      for (std::int64_t c = 0; c < x.dim(1); ++c) floats(x, r)[c] = floats(x, r)[c] + floats(y, r)[c];
  }

  void do_gather_rows(ConstView x, ConstView index, View y) override {
    for (std::int64_t i = 0; i < y.dim(0); ++i) std::copy_n(floats(x, ints(index)[i]), x.dim(1), floats(y, i));
  }

  void do_argmax(ConstView x, View id) override {
    for (std::int64_t r = 0; r < x.dim(0); ++r) {
      std::int32_t best = 0;
      for (std::int64_t c = 1; c < x.dim(1); ++c)
        if (rank_value(floats(x, r)[c]) > rank_value(floats(x, r)[best])) best = static_cast<std::int32_t>(c);
      ints(id)[r] = best;
    }
  }

  void do_top_k(ConstView x, View value, View id) override {
    const std::int64_t k = value.dim(1);
    for (std::int64_t r = 0; r < x.dim(0); ++r) {
      const float* row = floats(x, r);
      std::vector<std::int32_t> order(static_cast<std::size_t>(x.dim(1)));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [row](std::int32_t a, std::int32_t b) { return rank_value(row[a]) > rank_value(row[b]); });
      for (std::int64_t i = 0; i < k; ++i) {
        ints(id, r)[i] = order[static_cast<std::size_t>(i)];
        floats(value, r)[i] = rank_value(row[order[static_cast<std::size_t>(i)]]);
      }
    }
  }

  void do_log_sum_exp(ConstView x, float scale, View y) override {
    for (std::int64_t r = 0; r < x.dim(0); ++r) {
      const float* row = floats(x, r);
      float largest = -kInfinity, lane[kVocabularyLanes] = {};
      for (std::int64_t c = 0; c < x.dim(1); ++c) largest = std::max(largest, rank_value(scale * row[c]));
      if (std::isfinite(largest)) {
        for (std::int64_t c = 0; c < x.dim(1); ++c)
          lane[static_cast<std::size_t>(c) % kVocabularyLanes] += exp_f32(rank_value(scale * row[c]) - largest);
        largest = static_cast<float>(double{largest} + log_f64(add_halves(lane)));
      }
      floats(y)[r] = largest;
    }
  }

  ThreadPool pool_;
  std::unique_ptr<RoundOps> round_ops_ = make_round_loops(*this);
};

}  // namespace

std::unique_ptr<Device> make_reference_device(int threads) {
  return std::make_unique<ReferenceDevice>(threads);
}

}  // namespace espalier
