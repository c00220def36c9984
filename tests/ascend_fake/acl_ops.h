// The operators of aclnn that the fake computes, retyped. Each has two phases: aclnnXxxGetWorkspaceSize(arguments,
// workspaceSize, executor) and aclnnXxx(workspace, workspaceSize, executor, stream).
#pragma once

#include "acl_types.h"

#define ACLNN_OP(Name, ...)                                                                                          \
  ACL_API aclnnStatus aclnn##Name##GetWorkspaceSize(__VA_ARGS__, uint64_t* workspaceSize, aclOpExecutor** executor); \
  ACL_API aclnnStatus aclnn##Name(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream)

namespace ascend_fake {
extern "C" {

// Rows by index.
ACLNN_OP(Embedding, const aclTensor* weight, const aclTensor* indices, aclTensor* out);
ACLNN_OP(GatherV2, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out);
ACLNN_OP(IndexSelect, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out);
ACLNN_OP(InplaceIndexCopy, aclTensor* selfRef, int64_t dim, const aclTensor* index, const aclTensor* source);
ACLNN_OP(ScatterPaKvCache, const aclTensor* key, aclTensor* keyCacheRef, const aclTensor* slotMapping,
         const aclTensor* value, aclTensor* valueCacheRef, const aclTensor* compressLens,
         const aclTensor* compressSeqOffset, const aclTensor* seqLens, char* cacheMode, char* scatterMode,
         const aclIntArray* strides, const aclIntArray* offsets);

// Norms, rotation, activations.
ACLNN_OP(RmsNorm, const aclTensor* x, const aclTensor* gamma, double epsilon, aclTensor* yOut, aclTensor* rstdOut);
ACLNN_OP(AddRmsNorm, const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma, double epsilon, aclTensor* yOut,
         aclTensor* rstdOut, aclTensor* xOut);
ACLNN_OP(RotaryPositionEmbedding, const aclTensor* x, const aclTensor* cos, const aclTensor* sin, int64_t mode,
         aclTensor* out);
ACLNN_OP(ApplyRotaryPosEmbV2, aclTensor* query, aclTensor* key, const aclTensor* cos, const aclTensor* sin,
         int64_t layout, char* rotaryMode);
ACLNN_OP(SwiGlu, const aclTensor* x, int64_t dim, aclTensor* out);
ACLNN_OP(Silu, const aclTensor* self, aclTensor* out);

// Matrices.
ACLNN_OP(Mm, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType);
ACLNN_OP(Matmul, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType);
ACLNN_OP(BatchMatMul, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType);
ACLNN_OP(MatmulWeightNz, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType);
ACLNN_OP(BatchMatMulWeightNz, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType);
ACLNN_OP(WeightQuantBatchMatmulV2, const aclTensor* x, const aclTensor* weight, const aclTensor* antiquantScale,
         const aclTensor* antiquantOffset, const aclTensor* quantScale, const aclTensor* quantOffset,
         const aclTensor* bias, int antiquantGroupSize, const aclTensor* y);
ACLNN_OP(TransMatmulWeight, aclTensor* mmWeightRef);
ACL_API aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray* tensorShape, aclDataType dataType,
                                                     uint64_t* weightTensorSize);

// Element by element.
ACLNN_OP(Add, const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out);
ACLNN_OP(InplaceAdd, aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha);
ACLNN_OP(Adds, const aclTensor* self, const aclScalar* other, const aclScalar* alpha, aclTensor* out);
ACLNN_OP(Mul, const aclTensor* self, const aclTensor* other, aclTensor* out);
ACLNN_OP(Muls, const aclTensor* self, const aclScalar* other, aclTensor* out);
ACLNN_OP(InplaceMuls, aclTensor* selfRef, const aclScalar* other);
ACLNN_OP(NanToNum, const aclTensor* self, float nan, float posinf, float neginf, aclTensor* out);
ACLNN_OP(Cast, const aclTensor* self, aclDataType dtype, aclTensor* out);
ACLNN_OP(InplaceCopy, aclTensor* selfRef, const aclTensor* src);
ACLNN_OP(InplaceMaskedFillScalar, aclTensor* selfRef, const aclTensor* mask, const aclScalar* value);
ACLNN_OP(SWhere, const aclTensor* condition, const aclTensor* self, const aclTensor* other, aclTensor* out);
ACLNN_OP(EqTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);

// Along a dimension.
ACLNN_OP(Softmax, const aclTensor* self, int64_t dim, aclTensor* out);
ACLNN_OP(LogSumExp, const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out);
ACLNN_OP(Amax, const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out);
ACLNN_OP(Amin, const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out);
ACLNN_OP(All, const aclTensor* self, const aclIntArray* dim, bool keepdim, aclTensor* out);
ACLNN_OP(ArgMax, const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out);
ACLNN_OP(Topk, const aclTensor* self, int64_t k, int64_t dim, bool largest, bool sorted, aclTensor* valuesOut,
         aclTensor* indicesOut);
ACLNN_OP(Sort, const aclTensor* self, bool stable, int64_t dim, bool descending, aclTensor* valuesOut,
         aclTensor* indicesOut);

// Shape.
ACLNN_OP(Cat, const aclTensorList* tensors, int64_t dim, aclTensor* out);
ACLNN_OP(Permute, const aclTensor* self, const aclIntArray* dims, aclTensor* out);

// Fused attention: V3 adds split rope, V4 a scale of the query and a sink, V5 beginnings and a kind of shift.
#define ACLNN_ATTENTION_HEAD                                                                                         \
  const aclTensor *query, const aclTensorList *key, const aclTensorList *value, const aclTensor *pseShift,           \
      const aclTensor *attenMask, const aclIntArray *actualSeqLengths, const aclIntArray *actualSeqLengthsKv,        \
      const aclTensor *deqScale1, const aclTensor *quantScale1, const aclTensor *deqScale2,                          \
      const aclTensor *quantScale2, const aclTensor *quantOffset2, const aclTensor *antiquantScale,                  \
      const aclTensor *antiquantOffset, const aclTensor *blockTable, const aclTensor *queryPaddingSize,              \
      const aclTensor *kvPaddingSize, const aclTensor *keyAntiquantScale, const aclTensor *keyAntiquantOffset,       \
      const aclTensor *valueAntiquantScale, const aclTensor *valueAntiquantOffset, const aclTensor *keySharedPrefix, \
      const aclTensor *valueSharedPrefix, const aclIntArray *actualSharedPrefixLen
#define ACLNN_ATTENTION_ROPE \
  const aclTensor *queryRope, const aclTensor *keyRope, const aclTensor *keyRopeAntiquantScale
#define ACLNN_ATTENTION_SINK const aclTensor *dequantScaleQuery, const aclTensor *learnableSink
#define ACLNN_ATTENTION_NUMBERS                                                                                     \
  int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens, char *inputLayout,                    \
      int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise, int64_t blockSize, int64_t antiquantMode, \
      bool softmaxLseFlag, int64_t keyAntiquantMode, int64_t valueAntiquantMode
#define ACLNN_ATTENTION_OUT const aclTensor *attentionOut, const aclTensor *softmaxLse

ACLNN_OP(FusedInferAttentionScoreV2, ACLNN_ATTENTION_HEAD, ACLNN_ATTENTION_NUMBERS, ACLNN_ATTENTION_OUT);
ACLNN_OP(FusedInferAttentionScoreV3, ACLNN_ATTENTION_HEAD, ACLNN_ATTENTION_ROPE, ACLNN_ATTENTION_NUMBERS,
         ACLNN_ATTENTION_OUT);
ACLNN_OP(FusedInferAttentionScoreV4, ACLNN_ATTENTION_HEAD, ACLNN_ATTENTION_ROPE, ACLNN_ATTENTION_SINK,
         ACLNN_ATTENTION_NUMBERS, int64_t queryQuantMode, ACLNN_ATTENTION_OUT);
ACLNN_OP(FusedInferAttentionScoreV5, ACLNN_ATTENTION_HEAD, ACLNN_ATTENTION_ROPE, ACLNN_ATTENTION_SINK,
         const aclIntArray* qStartIdx, const aclIntArray* kvStartIdx, ACLNN_ATTENTION_NUMBERS, int64_t queryQuantMode,
         int64_t pseType, ACLNN_ATTENTION_OUT);
}  // extern "C"
}  // namespace ascend_fake
