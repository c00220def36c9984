// For tests of the reference device: values in, values out.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "device/blocks.h"
#include "device/conformance/attention_scenario.h"
#include "device/conformance/placed_tensor.h"
#include "device/reference/reference_device.h"

namespace espalier {

class ReferenceCalls {
 public:
  using Floats = std::vector<float>;

  Floats rms_norm(const Floats& x, std::int64_t rows, const Floats& w, float eps) {
    const auto dim = static_cast<std::int64_t>(w.size());
    const PlacedTensor y(*device, DType::f32, rows, dim);
    device->rms_norm(place(*device, DType::f32, x, rows), place(*device, DType::f32, w, 1).view().reshaped({dim}), eps,
                     y);
    return y.values<float>();
  }

  Floats linear(const Floats& x, std::int64_t rows, std::span<const WeightPart> parts, const Floats& bias = {}) {
    const auto weight = device->load_weight(parts);
    const PlacedTensor input = place(*device, DType::f32, x, rows);
    const PlacedTensor y(*device, DType::f32, rows, weight->outputs());
    const PlacedTensor b = place(*device, DType::f32, bias.empty() ? Floats(1) : bias, 1);
    const Projection projection{weight.get(), bias.empty() ? ConstView() : b.view().reshaped({weight->outputs()}), y};
    device->linear(input, {&projection, 1});
    return y.values<float>();
  }
  Floats linear(const Floats& x, const Floats& w, const Floats& bias = {}) {
    const auto inputs = static_cast<std::int64_t>(x.size());
    const WeightPart part{DType::f32, static_cast<std::int64_t>(w.size()) / inputs, inputs,
                          std::as_bytes(std::span(w))};
    return linear(x, 1, {&part, 1}, bias);
  }

  Floats rope(const Floats& x, std::int64_t rows, std::int64_t heads, const std::vector<std::int32_t>& position,
              const Floats& cosine, const Floats& sine, std::int64_t positions) {
    const PlacedTensor y = place(*device, DType::f32, x, rows);
    device->rope(y.view().reshaped({rows, heads, y.view().dim(1) / heads}),
                 place(*device, DType::i32, position, 1).view().reshaped({rows}),
                 place(*device, DType::f32, cosine, positions), place(*device, DType::f32, sine, positions));
    return y.values<float>();
  }

  Floats swiglu(const Floats& x) {
    const PlacedTensor y(*device, DType::f32, 1, static_cast<std::int64_t>(x.size()) / 2);
    device->swiglu(place(*device, DType::f32, x, 1), y);
    return y.values<float>();
  }

  Floats silu(const Floats& x) {
    const PlacedTensor y = place(*device, DType::f32, x, 1);
    device->silu(y);
    return y.values<float>();
  }

  float log_sum_exp(const Floats& x, float scale = 1.0f) {
    const PlacedTensor y(*device, DType::f32, 1, 1);
    device->log_sum_exp(place(*device, DType::f32, x, 1), scale, y.view().reshaped({1}));
    return y.values<float>()[0];
  }

  std::vector<std::int32_t> argmax(const Floats& x, std::int64_t rows) {
    const PlacedTensor id(*device, DType::i32, 1, rows);
    device->argmax(place(*device, DType::f32, x, rows), id.view().reshaped({rows}));
    return id.values<std::int32_t>();
  }

  struct TopK {
    Floats value;
    std::vector<std::int32_t> id;
  };
  TopK top_k(const Floats& x, std::int64_t k) {
    const PlacedTensor value(*device, DType::f32, 1, k), id(*device, DType::i32, 1, k);
    device->top_k(place(*device, DType::f32, x, 1), value, id);
    return {value.values<float>(), id.values<std::int32_t>()};
  }

  // One query, with scale 1, over keys in logical order; all but the last are context or, the last `ancestors` of
  // those, ancestors. The first has the ordinal `begin`; if all are ancestors, so are `hidden` ones before it.
  Floats attend(const Floats& q, const std::vector<Floats>& k, const std::vector<Floats>& v, std::int64_t ancestors = 0,
                AttentionForm form = AttentionForm::lists, std::int64_t begin = 0, std::int64_t hidden = 0) {
    AttentionScenario s({.rows = 1,
                         .sequences = 1,
                         .longest_prefix = 0,
                         .block_size = 4,
                         .kv_heads = 1,
                         .group = 1,
                         .dim = static_cast<std::int64_t>(q.size())},
                        1);
    const auto keys = begin + static_cast<std::int64_t>(k.size());
    const Floats unseen(static_cast<std::size_t>(begin) * q.size(), std::numeric_limits<float>::quiet_NaN());
    s.query = q;
    s.k = {unseen};
    s.v = {unseen};
    for (const Floats& key : k) s.k[0].insert(s.k[0].end(), key.begin(), key.end());
    for (const Floats& value : v) s.v[0].insert(s.v[0].end(), value.begin(), value.end());
    s.written = {keys};
    s.blocks_per_sequence = (keys + 3) / 4;
    s.blocks = s.blocks_per_sequence + 1;
    s.rows = {
        {.sequence = 0, .position = keys - 1, .begin = begin, .end = keys - 1 - ancestors - hidden, .ancestors = {}}};
    for (std::int64_t p = keys - 1 - ancestors; p < keys - 1; ++p) s.rows[0].ancestors.push_back(p);
    return run_attention(*device, s, DType::f32, form, 1, 1.0f);
  }

  std::unique_ptr<Device> device = make_reference_device();
};

}  // namespace espalier
