// A call of the fused attention with defaults that obey every rule; a test changes what it is about.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "card_test_fixture.h"

namespace ascend_fake {

class AttentionCard : public Card {
 protected:
  struct Call {
    int64_t batch = 1, rows = 2, heads = 4, kv_heads = 2, width = 16, blocks = 3;
    int64_t keys = 256;     // of a sequence
    int64_t columns = 256;  // of the mask
    int64_t mask_rows = 2, mask_batch = 1, mask_heads = 1;
    std::vector<uint8_t> mask{};  // empty: keys below 10 + row are seen; no_mask: none is given
    bool no_mask = false, flat_mask = false, paged = true, no_lengths = false, pse = false, lse_tensor = false,
         lse_flag = false;
    aclDataType mask_type = ACL_UINT8, cache_type = ACL_FLOAT16, table_type = ACL_INT32;
    std::vector<int32_t> table{2, 0};
    Dims lengths{256};
    int64_t sparse_mode = 0, inner_precise = 2, block_size = 128, reach = 2147483647;
    std::string layout = "BSND";
    bool five_dimensions = false;  // an NZ cache
    int64_t value_blocks = 0;      // of a paged cache of values; 0: as many as of keys
    bool strided_table = false;    // every second entry of a wider one
    int version = 2;
    std::vector<float> k{}, v{};  // empty: some numbers
  };

  static std::vector<float> waves(size_t count, float step) {
    std::vector<float> values;
    for (size_t i = 0; i < count; ++i) values.push_back(std::round(64 * std::sin(step * static_cast<float>(i))) / 32);
    return values;
  }

  size_t cache_elements(const Call& call) const {
    const int64_t slots = call.paged ? call.blocks * 128 : call.batch * call.keys;
    return static_cast<size_t>(slots * call.kv_heads * call.width);
  }

  std::vector<uint8_t> mask_of(const Call& call) const {
    if (!call.mask.empty()) return call.mask;
    std::vector<uint8_t> mask;
    for (int64_t row = 0; row < call.mask_rows * call.mask_batch * call.mask_heads; ++row) {
      for (int64_t column = 0; column < call.columns; ++column) mask.push_back(column < 10 + row ? 0 : 1);
    }
    return mask;
  }

  // What a call is given.
  struct Given {
    aclTensor *query, *mask, *table, *out, *lse;
    aclTensorList *keys, *values;
    aclIntArray* lengths;
  };

  // Both phases; the output is then at out_.
  int attend(const Call& call) { return issue(call, given(call)); }

  Given given(const Call& call) {
    q_ = waves(static_cast<size_t>(call.batch * call.rows * call.heads * call.width), 0.7f);
    k_ = call.k.empty() ? waves(cache_elements(call), 0.3f) : call.k;
    v_ = call.v.empty() ? waves(cache_elements(call), 0.2f) : call.v;
    const auto per_layout = [&](int64_t tokens, int64_t heads) {
      if (call.layout == "BNSD") return Dims{call.batch, heads, tokens, call.width};
      if (call.layout == "BSH") return Dims{call.batch, tokens, heads * call.width};
      return Dims{call.batch, tokens, heads, call.width};
    };
    Dims cache = call.paged ? Dims{call.blocks, 128, call.kv_heads * call.width} : per_layout(call.keys, call.kv_heads);
    if (call.five_dimensions) cache = {call.blocks, call.kv_heads, call.width / 16, 128, 16};
    Given g{};
    g.query = tensor(ACL_FLOAT16, per_layout(call.rows, call.heads), cast_up(ACL_FLOAT16, q_));
    g.keys = list({tensor(call.cache_type, cache, cast_up(call.cache_type, k_))});
    if (call.value_blocks > 0) cache[0] = call.value_blocks;
    g.values = list({tensor(call.cache_type, cache, cast_up(call.cache_type, v_))});
    if (!call.no_mask) {
      const Dims dims = call.flat_mask ? Dims{call.mask_rows, call.columns}
                                       : Dims{call.mask_batch, call.mask_heads, call.mask_rows, call.columns};
      g.mask = tensor(call.mask_type, dims, upload(mask_of(call)));
    }
    if (call.paged) g.table = table_of(call);
    out_ = memory(q_.size() * 2);
    g.out = tensor(ACL_FLOAT16, per_layout(call.rows, call.heads), out_);
    lse_ = memory(static_cast<size_t>(call.batch * call.heads * call.rows) * 4);
    g.lse = call.lse_tensor ? tensor(ACL_FLOAT, {call.batch, call.heads, call.rows, 1}, lse_) : nullptr;
    g.lengths = call.no_lengths ? nullptr : ints(call.lengths);
    workspace();
    return g;
  }

  aclTensor* table_of(const Call& call) {
    const int64_t width = static_cast<int64_t>(call.table.size()) / call.batch;
    if (!call.strided_table) return tensor(call.table_type, {call.batch, width}, upload(call.table));
    std::vector<int32_t> wide;
    for (const int32_t block : call.table) wide.insert(wide.end(), {block, block});
    return view(call.table_type, {call.batch, width}, {2 * width, 2}, 0, upload(wide));
  }

  int issue(const Call& call, const Given& g) {
    const auto& [query, mask, table, out, lse, keys, values, lengths] = g;
    std::string layout = call.layout;
    Launch launch;
    aclTensor* pse = call.pse ? mask : nullptr;
    char* name = layout.data();
    int code = 0;
    PhaseTwo phase_two = aclnnFusedInferAttentionScoreV2;
#define HEAD_ARGUMENTS                                                                                             \
  query, keys, values, pse, mask, nullptr, lengths, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, \
      table, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr
#define NUMBER_ARGUMENTS                                                                               \
  call.heads, 0.25, call.reach, call.reach, name, call.kv_heads, call.sparse_mode, call.inner_precise, \
      call.block_size, 0, call.lse_flag, 0, 0
    if (call.version == 2) {
      code = aclnnFusedInferAttentionScoreV2GetWorkspaceSize(HEAD_ARGUMENTS, NUMBER_ARGUMENTS, out, lse, &launch.size,
                                                             &launch.executor);
    } else if (call.version == 3) {
      phase_two = aclnnFusedInferAttentionScoreV3;
      code = aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
          HEAD_ARGUMENTS, nullptr, nullptr, nullptr, NUMBER_ARGUMENTS, out, lse, &launch.size, &launch.executor);
    } else if (call.version == 4) {
      phase_two = aclnnFusedInferAttentionScoreV4;
      code = aclnnFusedInferAttentionScoreV4GetWorkspaceSize(HEAD_ARGUMENTS, nullptr, nullptr, nullptr, nullptr,
                                                             nullptr, NUMBER_ARGUMENTS, 0, out, lse, &launch.size,
                                                             &launch.executor);
    } else {
      phase_two = aclnnFusedInferAttentionScoreV5;
      code = aclnnFusedInferAttentionScoreV5GetWorkspaceSize(HEAD_ARGUMENTS, nullptr, nullptr, nullptr, nullptr,
                                                             nullptr, nullptr, nullptr, NUMBER_ARGUMENTS, 0, 0, out,
                                                             lse, &launch.size, &launch.executor);
    }
#undef HEAD_ARGUMENTS
#undef NUMBER_ARGUMENTS
    return code != 0 ? code : second(phase_two, launch);
  }

  // Where key c of sequence 0 lies in k_ and v_, for head g.
  size_t place_of_key(const Call& call, int64_t c, int64_t g) const {
    if (call.paged) c = call.table[static_cast<size_t>(c / 128)] * 128 + c % 128;
    const bool heads_first = !call.paged && call.layout == "BNSD";
    return static_cast<size_t>((heads_first ? g * call.keys + c : c * call.kv_heads + g) * call.width);
  }

  // Every head of every row of the first sequence, by the formula in double.
  void expect_formula(const Call& call, int64_t length, double tolerance = 0x1p-8) {
    const std::vector<float> result = cast_down(ACL_FLOAT16, out_, q_.size());
    const std::vector<uint8_t> mask = mask_of(call);
    for (int64_t r = 0; r < call.rows; ++r) {
      for (int64_t h = 0; h < call.heads; ++h) {
        const int64_t vector = call.layout == "BNSD" ? h * call.rows + r : r * call.heads + h;
        const size_t at = static_cast<size_t>(vector * call.width);
        std::vector<double> sums(static_cast<size_t>(call.width), 0);
        double total = 0;
        for (int64_t c = 0; c < length; ++c) {
          if (!call.no_mask && mask[static_cast<size_t>(r * call.columns + c)] != 0) continue;
          const size_t key = place_of_key(call, c, h / (call.heads / call.kv_heads));
          double score = 0;
          for (size_t d = 0; d < sums.size(); ++d) score += 0.25 * q_[at + d] * k_[key + d];
          total += std::exp(score);
          for (size_t d = 0; d < sums.size(); ++d) sums[d] += std::exp(score) * v_[key + d];
        }
        for (size_t d = 0; d < sums.size(); ++d) EXPECT_NEAR(result[at + d], sums[d] / total, tolerance);
      }
    }
  }

  std::vector<float> q_, k_, v_;
  void* out_ = nullptr;
  void* lse_ = nullptr;
};

}  // namespace ascend_fake
