#include "device/cpu/packed_weight.h"

#include <cstring>

#include "base/error.h"
#include "base/float16.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_layout.h"

namespace espalier::cpu {
namespace {

// --- one block of one output into its panel and back
// ------------------------------------------------------------------

// Where output `lane` of a block lies in its panel.
struct PanelBlock {
  std::uint8_t* integers;  // of the block
  std::uint8_t* scales;    // of the block's group
  std::int64_t in_group;   // the block's number within the group
  std::int64_t lane;

  std::uint8_t* four(std::int64_t group) const { return integers + 64 * group + 4 * lane; }
};

void put_u16(std::uint8_t* vector, std::int64_t lane, const std::uint8_t* from) {
  std::memcpy(vector + 2 * lane, from, 2);
}
float get_f16(const std::uint8_t* vector, std::int64_t lane) {
  std::uint16_t half;
  std::memcpy(&half, vector + 2 * lane, sizeof half);
  return f16_to_f32(half);
}

// 16 bytes of nibbles, element j below element j + 16, as q4_0 and its kin store them.
void put_nibbles(const PanelBlock& to, const std::uint8_t* nibbles) {
  for (int g = 0; g < 4; ++g) std::memcpy(to.four(g), nibbles + 4 * g, 4);
}

int get_nibble(const PanelBlock& from, int k) {
  const std::uint8_t both = from.four(k % 16 / 4)[k % 4];
  return k < 16 ? both & 0x0f : both >> 4;
}

// Bit g of byte i from bit 4g + i of the file's word.
void put_fifth_bits(const PanelBlock& to, std::uint32_t bits) {
  std::uint8_t* const bytes = to.integers + 256 + 4 * to.lane;
  for (int i = 0; i < 4; ++i) {
    std::uint8_t byte = 0;
    for (int g = 0; g < 8; ++g) byte = static_cast<std::uint8_t>(byte | (bits >> (4 * g + i) & 1u) << g);
    bytes[i] = byte;
  }
}

int get_fifth_bit(const PanelBlock& from, int k) {
  return (from.integers[256 + 4 * from.lane + k % 4] >> (k / 4) & 1) << 4;
}

// Elements of a block as plain numbers: nibbles, and what lies above them.
void put_numbers(const PanelBlock& to, const std::uint8_t (&q)[32]) {
  std::uint8_t nibbles[16];
  for (int j = 0; j < 16; ++j) nibbles[j] = static_cast<std::uint8_t>((q[j] & 0x0f) | (q[j + 16] & 0x0f) << 4);
  put_nibbles(to, nibbles);
}

void put_fifth_bits_of(const PanelBlock& to, const std::uint8_t (&q)[32]) {
  std::uint32_t bits = 0;
  for (int j = 0; j < 32; ++j) bits |= static_cast<std::uint32_t>(q[j] >> 4 & 1) << j;
  put_fifth_bits(to, bits);
}

void put_high_pairs_of(const PanelBlock& to, const std::uint8_t (&q)[32]) {
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 4; ++i) {
      int byte = 0;
      for (int g = 0; g < 4; ++g) byte |= q[16 * half + 4 * g + i] >> 4 << (2 * g);
      to.integers[256 + 64 * half + 4 * to.lane + i] = static_cast<std::uint8_t>(byte);
    }
}

int get_high_pair(const PanelBlock& from, int k) {
  return (from.integers[256 + 64 * (k / 16) + 4 * from.lane + k % 4] >> (2 * (k % 16 / 4)) & 3) << 4;
}

std::uint32_t load_u32(const std::uint8_t* p) {
  std::uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// --- formats
// ----------------------------------------------------------------------------------------------------------

// pack: the file's block at `from`, a whole group of 8 blocks for K formats, of which block.in_group is meant.
// read: element k, and the scale and minimum that belong to it.
struct Format {
  BlockLayout layout;
  bool has_minimum;
  void (*pack)(const std::uint8_t* from, const PanelBlock& to);
  int (*integer)(const PanelBlock& from, int k);
  float (*scale)(const PanelBlock& from, int k);
  float (*minimum)(const PanelBlock& from);
};

float plain_scale(const PanelBlock& from, int) {
  return get_f16(from.scales, from.lane);
}
float plain_minimum(const PanelBlock& from) {
  return get_f16(from.scales + 32, from.lane);
}

void pack_q4_0(const std::uint8_t* from, const PanelBlock& to) {
  put_u16(to.scales, to.lane, from);
  put_nibbles(to, from + 2);
}

void pack_q4_1(const std::uint8_t* from, const PanelBlock& to) {
  put_u16(to.scales, to.lane, from);
  put_u16(to.scales + 32, to.lane, from + 2);
  put_nibbles(to, from + 4);
}

void pack_q5_0(const std::uint8_t* from, const PanelBlock& to) {
  put_u16(to.scales, to.lane, from);
  put_fifth_bits(to, load_u32(from + 2));
  put_nibbles(to, from + 6);
}

void pack_q5_1(const std::uint8_t* from, const PanelBlock& to) {
  put_u16(to.scales, to.lane, from);
  put_u16(to.scales + 32, to.lane, from + 2);
  put_fifth_bits(to, load_u32(from + 4));
  put_nibbles(to, from + 8);
}

void pack_q8_0(const std::uint8_t* from, const PanelBlock& to) {
  put_u16(to.scales, to.lane, from);
  for (int g = 0; g < 8; ++g) std::memcpy(to.four(g), from + 2 + 4 * g, 4);
}

// d, dmin and the 6-bit scale and minimum of sub-block s (blocks.cpp describes the twelve bytes).
void pack_k_scales(const std::uint8_t* from, const PanelBlock& to) {
  put_u16(to.scales, to.lane, from);
  put_u16(to.scales + 32, to.lane, from + 2);
  const std::uint8_t* const p = from + 4;
  const std::int64_t s = to.in_group, i = s % 4;
  const int scale = s < 4 ? p[i] & 63 : (p[i + 8] & 0x0f) | p[i] >> 6 << 4;
  const int minimum = s < 4 ? p[i + 4] & 63 : p[i + 8] >> 4 | p[i + 4] >> 6 << 4;
  to.scales[64 + 32 * s + to.lane] = static_cast<std::uint8_t>(scale);
  to.scales[80 + 32 * s + to.lane] = static_cast<std::uint8_t>(minimum);
}

float k_scale(const PanelBlock& from, int) {
  return get_f16(from.scales, from.lane) * static_cast<float>(from.scales[64 + 32 * from.in_group + from.lane]);
}
float k_minimum(const PanelBlock& from) {
  return -(get_f16(from.scales + 32, from.lane) * static_cast<float>(from.scales[80 + 32 * from.in_group + from.lane]));
}

void pack_q4_k(const std::uint8_t* from, const PanelBlock& to) {
  pack_k_scales(from, to);
  const std::uint8_t* const packed = from + 16 + to.in_group / 2 * 32;
  const int shift = to.in_group % 2 == 0 ? 0 : 4;
  std::uint8_t q[32];
  for (int j = 0; j < 32; ++j) q[j] = static_cast<std::uint8_t>(packed[j] >> shift & 0x0f);
  put_numbers(to, q);
}

void pack_q5_k(const std::uint8_t* from, const PanelBlock& to) {
  pack_k_scales(from, to);
  const std::uint8_t* const packed = from + 48 + to.in_group / 2 * 32;
  const int shift = to.in_group % 2 == 0 ? 0 : 4;
  std::uint8_t q[32];
  for (int j = 0; j < 32; ++j) {
    const int fifth = from[16 + j] >> to.in_group & 1;
    q[j] = static_cast<std::uint8_t>((packed[j] >> shift & 0x0f) | fifth << 4);
  }
  put_numbers(to, q);
  put_fifth_bits_of(to, q);
}

// Sub-blocks of 32: two low-nibble, then two high-nibble ones in each half of 128 elements.
void pack_q6_k(const std::uint8_t* from, const PanelBlock& to) {
  put_u16(to.scales, to.lane, from + 208);
  to.scales[32 + 32 * to.in_group + to.lane] = from[192 + 2 * to.in_group];
  to.scales[48 + 32 * to.in_group + to.lane] = from[193 + 2 * to.in_group];
  const std::int64_t half = to.in_group / 4, quarter = to.in_group % 4;
  const std::uint8_t* const low = from + half * 64 + quarter % 2 * 32;
  const std::uint8_t* const high = from + 128 + half * 32;
  const int shift = quarter < 2 ? 0 : 4;
  std::uint8_t q[32];
  for (int j = 0; j < 32; ++j)
    q[j] = static_cast<std::uint8_t>((low[j] >> shift & 0x0f) | (high[j] >> (2 * quarter) & 3) << 4);
  put_numbers(to, q);
  put_high_pairs_of(to, q);
}

float q6_k_scale(const PanelBlock& from, int k) {
  const auto scale = static_cast<std::int8_t>(from.scales[32 + 32 * from.in_group + 16 * (k / 16) + from.lane]);
  return get_f16(from.scales, from.lane) * static_cast<float>(scale);
}

int q4_0_integer(const PanelBlock& from, int k) {
  return get_nibble(from, k) - 8;
}
int q5_0_integer(const PanelBlock& from, int k) {
  return (get_nibble(from, k) | get_fifth_bit(from, k)) - 16;
}
int q5_1_integer(const PanelBlock& from, int k) {
  return get_nibble(from, k) | get_fifth_bit(from, k);
}
int q6_k_integer(const PanelBlock& from, int k) {
  return (get_nibble(from, k) | get_high_pair(from, k)) - 32;
}
int q8_0_integer(const PanelBlock& from, int k) {
  return static_cast<std::int8_t>(from.four(k / 4)[k % 4]);
}

Format format_of(DType type) {
  switch (type) {
    case DType::q4_0: return {kLayoutQ4_0, false, pack_q4_0, q4_0_integer, plain_scale, nullptr};
    case DType::q4_1: return {kLayoutQ4_1, true, pack_q4_1, get_nibble, plain_scale, plain_minimum};
    case DType::q5_0: return {kLayoutQ5_0, false, pack_q5_0, q5_0_integer, plain_scale, nullptr};
    case DType::q5_1: return {kLayoutQ5_1, true, pack_q5_1, q5_1_integer, plain_scale, plain_minimum};
    case DType::q8_0: return {kLayoutQ8_0, false, pack_q8_0, q8_0_integer, plain_scale, nullptr};
    case DType::q4_k: return {kLayoutQ4_K, true, pack_q4_k, get_nibble, k_scale, k_minimum};
    case DType::q5_k: return {kLayoutQ5_K, true, pack_q5_k, q5_1_integer, k_scale, k_minimum};
    case DType::q6_k: return {kLayoutQ6_K, false, pack_q6_k, q6_k_integer, q6_k_scale, nullptr};
    default: throw std::logic_error(fmt::format("{} is not a block format", name(type)));
  }
}

// --- panels
// -----------------------------------------------------------------------------------------------------------

std::int64_t panel_bytes(DType type, std::int64_t inputs) {
  std::int64_t bytes = inputs * kPanel * traits(type).block_bytes;
  if (is_block_quantised(type)) {
    const BlockLayout layout = format_of(type).layout;
    const std::int64_t blocks = inputs / kBlock;
    bytes = blocks * layout.integer_bytes + blocks / layout.scale_blocks * layout.scale_bytes;
  }
  return (bytes + 63) / 64 * 64;
}

PanelBlock panel_block(const Format& format, std::byte* panel, std::int64_t blocks, std::int64_t b, std::int64_t lane) {
  auto* const bytes = reinterpret_cast<std::uint8_t*>(panel);
  const BlockLayout& layout = format.layout;
  return {bytes + b * layout.integer_bytes,
          bytes + blocks * layout.integer_bytes + b / layout.scale_blocks * layout.scale_bytes, b % layout.scale_blocks,
          lane};
}

// Rows [first, first + count) of the part, side by side in the panel.
void pack_block_panel(const WeightPart& part, std::int64_t first, std::int64_t count, std::byte* panel) {
  const Format format = format_of(part.type);
  const std::int64_t blocks = part.inputs / kBlock, stride = row_bytes(part.type, part.inputs);
  const auto* const rows = reinterpret_cast<const std::uint8_t*>(part.bytes.data()) + first * stride;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t offset = b / format.layout.scale_blocks * traits(part.type).block_bytes;
    for (std::int64_t lane = 0; lane < count; ++lane)
      format.pack(rows + lane * stride + offset, panel_block(format, panel, blocks, b, lane));
  }
}

template <typename Element>
void pack_float_panel(const WeightPart& part, std::int64_t first, std::int64_t count, std::byte* panel) {
  constexpr std::int64_t kTile = 32;  // elements of a row at a time: a cache line or two
  const auto size = static_cast<std::int64_t>(sizeof(Element));
  for (std::int64_t begin = 0; begin < part.inputs; begin += kTile)
    for (std::int64_t lane = 0; lane < count; ++lane) {
      const std::byte* const row = part.bytes.data() + (first + lane) * part.inputs * size;
      for (std::int64_t k = begin; k < std::min(begin + kTile, part.inputs); ++k)
        std::memcpy(panel + (k * kPanel + lane) * size, row + k * size, sizeof(Element));
    }
}

void pack_panel(const WeightPart& part, std::int64_t index, std::int64_t bytes, std::byte* panel) {
  const std::int64_t first = index * kPanel, count = std::min<std::int64_t>(kPanel, part.outputs - first);
  if (count < kPanel) std::memset(panel, 0, static_cast<std::size_t>(bytes));
  if (part.type == DType::f32) {
    pack_float_panel<std::uint32_t>(part, first, count, panel);
  } else if (is_float(part.type)) {
    pack_float_panel<std::uint16_t>(part, first, count, panel);
  } else {
    pack_block_panel(part, first, count, panel);
  }
}

PackedPart pack(const WeightPart& part, std::int64_t first_output, WeightArena& arena, ThreadPool& pool) {
  PackedPart packed{.type = part.type, .first_output = first_output, .outputs = part.outputs};
  packed.panels = (part.outputs + kPanel - 1) / kPanel;
  packed.panel_bytes = panel_bytes(part.type, part.inputs);
  const auto memory = arena.allocate(static_cast<std::size_t>(packed.panels * packed.panel_bytes));
  pool.run(packed.panels, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      pack_panel(part, i, packed.panel_bytes, memory.get() + i * packed.panel_bytes);
  });
  packed.memory = memory;
  return packed;
}

std::int64_t count_outputs(std::span<const WeightPart> parts) {
  std::int64_t sum = 0;
  for (const WeightPart& part : parts) sum += part.outputs;
  return sum;
}

// --- rows back
// --------------------------------------------------------------------------------------------------------

void widen_float_row(DType type, const std::byte* panel, std::int64_t lane, std::span<float> values) {
  const auto size = static_cast<std::size_t>(traits(type).block_bytes);
  for (std::size_t k = 0; k < values.size(); ++k) {
    const std::byte* const element = panel + (k * kPanel + static_cast<std::size_t>(lane)) * size;
    std::uint16_t half = 0;
    if (type == DType::f32) {
      std::memcpy(&values[k], element, sizeof(float));
    } else {
      std::memcpy(&half, element, sizeof half);
      values[k] = type == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
    }
  }
}

void widen_block_row(DType type, std::byte* panel, std::int64_t lane, std::span<float> values) {
  const Format format = format_of(type);
  const auto blocks = static_cast<std::int64_t>(values.size()) / kBlock;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const PanelBlock block = panel_block(format, panel, blocks, b, lane);
    const float minimum = format.has_minimum ? format.minimum(block) : 0.0f;
    const float scale[2] = {format.scale(block, 0), format.scale(block, 16)};
    for (int k = 0; k < kBlock; ++k) {
      const float product = scale[k / 16] * static_cast<float>(format.integer(block, k));
      values[static_cast<std::size_t>(b * kBlock + k)] = format.has_minimum ? product + minimum : product;
    }
  }
}

}  // namespace

PackedWeight::PackedWeight(std::span<const WeightPart> parts, WeightArena& arena, ThreadPool& pool)
    : Weight(count_outputs(parts), parts[0].inputs) {
  std::int64_t first_output = 0;
  for (const WeightPart& part : parts) {
    parts_.push_back(pack(part, first_output, arena, pool));
    first_output += part.outputs;
  }
}

void PackedWeight::widen_row(std::int64_t output, std::span<float> values) const {
  for (const PackedPart& part : parts_) {
    if (output >= part.first_output + part.outputs) continue;
    const std::int64_t row = output - part.first_output;
    // Reading shares its addressing with packing, which writes; nothing is written here.
    auto* const panel = const_cast<std::byte*>(part.memory.get()) + row / kPanel * part.panel_bytes;
    if (is_float(part.type)) {
      widen_float_row(part.type, panel, row % kPanel, values);
    } else {
      widen_block_row(part.type, panel, row % kPanel, values);
    }
    return;
  }
  throw std::logic_error(fmt::format("weight row {} out of range of {}", output, outputs()));
}

}  // namespace espalier::cpu
