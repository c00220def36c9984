// FusedInferAttentionScore V2 to V5: what the kernels check, and what they should (F38 to F43).
#include <algorithm>
#include <initializer_list>

#include "attention.h"

namespace ascend_fake {
namespace {

// The arguments that all versions share.
struct Arguments {
  const aclTensor* query;
  const aclTensorList* key;
  const aclTensorList* value;
  const aclTensor* pse;
  const aclTensor* mask;
  const aclIntArray* lengths;
  const aclIntArray* kv_lengths;
  const aclTensor* block_table;
  int64_t heads;
  double scale;
  int64_t before;
  int64_t after;
  const char* layout;
  int64_t kv_heads;
  int64_t sparse_mode;
  int64_t inner_precise;
  int64_t block_size;
  bool lse_flag;
  const aclTensor* out;
  const aclTensor* lse;
};

void refuse_unless(const OpCall& op, bool holds, const std::string& text) {
  op.need(holds, text, kTilingRefused);
}

Layout layout_of(const OpCall& op, const std::string& name) {
  refuse_unless(op, name == "BSND" || name == "BNSD" || name == "BSH", "layout " + name);
  return name == "BSND" ? Layout::kBsnd : name == "BNSD" ? Layout::kBnsd : Layout::kBsh;
}

// F38: query and heads.
void read_query(const OpCall& op, const Arguments& given, Attention& a) {
  a.heads = given.heads;
  a.kv_heads = given.kv_heads == 0 ? given.heads : given.kv_heads;
  refuse_unless(op, a.heads >= 1 && a.heads <= 256 && a.kv_heads >= 1 && a.kv_heads <= 256, "heads outside [1, 256]");
  refuse_unless(op, a.heads % a.kv_heads == 0 && a.heads / a.kv_heads <= 64,
                "query heads are no multiple of key heads");
  refuse_unless(op, a.q.rank() == (a.layout == Layout::kBsh ? 3 : 4), "the query's rank does not fit the layout");
  a.batch = a.q.dim(0);
  a.rows = a.q.dim(a.layout == Layout::kBnsd ? 2 : 1);
  if (a.layout == Layout::kBsh) {
    refuse_unless(op, a.q.dim(2) % a.heads == 0, "the query is not heads of one width");
    a.width = a.q.dim(2) / a.heads;
  } else {
    refuse_unless(op, a.q.dim(a.layout == Layout::kBnsd ? 1 : 2) == a.heads, "the query has another number of heads");
    a.width = a.q.dim(3);
  }
  refuse_unless(op, a.width % 16 == 0 && a.width <= 512, "the head size is no multiple of 16 up to 512");
}

// F38: one 16-bit type, all dense.
void check_types(const OpCall& op, const Attention& a) {
  op.need(is_16_bit_float(a.q.type) && a.out.type == a.q.type, "query and output are not of one 16-bit type");
  op.need(a.out.dims == a.q.dims, "the output is not like the query");
  op.violation(38, !a.q.dense() || !a.out.dense(), "query or output is not dense");
  op.need(a.keys.size() == a.values.size(), "keys and values differ in number");
  for (size_t i = 0; i < a.keys.size(); ++i) {
    op.need(a.keys[i].type == a.q.type && a.values[i].type == a.q.type, "keys or values of another type");
    op.need(a.keys[i].dims == a.values[i].dims, "keys and values differ in shape", kTilingRefused);
    op.violation(38, !a.keys[i].dense() || !a.values[i].dense(), "keys or values are not dense");
  }
}

Shape unpaged_shape(const Attention& a, int64_t batch, int64_t keys) {
  if (a.layout == Layout::kBsnd) return {batch, keys, a.kv_heads, a.width};
  if (a.layout == Layout::kBnsd) return {batch, a.kv_heads, keys, a.width};
  return {batch, keys, a.kv_heads * a.width};
}

void read_lengths(const OpCall& op, const std::optional<Shape>& given, int64_t most, Attention& a) {
  if (!given) {
    a.lengths.assign(static_cast<size_t>(a.batch), most);
    return;
  }
  const int64_t count = static_cast<int64_t>(given->size());
  refuse_unless(op, count == 1 || count >= a.batch, "neither one length nor one for each sequence");
  for (int64_t b = 0; b < a.batch; ++b) {
    const int64_t length = (*given)[static_cast<size_t>(count == 1 ? 0 : b)];
    refuse_unless(op, length >= 1 && length <= most,
                  "length " + std::to_string(length) + " of " + std::to_string(most));
    a.lengths.push_back(length);
  }
}

// Keys of one tensor for all sequences, or one each. The columns that a mask must have.
int64_t read_unpaged(const OpCall& op, const std::optional<Shape>& lengths, Attention& a) {
  const bool each = a.keys.size() > 1;
  refuse_unless(op, !each || static_cast<int64_t>(a.keys.size()) == a.batch,
                "neither one key tensor nor one for each sequence");
  int64_t least = 0;
  for (const Operand& key : a.keys) {
    const int64_t keys = key.rank() < 3 ? 0 : key.dim(a.layout == Layout::kBnsd ? 2 : 1);
    refuse_unless(op, key.dims == unpaged_shape(a, each ? 1 : a.batch, keys), "keys of shape " + text_of(key.dims));
    least = least == 0 ? keys : std::min(least, keys);
  }
  read_lengths(op, lengths, least, a);
  return a.longest();
}

// F41. The columns that a mask must have: kernels differ in whether they look at lengths or at the table.
int64_t read_paged(const OpCall& op, const Arguments& given, const std::optional<Shape>& lengths, Attention& a) {
  refuse_unless(op, a.keys.size() == 1, "a paged cache is one tensor");
  const Operand& cache = a.keys[0];
  op.violation(41, cache.rank() == 5, "a 5-D cache, whose kernel does not check masks");
  a.block = given.block_size;
  refuse_unless(op, a.block >= 128 && a.block <= 512 && a.block % 128 == 0, "block size " + std::to_string(a.block));
  refuse_unless(op, cache.rank() == 3 && cache.dim(1) == a.block && cache.dim(2) == a.kv_heads * a.width,
                "the cache is not [blocks, block, heads * width]");
  refuse_unless(op, a.kv_heads * a.width <= 65535, "a row of the cache is too wide");
  const Operand& table = *a.table;
  refuse_unless(op, table.type == ACL_INT32 && table.rank() == 2 && table.dim(0) == a.batch,
                "the table is not i32 [B, blocks]");
  op.violation(41, !table.dense(), "the table is not dense");
  refuse_unless(op, lengths.has_value(), "a paged cache without lengths");
  read_lengths(op, lengths, table.dim(1) * a.block, a);
  return std::max(a.longest(), table.dim(1) * a.block);
}

// F39, F40.
void check_mask(const OpCall& op, const Arguments& given, const Attention& a, int64_t columns) {
  const int64_t mode = given.sparse_mode;
  const bool one_row = a.rows == 1;
  if (one_row)
    refuse_unless(op, given.inner_precise == 0 || given.inner_precise == 1, "innerPrecise above 1 with one row");
  op.violation(40, !one_row && given.inner_precise != 2 && given.inner_precise != 3,
               "innerPrecise below 2 with several rows");
  op.violation(40, mode == 0 && (given.before < columns || given.after < columns), "pre or next tokens cut a band");
  if (!a.mask) {
    refuse_unless(op, mode == 0, "sparse mode " + std::to_string(mode) + " without a mask");
    return;
  }
  const Operand& mask = *a.mask;
  refuse_unless(op, mode == 0 || mode == 1, "sparse mode " + std::to_string(mode) + " with a mask of our own");
  refuse_unless(op, mask.type == ACL_BOOL || mask.type == ACL_UINT8 || mask.type == ACL_INT8,
                "a mask that is not of bytes");
  refuse_unless(op, mask.rank() == 4 && mask.dim(1) == 1, "the mask is not [1 or B, 1, rows, columns]");
  refuse_unless(op, mask.dim(0) == 1 || mask.dim(0) == a.batch, "the mask has another batch");
  refuse_unless(op, mask.dim(2) >= a.rows && mask.dim(3) >= columns, "the mask has too few rows or columns");
  op.violation(38, !mask.dense(), "the mask is not dense");
  op.violation(39, one_row, "one row with a mask: from key 512 on it is silently ignored");
}

// Which version runs on which chip.
void check_attention_chip(const OpCall& op, int version) {
  const Fake& f = op.fake();
  op.need(!f.is_soc("Ascend310P"), "no fused attention on this chip", kNoKernel);
  op.need(!f.is_soc("Ascend950") || f.options.profile < 91 || version == 5, "only V5 on this chip", kNoKernel);
  op.violation(4, f.is_soc("Ascend910_93") && f.options.profile < 91 && version < 4,
               "not documented for this chip before 9.0");
  op.violation(4, !f.is_soc("Ascend950") && version == 5, "documented for another chip only");
}

void attend(OpCall& op, const Arguments& given, int version) {
  check_attention_chip(op, version);
  Attention a;
  a.q = op.in(given.query, "query");
  a.keys = op.list(given.key, "key");
  a.values = op.list(given.value, "value");
  a.mask = op.maybe_in(given.mask, "attenMask");
  a.table = op.maybe_in(given.block_table, "blockTable");
  a.out = op.out(given.out, "attentionOut");
  if (given.lse != nullptr && given.lse_flag) a.lse = op.out(given.lse, "softmaxLse");
  op.violation(42, given.pse != nullptr, "pseShift is given: wrong or NaN on cards");
  op.violation(43, given.lse != nullptr && !given.lse_flag, "softmaxLse without its flag");
  op.need(!given.lse_flag || a.lse.has_value(), "softmaxLse is null", kNull);
  a.layout = layout_of(op, op.word(given.layout, "inputLayout"));
  a.scale = given.scale;
  read_query(op, given, a);
  check_types(op, a);
  const std::optional<Shape> rows = op.maybe_integers(given.lengths, "actualSeqLengths");
  op.violation(41, rows && std::any_of(rows->begin(), rows->end(), [&](int64_t n) { return n != a.rows; }),
               "query lengths other than the query's rows");
  const std::optional<Shape> lengths = op.maybe_integers(given.kv_lengths, "actualSeqLengthsKv");
  const int64_t columns = a.table ? read_paged(op, given, lengths, a) : read_unpaged(op, lengths, a);
  check_mask(op, given, a, columns);
  op.need(!a.lse || (a.lse->type == ACL_FLOAT && a.lse->dims == Shape{a.batch, a.heads, a.rows, 1}),
          "softmaxLse is not f32 [B, N, S, 1]");
  op.runs([a](OpRun& run) { run_attention(run, a); });
}

void refuse_extras(OpCall& op, std::initializer_list<const void*> extras, std::initializer_list<int64_t> modes) {
  for (const void* extra : extras) op.unused(extra, "an optional argument of the attention", 38);
  for (const int64_t mode : modes) op.violation(38, mode != 0, "a mode of quantisation");
}

}  // namespace

#define ASCEND_FAKE_ATTENTION_ARGUMENTS                                                                             \
  {                                                                                                                 \
    query, key, value, pseShift, attenMask, actualSeqLengths, actualSeqLengthsKv, blockTable, numHeads, scaleValue, \
        preTokens, nextTokens, inputLayout, numKeyValueHeads, sparseMode, innerPrecise, blockSize, softmaxLseFlag,  \
        attentionOut, softmaxLse                                                                                    \
  }
#define ASCEND_FAKE_ATTENTION_EXTRAS                                                                               \
  deqScale1, quantScale1, deqScale2, quantScale2, quantOffset2, antiquantScale, antiquantOffset, queryPaddingSize, \
      kvPaddingSize, keyAntiquantScale, keyAntiquantOffset, valueAntiquantScale, valueAntiquantOffset,             \
      keySharedPrefix, valueSharedPrefix, actualSharedPrefixLen
#define ASCEND_FAKE_ATTENTION_MODES antiquantMode, keyAntiquantMode, valueAntiquantMode

ASCEND_FAKE_OP(FusedInferAttentionScoreV2)
aclnnStatus aclnnFusedInferAttentionScoreV2GetWorkspaceSize(ACLNN_ATTENTION_HEAD, ACLNN_ATTENTION_NUMBERS,
                                                            ACLNN_ATTENTION_OUT, uint64_t* size,
                                                            aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(FusedInferAttentionScoreV2, [&](OpCall& op) {
    refuse_extras(op, {ASCEND_FAKE_ATTENTION_EXTRAS}, {ASCEND_FAKE_ATTENTION_MODES});
    attend(op, ASCEND_FAKE_ATTENTION_ARGUMENTS, 2);
  });
}

ASCEND_FAKE_OP(FusedInferAttentionScoreV3)
aclnnStatus aclnnFusedInferAttentionScoreV3GetWorkspaceSize(ACLNN_ATTENTION_HEAD, ACLNN_ATTENTION_ROPE,
                                                            ACLNN_ATTENTION_NUMBERS, ACLNN_ATTENTION_OUT,
                                                            uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(FusedInferAttentionScoreV3, [&](OpCall& op) {
    refuse_extras(op, {ASCEND_FAKE_ATTENTION_EXTRAS, queryRope, keyRope, keyRopeAntiquantScale},
                  {ASCEND_FAKE_ATTENTION_MODES});
    attend(op, ASCEND_FAKE_ATTENTION_ARGUMENTS, 3);
  });
}

ASCEND_FAKE_OP_SINCE(FusedInferAttentionScoreV4, 85)
aclnnStatus aclnnFusedInferAttentionScoreV4GetWorkspaceSize(ACLNN_ATTENTION_HEAD, ACLNN_ATTENTION_ROPE,
                                                            ACLNN_ATTENTION_SINK, ACLNN_ATTENTION_NUMBERS,
                                                            int64_t queryQuantMode, ACLNN_ATTENTION_OUT, uint64_t* size,
                                                            aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(FusedInferAttentionScoreV4, [&](OpCall& op) {
    refuse_extras(
        op, {ASCEND_FAKE_ATTENTION_EXTRAS, queryRope, keyRope, keyRopeAntiquantScale, dequantScaleQuery, learnableSink},
        {ASCEND_FAKE_ATTENTION_MODES, queryQuantMode});
    attend(op, ASCEND_FAKE_ATTENTION_ARGUMENTS, 4);
  });
}

ASCEND_FAKE_OP_SINCE(FusedInferAttentionScoreV5, 91)
aclnnStatus aclnnFusedInferAttentionScoreV5GetWorkspaceSize(ACLNN_ATTENTION_HEAD, ACLNN_ATTENTION_ROPE,
                                                            ACLNN_ATTENTION_SINK, const aclIntArray* qStartIdx,
                                                            const aclIntArray* kvStartIdx, ACLNN_ATTENTION_NUMBERS,
                                                            int64_t queryQuantMode, int64_t pseType,
                                                            ACLNN_ATTENTION_OUT, uint64_t* size,
                                                            aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(FusedInferAttentionScoreV5, [&](OpCall& op) {
    refuse_extras(op,
                  {ASCEND_FAKE_ATTENTION_EXTRAS, queryRope, keyRope, keyRopeAntiquantScale, dequantScaleQuery,
                   learnableSink, qStartIdx, kvStartIdx},
                  {ASCEND_FAKE_ATTENTION_MODES, queryQuantMode, pseType});
    attend(op, ASCEND_FAKE_ATTENTION_ARGUMENTS, 5);
  });
}

}  // namespace ascend_fake
