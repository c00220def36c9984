// Weights from the layout of files to that of device memory, and rows of them as floats.
#include "device/cuda/float_fragments.h"
#include "device/cuda/float_panels.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/packed_layout.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPairs = kChunkBlocks / 2;

struct PackShape {
  std::int64_t outputs, inputs, row_bytes, groups, chunks;
};

PackShape pack_shape(DType type, std::int64_t outputs, std::int64_t inputs) {
  return {outputs, inputs, row_bytes(type, inputs), (outputs + kGroup - 1) / kGroup,
          (inputs + kBlock * kChunkBlocks - 1) / (kBlock * kChunkBlocks)};
}

__device__ std::int64_t thread_number() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

// Four elements from k on, a byte each; zeros behind the last output and the last input.
template <DType type>
__device__ std::uint32_t file_word(const std::uint8_t* stored, const PackShape& shape, std::int64_t n, std::int64_t k) {
  if (n >= shape.outputs || k >= shape.inputs) return 0;
  std::uint32_t word = 0;
  for (int j = 0; j < 4; ++j) {
    const int integer = file_integer(type, stored + n * shape.row_bytes, k + j);
    word |= static_cast<std::uint32_t>(integer & 0xff) << 8 * j;
  }
  return word;
}

// One lane's integers of a pair of blocks.
template <DType type>
__global__ void pack_integers(const std::uint8_t* stored, PackShape shape, std::uint8_t* packed) {
  wait_for_earlier_kernels();
  constexpr int kBits = block_format(type).bits;
  const std::int64_t i = thread_number();
  const int lane = static_cast<int>(i % kWarp), pair = static_cast<int>(i / kWarp % kPairs);
  const std::int64_t group = i / (kWarp * kPairs) % shape.groups, chunk = i / (kWarp * kPairs) / shape.groups;
  if (chunk >= shape.chunks) return;
  const int g = lane / 4, t = lane % 4;
  std::uint8_t* const piece = packed + piece_offset(type, group, chunk, shape.chunks);
  std::uint32_t word[2][2][2];  // [block][g, g + 8][half]
  for (int block = 0; block < 2; ++block)
    for (int upper = 0; upper < 2; ++upper)
      for (int half = 0; half < 2; ++half)
        word[block][upper][half] =
            file_word<type>(stored, shape, group * kGroup + g + 8 * upper,
                            (chunk * kChunkBlocks + 2 * pair + block) * kBlock + 16 * half + 4 * t);
  if constexpr (kBits == 8) {
    for (int block = 0; block < 2; ++block)
      reinterpret_cast<uint4*>(piece)[(2 * pair + block) * kWarp + lane] =
          make_uint4(word[block][0][0], word[block][1][0], word[block][0][1], word[block][1][1]);
    return;
  }
  const auto nibbles = [&](int block, int upper) {
    return (word[block][upper][0] & 0x0f0f0f0fu) | (word[block][upper][1] & 0x0f0f0f0fu) << 4;
  };
  reinterpret_cast<uint4*>(piece)[pair * kWarp + lane] =
      make_uint4(nibbles(0, 0), nibbles(0, 1), nibbles(1, 0), nibbles(1, 1));
  auto* const upper_bits = reinterpret_cast<std::uint32_t*>(piece + upper_bits_offset(kBits));
  if constexpr (kBits == 5) {
    std::uint32_t all = 0;
    for (int block = 0; block < 2; ++block)
      for (int upper = 0; upper < 2; ++upper)
        for (int half = 0; half < 2; ++half)
          all |= (word[block][upper][half] >> 4 & 0x01010101u) << (4 * block + 2 * upper + half);
    upper_bits[pair * kWarp + lane] = all;
  }
  if constexpr (kBits == 6) {
    for (int upper = 0; upper < 2; ++upper) {
      std::uint32_t all = 0;
      for (int block = 0; block < 2; ++block)
        for (int half = 0; half < 2; ++half)
          all |= (word[block][upper][half] >> 4 & 0x03030303u) << (4 * block + 2 * half);
      upper_bits[(pair * kWarp + lane) * 2 + upper] = all;
    }
  }
}

__device__ std::uint16_t file_half(const std::uint8_t* p) {
  return static_cast<std::uint16_t>(p[0] | p[1] << 8);
}

// The scales of one output of a piece.
template <DType type>
__global__ void pack_scales(const std::uint8_t* stored, PackShape shape, std::uint8_t* packed) {
  wait_for_earlier_kernels();
  constexpr BlockFormat kFormat = block_format(type);
  const std::int64_t i = thread_number();
  const int output = static_cast<int>(i % kGroup);
  const std::int64_t group = i / kGroup % shape.groups, chunk = i / kGroup / shape.groups;
  if (chunk >= shape.chunks) return;
  const std::int64_t n = group * kGroup + output;
  std::uint8_t* const scales = packed + piece_offset(type, group, chunk, shape.chunks) + scales_offset(kFormat.bits);
  auto* const halves = reinterpret_cast<std::uint16_t*>(scales);
  const std::uint8_t* const row = stored + n * shape.row_bytes;
  const std::uint8_t* const large = row + chunk * kFormat.file_bytes;  // of 256 elements
  const bool inside = n < shape.outputs;
  if constexpr (kFormat.scales == ScaleForm::k) {
    halves[output * 2] = inside ? file_half(large) : 0;
    halves[output * 2 + 1] = inside ? file_half(large + 2) : 0;
  }
  if constexpr (kFormat.scales == ScaleForm::q6_k) halves[output] = inside ? file_half(large + 208) : 0;
  for (int block = 0; block < kChunkBlocks; ++block) {
    const std::int64_t b = chunk * kChunkBlocks + block;
    const bool there = inside && b * kBlock < shape.inputs;
    const std::uint8_t* const small = row + b * kFormat.file_bytes;  // of 32 elements
    const int place = output * kChunkBlocks + block;
    if constexpr (kFormat.scales == ScaleForm::plain) halves[place] = there ? file_half(small) : 0;
    if constexpr (kFormat.scales == ScaleForm::with_minimum) {
      halves[place * 2] = there ? file_half(small) : 0;
      halves[place * 2 + 1] = there ? file_half(small + 2) : 0;
    }
    if constexpr (kFormat.scales == ScaleForm::k) {
      std::uint8_t scale = 0, minimum = 0;
      if (there) file_k_scales(large, block, scale, minimum);
      scales[64 + place * 2] = scale;
      scales[64 + place * 2 + 1] = minimum;
    }
    if constexpr (kFormat.scales == ScaleForm::q6_k)
      for (int half = 0; half < 2; ++half)
        scales[32 + place * 2 + half] = there ? large[192 + 2 * block + half] : std::uint8_t{0};
  }
}

__global__ void pack_f32(const float* stored, std::int64_t outputs, std::int64_t inputs, float* packed) {
  wait_for_earlier_kernels();
  const FloatPanels panels(outputs, inputs);
  const std::int64_t i = thread_number();
  if (i >= panels.elements()) return;
  const std::int64_t n = panels.output_of(i), k = panels.input_of(i);
  packed[i] = n < outputs && k < inputs ? stored[n * inputs + k] : 0.0f;
}

// Four neighbouring inputs of an output, zeros where there are none.
__global__ void pack_16_bits(const std::uint16_t* stored, std::int64_t outputs, std::int64_t inputs,
                             std::int64_t padded_outputs, std::uint16_t* packed) {
  wait_for_earlier_kernels();
  const std::int64_t chunks = float_chunks(inputs), quarters = chunks * (kFloatChunk / 4), i = thread_number();
  const std::int64_t n = i / quarters, first = i % quarters * 4;
  if (n >= padded_outputs) return;
  for (std::int64_t k = first; k < first + 4; ++k)
    packed[float_place(n, k, chunks)] = n < outputs && k < inputs ? stored[n * inputs + k] : std::uint16_t{0};
}

// w[n, k] of a packed block format, rounded as the contract says.
template <DType type>
__device__ float packed_value(const std::uint8_t* packed, std::int64_t chunks, std::int64_t n, std::int64_t k) {
  constexpr BlockFormat kFormat = block_format(type);
  const int g = static_cast<int>(n % 8), upper = static_cast<int>(n / 8 % 2);
  const int block = static_cast<int>(k / kBlock % kChunkBlocks), j = static_cast<int>(k % kBlock);
  const int half = j / 16, t = j % 16 / 4, byte = j % 4, lane = g * 4 + t, pair = block / 2, second = block % 2;
  const std::uint8_t* const piece = packed + piece_offset(type, n / kGroup, k / (kBlock * kChunkBlocks), chunks);
  int integer;
  if constexpr (kFormat.bits == 8) {
    integer = static_cast<std::int8_t>(piece[(block * kWarp + lane) * 16 + (2 * half + upper) * 4 + byte]);
  } else {
    integer = piece[(pair * kWarp + lane) * 16 + (2 * second + upper) * 4 + byte] >> 4 * half & 0x0f;
    const std::uint8_t* const bits = piece + upper_bits_offset(kFormat.bits);
    if constexpr (kFormat.bits == 5)
      integer |= (bits[(pair * kWarp + lane) * 4 + byte] >> (4 * second + 2 * upper + half) & 1) << 4;
    if constexpr (kFormat.bits == 6)
      integer |= (bits[((pair * kWarp + lane) * 2 + upper) * 4 + byte] >> (4 * second + 2 * half) & 3) << 4;
    integer -= kFormat.offset;
  }
  const std::uint8_t* const scales = piece + scales_offset(kFormat.bits);
  const auto half_at = [&](int i) { return widen_f16(reinterpret_cast<const std::uint16_t*>(scales)[i]); };
  const int output = 8 * upper + g, place = output * kChunkBlocks + block;
  const auto q = static_cast<float>(integer);
  if constexpr (kFormat.scales == ScaleForm::plain) {
    return half_at(place) * q;
  } else if constexpr (kFormat.scales == ScaleForm::with_minimum) {
    return half_at(place * 2) * q + half_at(place * 2 + 1);
  } else if constexpr (kFormat.scales == ScaleForm::k) {
    const float scale = half_at(output * 2) * static_cast<float>(scales[64 + place * 2]);
    const float minimum = -(half_at(output * 2 + 1) * static_cast<float>(scales[64 + place * 2 + 1]));
    return scale * q + minimum;
  } else {
    const auto small = static_cast<std::int8_t>(scales[32 + place * 2 + half]);
    return (half_at(output) * static_cast<float>(small)) * q;
  }
}

struct EmbedCall {
  const std::int32_t* token;
  std::int64_t first, outputs;
  Rows y;
};

template <DType type>
__global__ void embed_blocks(const std::uint8_t* packed, EmbedCall call) {
  wait_for_earlier_kernels();
  const std::int64_t k = thread_number(), r = blockIdx.y;
  const std::int64_t n = call.token[r] - call.first;
  if (k >= call.y.columns || n < 0 || n >= call.outputs) return;
  call.y.data[r * call.y.stride + k] =
      packed_value<type>(packed, (call.y.columns + kBlock * kChunkBlocks - 1) / (kBlock * kChunkBlocks), n, k);
}

template <typename Element>
__global__ void embed_floats(const typename Element::Stored* packed, EmbedCall call) {
  wait_for_earlier_kernels();
  const std::int64_t k = thread_number(), r = blockIdx.y;
  const std::int64_t n = call.token[r] - call.first;
  if (k >= call.y.columns || n < 0 || n >= call.outputs) return;
  float& y = call.y.data[r * call.y.stride + k];
  if constexpr (std::is_same_v<Element, F32Element>)
    y = packed[FloatPanels(call.outputs, call.y.columns).place(n, k)];
  else
    y = Element::widen(packed[float_place(n, k, float_chunks(call.y.columns))]);
}

std::int64_t padded(std::int64_t outputs) {
  return (outputs + kGroup - 1) / kGroup * kGroup;
}

}  // namespace

std::int64_t packed_bytes(DType type, std::int64_t outputs, std::int64_t inputs) {
  if (is_block_quantised(type)) {
    const PackShape shape = pack_shape(type, outputs, inputs);
    return shape.groups * shape.chunks * piece_bytes(type);
  }
  if (type == DType::f32) return FloatPanels(outputs, inputs).elements() * static_cast<std::int64_t>(sizeof(float));
  return padded(outputs) * float_chunks(inputs) * kFloatChunk * static_cast<std::int64_t>(sizeof(std::uint16_t));
}

void pack_weight(Queue queue, DType type, const std::byte* as_stored, std::int64_t outputs, std::int64_t inputs,
                 std::byte* packed) {
  if (is_block_quantised(type)) {
    const PackShape shape = pack_shape(type, outputs, inputs);
    const auto* const from = reinterpret_cast<const std::uint8_t*>(as_stored);
    auto* const to = reinterpret_cast<std::uint8_t*>(packed);
    const std::int64_t pieces = shape.groups * shape.chunks;
    with_format(type, [&](auto format) {
      launch(queue, "pack_integers", pack_integers<format()>,
             {{blocks_for(pieces * kPairs * kWarp, kThreads), 1, 1}, kThreads}, from, shape, to);
      launch(queue, "pack_scales", pack_scales<format()>, {{blocks_for(pieces * kGroup, kThreads), 1, 1}, kThreads},
             from, shape, to);
    });
    return;
  }
  const auto how = [&](std::int64_t threads) { return Launch{{blocks_for(threads, kThreads), 1, 1}, kThreads}; };
  if (type == DType::f32)
    launch(queue, "pack_f32", pack_f32, how(FloatPanels(outputs, inputs).elements()),
           reinterpret_cast<const float*>(as_stored), outputs, inputs, reinterpret_cast<float*>(packed));
  else
    launch(queue, "pack_16_bits", pack_16_bits, how(padded(outputs) * float_chunks(inputs) * (kFloatChunk / 4)),
           reinterpret_cast<const std::uint16_t*>(as_stored), outputs, inputs, padded(outputs),
           reinterpret_cast<std::uint16_t*>(packed));
}

void embed(Queue queue, const EmbedPart& part, const std::int32_t* token, Rows y) {
  const EmbedCall call{token, part.first, part.outputs, y};
  const Launch how{{blocks_for(y.columns, kThreads), static_cast<unsigned>(y.rows), 1}, kThreads};
  if (is_block_quantised(part.type)) {
    with_format(part.type, [&](auto format) {
      launch(queue, "embed", embed_blocks<format()>, how, reinterpret_cast<const std::uint8_t*>(part.packed), call);
    });
    return;
  }
  with_element(part.type, [&](auto element) {
    using Element = decltype(element);
    launch(queue, "embed", embed_floats<Element>, how, reinterpret_cast<const typename Element::Stored*>(part.packed),
           call);
  });
}

}  // namespace espalier::cuda
