// The block formats of weights over the vector type of a simd_*.h, which must be included before: how a block of a
// panel (panel_layout.h) becomes integers, scales and a minimum in registers. Internal linkage.
#pragma once

#include "device/cpu/kernels.h"
#include "device/cpu/panel_layout.h"

namespace espalier::cpu {
namespace {

// A block in registers: unsigned (or, for q8_0, as from_signed leaves them) integers, scales and minimum as floats.
template <int kParts>
struct DecodedBlock {
  Bytes q[kBlock / 4];
  F32 scale[kParts];
  F32 minimum;
};

inline const std::uint16_t* halves(const std::uint8_t* p) {
  return reinterpret_cast<const std::uint16_t*>(p);
}

inline void decode_nibbles(const std::uint8_t* p, Bytes (&q)[8]) {
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const Bytes both = load_bytes(p + 64 * g);
    q[g] = low_nibbles(both);
    q[g + 4] = high_nibbles(both);
  }
}

inline void decode_five_bits(const std::uint8_t* p, Bytes (&q)[8]) {
  decode_nibbles(p, q);
  const Bytes fifth = load_bytes(p + 256);
  q[0] = with_high_bits<0, 0x10>(q[0], fifth);
  q[1] = with_high_bits<1, 0x10>(q[1], fifth);
  q[2] = with_high_bits<2, 0x10>(q[2], fifth);
  q[3] = with_high_bits<3, 0x10>(q[3], fifth);
  q[4] = with_high_bits<4, 0x10>(q[4], fifth);
  q[5] = with_high_bits<5, 0x10>(q[5], fifth);
  q[6] = with_high_bits<6, 0x10>(q[6], fifth);
  q[7] = with_high_bits<7, 0x10>(q[7], fifth);
}

inline void decode_six_bits(const std::uint8_t* p, Bytes (&q)[8]) {
  decode_nibbles(p, q);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const Bytes pairs = load_bytes(p + 256 + 64 * half);
    Bytes* const part = q + 4 * half;
    part[0] = with_high_bits<0, 0x30>(part[0], pairs);
    part[1] = with_high_bits<2, 0x30>(part[1], pairs);
    part[2] = with_high_bits<4, 0x30>(part[2], pairs);
    part[3] = with_high_bits<6, 0x30>(part[3], pairs);
  }
}

// d * scale and -(dmin * minimum) of q4_k and q5_k, as the file format defines them.
inline void decode_k_scales(const std::uint8_t* group, std::int64_t sub_block, DecodedBlock<1>& block) {
  const std::uint8_t* const six_bits = group + 64 + 32 * sub_block;
  block.scale[0] = mul(load_f16(halves(group)), load_u8_as_float(six_bits));
  block.minimum = negate(mul(load_f16(halves(group + 32)), load_u8_as_float(six_bits + 16)));
}

// kBits: the integers are below 2^kBits. kOffsetShift: 2^kOffsetShift is to be subtracted from each; -1: nothing.
// kParts: scales per block. decode(): integers at `q`, scales of the block's group at `s`, `b` counted within it.
struct FormatQ4_0 {
  static constexpr BlockLayout kLayout = kLayoutQ4_0;
  static constexpr int kBits = 4, kOffsetShift = 3, kParts = 1;
  static constexpr bool kMinimum = false;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t, DecodedBlock<1>& block) {
    decode_nibbles(q, block.q);
    block.scale[0] = load_f16(halves(s));
  }
};

struct FormatQ4_1 {
  static constexpr BlockLayout kLayout = kLayoutQ4_1;
  static constexpr int kBits = 4, kOffsetShift = -1, kParts = 1;
  static constexpr bool kMinimum = true;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t, DecodedBlock<1>& block) {
    decode_nibbles(q, block.q);
    block.scale[0] = load_f16(halves(s));
    block.minimum = load_f16(halves(s + 32));
  }
};

struct FormatQ5_0 {
  static constexpr BlockLayout kLayout = kLayoutQ5_0;
  static constexpr int kBits = 5, kOffsetShift = 4, kParts = 1;
  static constexpr bool kMinimum = false;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t, DecodedBlock<1>& block) {
    decode_five_bits(q, block.q);
    block.scale[0] = load_f16(halves(s));
  }
};

struct FormatQ5_1 {
  static constexpr BlockLayout kLayout = kLayoutQ5_1;
  static constexpr int kBits = 5, kOffsetShift = -1, kParts = 1;
  static constexpr bool kMinimum = true;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t, DecodedBlock<1>& block) {
    decode_five_bits(q, block.q);
    block.scale[0] = load_f16(halves(s));
    block.minimum = load_f16(halves(s + 32));
  }
};

struct FormatQ8_0 {
  static constexpr BlockLayout kLayout = kLayoutQ8_0;
  static constexpr int kBits = 8, kOffsetShift = kSignedShift, kParts = 1;
  static constexpr bool kMinimum = false;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t, DecodedBlock<1>& block) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) block.q[g] = from_signed(load_bytes(q + 64 * g));
    block.scale[0] = load_f16(halves(s));
  }
};

struct FormatQ4_K {
  static constexpr BlockLayout kLayout = kLayoutQ4_K;
  static constexpr int kBits = 4, kOffsetShift = -1, kParts = 1;
  static constexpr bool kMinimum = true;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t b, DecodedBlock<1>& block) {
    decode_nibbles(q, block.q);
    decode_k_scales(s, b, block);
  }
};

struct FormatQ5_K {
  static constexpr BlockLayout kLayout = kLayoutQ5_K;
  static constexpr int kBits = 5, kOffsetShift = -1, kParts = 1;
  static constexpr bool kMinimum = true;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t b, DecodedBlock<1>& block) {
    decode_five_bits(q, block.q);
    decode_k_scales(s, b, block);
  }
};

struct FormatQ6_K {
  static constexpr BlockLayout kLayout = kLayoutQ6_K;
  static constexpr int kBits = 6, kOffsetShift = 5, kParts = 2;
  static constexpr bool kMinimum = false;
  static void decode(const std::uint8_t* q, const std::uint8_t* s, std::int64_t b, DecodedBlock<2>& block) {
    decode_six_bits(q, block.q);
    const F32 d = load_f16(halves(s));
    block.scale[0] = mul(d, load_i8_as_float(s + 32 + 32 * b));
    block.scale[1] = mul(d, load_i8_as_float(s + 48 + 32 * b));
  }
};

// A panel decoded into memory: 512 bytes, up to two scales and a minimum per block.
template <typename Format>
struct Expanded : Format {
  static constexpr std::int64_t kFloatsAt = kBlock * kPanel, kVectorBytes = kPanel * sizeof(float);
  static constexpr BlockLayout kLayout{kFloatsAt + 3 * kVectorBytes, 0, 1};

  static void encode(const DecodedBlock<Format::kParts>& block, std::uint8_t* to) {
    for (int g = 0; g < kBlock / 4; ++g) store_bytes(to + 64 * g, block.q[g]);
    auto* const floats = reinterpret_cast<float*>(to + kFloatsAt);
    for (int part = 0; part < Format::kParts; ++part) store(floats + part * kPanel, block.scale[part]);
    if (Format::kMinimum) store(floats + 2 * kPanel, block.minimum);
  }
  static void decode(const std::uint8_t* from, const std::uint8_t*, std::int64_t, DecodedBlock<Format::kParts>& block) {
#pragma GCC unroll 8
    for (int g = 0; g < kBlock / 4; ++g) block.q[g] = load_bytes(from + 64 * g);
    const auto* const floats = reinterpret_cast<const float*>(from + kFloatsAt);
    for (int part = 0; part < Format::kParts; ++part) block.scale[part] = load(floats + part * kPanel);
    if (Format::kMinimum) block.minimum = load(floats + 2 * kPanel);
  }
};

// Block b of a panel with `blocks` blocks.
template <typename Format>
inline void decode_block(const std::uint8_t* panel, std::int64_t blocks, std::int64_t b,
                         DecodedBlock<Format::kParts>& block) {
  constexpr BlockLayout kLayout = Format::kLayout;
  const std::uint8_t* const scales =
      panel + blocks * kLayout.integer_bytes + b / kLayout.scale_blocks * kLayout.scale_bytes;
  Format::decode(panel + b * kLayout.integer_bytes, scales, b % kLayout.scale_blocks, block);
}

}  // namespace
}  // namespace espalier::cpu
