// The prototypes of acl.h against those of the fake, which were typed apart from the same documents: a slip in one of
// them shows here, before it shows as a number in a wrong register. cmake/ascend_prototypes.cmake compares the same
// list with CANN's own headers where they are installed.
#include <gtest/gtest.h>

#include "ascend_fake/acl_ops.h"
#include "ascend_fake/acl_runtime.h"

#define ESPALIER_THEIRS(name) ascend_fake::name
#include "device/ascend/testing/prototypes.h"

ESPALIER_SAME(aclInit);
ESPALIER_SAME(aclFinalize);
ESPALIER_SAME(aclGetRecentErrMsg);
ESPALIER_SAME(aclrtGetVersion);
ESPALIER_SAME(aclrtGetSocName);
ESPALIER_SAME(aclrtGetDeviceCount);
ESPALIER_SAME(aclrtGetMemInfo);
ESPALIER_SAME(aclrtSetDevice);
ESPALIER_SAME(aclrtResetDevice);
ESPALIER_SAME(aclrtCreateContext);
ESPALIER_SAME(aclrtDestroyContext);
ESPALIER_SAME(aclrtSetCurrentContext);
ESPALIER_SAME(aclrtSetSysParamOpt);
ESPALIER_SAME(aclrtCtxSetSysParamOpt);
ESPALIER_SAME(aclrtCreateStream);
ESPALIER_SAME(aclrtDestroyStream);
ESPALIER_SAME(aclrtSetStreamFailureMode);
ESPALIER_SAME(aclrtSynchronizeStreamWithTimeout);
ESPALIER_SAME(aclrtCreateEventExWithFlag);
ESPALIER_SAME(aclrtDestroyEvent);
ESPALIER_SAME(aclrtRecordEvent);
ESPALIER_SAME(aclrtSynchronizeEvent);
ESPALIER_SAME(aclrtSynchronizeEventWithTimeout);
ESPALIER_SAME(aclrtMalloc);
ESPALIER_SAME(aclrtFree);
ESPALIER_SAME(aclrtMallocHost);
ESPALIER_SAME(aclrtFreeHost);
ESPALIER_SAME(aclrtMemcpyAsync);
ESPALIER_SAME(aclrtMemsetAsync);
ESPALIER_SAME(aclmdlRICaptureBegin);
ESPALIER_SAME(aclmdlRICaptureEnd);
ESPALIER_SAME(aclmdlRIExecuteAsync);
ESPALIER_SAME(aclmdlRIDestroy);
ESPALIER_SAME(aclCreateTensor);
ESPALIER_SAME(aclCreateTensorList);
ESPALIER_SAME(aclCreateScalar);
ESPALIER_SAME(aclCreateIntArray);
ESPALIER_SAME(aclDestroyTensor);
ESPALIER_SAME(aclDestroyTensorList);
ESPALIER_SAME(aclDestroyScalar);
ESPALIER_SAME(aclDestroyIntArray);
ESPALIER_SAME(aclDestroyAclOpExecutor);

ESPALIER_SAME_OP(Embedding);
ESPALIER_SAME_OP(IndexSelect);
ESPALIER_SAME_OP(RmsNorm);
ESPALIER_SAME_OP(Mm);
ESPALIER_SAME_OP(BatchMatMul);
ESPALIER_SAME_OP(RotaryPositionEmbedding);
ESPALIER_SAME_OP(InplaceIndexCopy);
ESPALIER_SAME_OP(SwiGlu);
ESPALIER_SAME_OP(Silu);
ESPALIER_SAME_OP(InplaceAdd);
ESPALIER_SAME_OP(Muls);
ESPALIER_SAME_OP(InplaceMuls);
ESPALIER_SAME_OP(Softmax);
ESPALIER_SAME_OP(NanToNum);
ESPALIER_SAME_OP(Cast);
ESPALIER_SAME_OP(InplaceCopy);
ESPALIER_SAME_OP(InplaceMaskedFillScalar);
ESPALIER_SAME_OP(SWhere);
ESPALIER_SAME_OP(Sort);
ESPALIER_SAME_OP(Amax);
ESPALIER_SAME_OP(Amin);
ESPALIER_SAME_OP(EqTensor);
ESPALIER_SAME_OP(LogSumExp);
ESPALIER_SAME_OP(Cat);
ESPALIER_SAME_OP(All);
ESPALIER_SAME_OP(FusedInferAttentionScoreV2);
ESPALIER_SAME_OP(FusedInferAttentionScoreV4);
ESPALIER_SAME_OP(FusedInferAttentionScoreV5);

namespace espalier::ascend {
namespace {

constexpr std::size_t kFunctions = 42, kOperators = 28;  // above

TEST(AscendPrototypes, AllOfTheTableIsCompared) {
  const Api api;
  EXPECT_EQ(api.all.size() - 1, kFunctions + 2 * kOperators) << "but for the name of the fake";
}

TEST(AscendPrototypes, AnotherWidthSignOrOrderIsAnotherPrototype) {
  EXPECT_TRUE(
      (kSamePrototype<AclCode(AclType, const AclTensor*), int(ascend_fake::aclDataType, ascend_fake::aclTensor*)>));
  EXPECT_FALSE((kSamePrototype<AclCode(std::int64_t), int(std::int32_t)>));
  EXPECT_FALSE((kSamePrototype<AclCode(std::int64_t), int(std::uint64_t)>));
  EXPECT_FALSE((kSamePrototype<AclCode(double, bool), int(bool, double)>));
  EXPECT_FALSE((kSamePrototype<AclCode(AclTensor*), int(ascend_fake::aclTensorList*)>));
  EXPECT_FALSE((kSamePrototype<AclCode(AclTensor*), int(ascend_fake::aclTensor**)>));
}

}  // namespace
}  // namespace espalier::ascend
