// The part of AscendCL and aclnn that this device calls: handles, values and prototypes, typed again from their
// documentation, so that neither building nor testing needs CANN. Api is a table of addresses that a loader fills
// (library.h); its members are called like functions and are named after the symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace espalier::ascend {

// --- types -----------------------------------------------------------------------------------------------------------
struct AclTensor;
struct AclTensorList;
struct AclScalar;
struct AclIntArray;
struct AclExecutor;
using AclStream = void*;
using AclContext = void*;
using AclEvent = void*;
using AclGraph = void*;
using AclCode = int;  // of the runtime and of aclnn; 0 is success

enum class AclType : int { f32 = 0, f16 = 1, i32 = 3, u8 = 4, i64 = 9, boolean = 12, bf16 = 27 };
enum class AclFormat : int { nd = 2 };
enum class AclCopy : int { host_to_device = 1, device_to_host = 2 };
enum class AclMemoryPolicy : int { huge_first = 0 };
enum class AclMemoryKind : int { ddr = 0, hbm = 1 };
enum class AclCaptureMode : int { thread_local_mode = 1 };
enum class AclSystemOption : int { deterministic = 0 };
inline constexpr std::uint64_t kStopOnFailure = 1;
inline constexpr std::uint32_t kStreamProgress = 2;  // of an event for which the host waits, and no stream
inline constexpr std::int8_t kKeepType = 0;          // of a matrix product: as the inputs say
inline constexpr std::int8_t kAllowLessThanF32 = 1;  // all that a 310P has for f32

// Codes that this device does something about; the rest are only reported.
inline constexpr AclCode kRepeatedInit = 100002;
inline constexpr AclCode kStubLibrary = 100039;
inline constexpr AclCode kNoMemory = 207001;
inline constexpr AclCode kNoResource = 207005;
inline constexpr AclCode kNoStream = 207008;
inline constexpr AclCode kNoOperators = 561107;

// --- the table -------------------------------------------------------------------------------------------------------
// A symbol whose address the loader looks for. An optional one may be absent.
struct AnySymbol {
  std::string name;
  bool optional = false;
  void* address = nullptr;
};

template <typename Signature>
class Symbol;
template <typename Result, typename... Parameters>
class Symbol<Result(Parameters...)> : public AnySymbol {
 public:
  Symbol(std::vector<AnySymbol*>& all, std::string name, bool optional = false) : AnySymbol{std::move(name), optional} {
    all.push_back(this);
  }
  explicit operator bool() const { return address != nullptr; }
  Result operator()(Parameters... parameters) const {
    return instead ? instead(parameters...) : of_library(parameters...);
  }
  Result of_library(Parameters... parameters) const {
    return reinterpret_cast<Result (*)(Parameters...)>(address)(parameters...);
  }
  std::function<Result(Parameters...)> instead = {};  // of the library's function: for who looks on (testing/beside.h)
};

// An operator: the call that sizes its workspace and checks its arguments, and the one that launches it.
template <typename... Parameters>
struct Op {
  Op(std::vector<AnySymbol*>& all, const std::string& name, bool optional = false)
      : plan(all, name + "GetWorkspaceSize", optional), launch(all, name, optional) {}
  Symbol<AclCode(Parameters..., std::uint64_t*, AclExecutor**)> plan;
  Symbol<AclCode(void*, std::uint64_t, AclExecutor*, AclStream)> launch;
};

using T = const AclTensor*;
using TL = const AclTensorList*;
using S = const AclScalar*;
using IA = const AclIntArray*;

// The fused attention in its versions: each adds arguments in the middle of the one before. The parts they share:
// query, key, value, pseShift, attenMask, actualSeqLengths, actualSeqLengthsKv, deqScale1, quantScale1, deqScale2,
// quantScale2, quantOffset2, antiquantScale, antiquantOffset, blockTable, queryPaddingSize, kvPaddingSize,
// keyAntiquantScale, keyAntiquantOffset, valueAntiquantScale, valueAntiquantOffset, keySharedPrefix,
// valueSharedPrefix, actualSharedPrefixLen, then
// numHeads, scaleValue, preTokens, nextTokens, inputLayout, numKeyValueHeads, sparseMode, innerPrecise, blockSize,
// antiquantMode, softmaxLseFlag, keyAntiquantMode, valueAntiquantMode, then attentionOut, softmaxLse.
using FusedAttentionV2 = Op<T, TL, TL, T, T, IA, IA, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, IA,  //
                            std::int64_t, double, std::int64_t, std::int64_t, char*, std::int64_t, std::int64_t,
                            std::int64_t, std::int64_t, std::int64_t, bool, std::int64_t, std::int64_t, T, T>;
// With queryRope, keyRope, keyRopeAntiquantScale, dequantScaleQuery, learnableSink, and queryQuantMode.
using FusedAttentionV4 =
    Op<T, TL, TL, T, T, IA, IA, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, IA,  //
       T, T, T, T, T,                                                                //
       std::int64_t, double, std::int64_t, std::int64_t, char*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
       std::int64_t, bool, std::int64_t, std::int64_t, std::int64_t, T, T>;
// With qStartIdx, kvStartIdx, and pseType.
using FusedAttentionV5 =
    Op<T, TL, TL, T, T, IA, IA, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, IA,  //
       T, T, T, T, T, IA, IA,                                                        //
       std::int64_t, double, std::int64_t, std::int64_t, char*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
       std::int64_t, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t, T, T>;

struct Api {
  std::vector<AnySymbol*> all = {};

  // The runtime.
  Symbol<AclCode(const char*)> aclInit{all, "aclInit"};
  Symbol<AclCode()> aclFinalize{all, "aclFinalize"};
  Symbol<const char*()> aclGetRecentErrMsg{all, "aclGetRecentErrMsg"};
  Symbol<AclCode(std::int32_t*, std::int32_t*, std::int32_t*)> aclrtGetVersion{all, "aclrtGetVersion", true};
  Symbol<const char*()> aclrtGetSocName{all, "aclrtGetSocName"};
  Symbol<AclCode(std::uint32_t*)> aclrtGetDeviceCount{all, "aclrtGetDeviceCount"};
  Symbol<AclCode(AclMemoryKind, std::size_t*, std::size_t*)> aclrtGetMemInfo{all, "aclrtGetMemInfo"};
  Symbol<AclCode(std::int32_t)> aclrtSetDevice{all, "aclrtSetDevice"};
  Symbol<AclCode(std::int32_t)> aclrtResetDevice{all, "aclrtResetDevice"};
  Symbol<AclCode(AclContext*, std::int32_t)> aclrtCreateContext{all, "aclrtCreateContext"};
  Symbol<AclCode(AclContext)> aclrtDestroyContext{all, "aclrtDestroyContext"};
  Symbol<AclCode(AclContext)> aclrtSetCurrentContext{all, "aclrtSetCurrentContext"};
  Symbol<AclCode(AclSystemOption, std::int64_t)> aclrtSetSysParamOpt{all, "aclrtSetSysParamOpt", true};
  Symbol<AclCode(AclSystemOption, std::int64_t)> aclrtCtxSetSysParamOpt{all, "aclrtCtxSetSysParamOpt", true};
  Symbol<AclCode(AclStream*)> aclrtCreateStream{all, "aclrtCreateStream"};
  Symbol<AclCode(AclStream)> aclrtDestroyStream{all, "aclrtDestroyStream"};
  Symbol<AclCode(AclStream, std::uint64_t)> aclrtSetStreamFailureMode{all, "aclrtSetStreamFailureMode"};
  Symbol<AclCode(AclStream, std::int32_t)> aclrtSynchronizeStreamWithTimeout{all, "aclrtSynchronizeStreamWithTimeout"};
  Symbol<AclCode(AclEvent*, std::uint32_t)> aclrtCreateEventExWithFlag{all, "aclrtCreateEventExWithFlag"};
  Symbol<AclCode(AclEvent)> aclrtDestroyEvent{all, "aclrtDestroyEvent"};
  Symbol<AclCode(AclEvent, AclStream)> aclrtRecordEvent{all, "aclrtRecordEvent"};
  Symbol<AclCode(AclEvent)> aclrtSynchronizeEvent{all, "aclrtSynchronizeEvent"};
  Symbol<AclCode(AclEvent, std::int32_t)> aclrtSynchronizeEventWithTimeout{all, "aclrtSynchronizeEventWithTimeout",
                                                                           true};
  Symbol<AclCode(void**, std::size_t, AclMemoryPolicy)> aclrtMalloc{all, "aclrtMalloc"};
  Symbol<AclCode(void*)> aclrtFree{all, "aclrtFree"};
  Symbol<AclCode(void**, std::size_t)> aclrtMallocHost{all, "aclrtMallocHost"};
  Symbol<AclCode(void*)> aclrtFreeHost{all, "aclrtFreeHost"};
  Symbol<AclCode(void*, std::size_t, const void*, std::size_t, AclCopy, AclStream)> aclrtMemcpyAsync{
      all, "aclrtMemcpyAsync"};
  Symbol<AclCode(void*, std::size_t, std::int32_t, std::size_t, AclStream)> aclrtMemsetAsync{all, "aclrtMemsetAsync"};

  // Capture; without it every step is launched op by op.
  Symbol<AclCode(AclStream, AclCaptureMode)> aclmdlRICaptureBegin{all, "aclmdlRICaptureBegin", true};
  Symbol<AclCode(AclStream, AclGraph*)> aclmdlRICaptureEnd{all, "aclmdlRICaptureEnd", true};
  Symbol<AclCode(AclGraph, AclStream)> aclmdlRIExecuteAsync{all, "aclmdlRIExecuteAsync", true};
  Symbol<AclCode(AclGraph)> aclmdlRIDestroy{all, "aclmdlRIDestroy", true};

  // Descriptors: sizes, strides and the offset count elements.
  Symbol<AclTensor*(const std::int64_t*, std::uint64_t, AclType, const std::int64_t*, std::int64_t, AclFormat,
                    const std::int64_t*, std::uint64_t, void*)>
      aclCreateTensor{all, "aclCreateTensor"};
  Symbol<AclTensorList*(const AclTensor* const*, std::uint64_t)> aclCreateTensorList{all, "aclCreateTensorList"};
  Symbol<AclScalar*(void*, AclType)> aclCreateScalar{all, "aclCreateScalar"};
  Symbol<AclIntArray*(const std::int64_t*, std::uint64_t)> aclCreateIntArray{all, "aclCreateIntArray"};
  Symbol<AclCode(const AclTensor*)> aclDestroyTensor{all, "aclDestroyTensor"};
  Symbol<AclCode(const AclTensorList*)> aclDestroyTensorList{all, "aclDestroyTensorList"};
  Symbol<AclCode(const AclScalar*)> aclDestroyScalar{all, "aclDestroyScalar"};
  Symbol<AclCode(const AclIntArray*)> aclDestroyIntArray{all, "aclDestroyIntArray"};
  Symbol<AclCode(AclExecutor*)> aclDestroyAclOpExecutor{all, "aclDestroyAclOpExecutor"};

  // Operators; outputs last, but for those that change their first argument.
  Op<T, T, T> Embedding{all, "aclnnEmbedding"};
  Op<T, std::int64_t, T, T> IndexSelect{all, "aclnnIndexSelect"};
  Op<T, T, double, T, T> RmsNorm{all, "aclnnRmsNorm"};
  Op<T, T, T, std::int8_t> Mm{all, "aclnnMm"};
  Op<T, T, T, std::int8_t> BatchMatMul{all, "aclnnBatchMatMul"};
  Op<T, T, T, std::int64_t, T> RotaryPositionEmbedding{all, "aclnnRotaryPositionEmbedding"};
  Op<T, std::int64_t, T, T> InplaceIndexCopy{all, "aclnnInplaceIndexCopy"};
  Op<T, std::int64_t, T> SwiGlu{all, "aclnnSwiGlu"};
  Op<T, T> Silu{all, "aclnnSilu"};
  Op<T, T, S> InplaceAdd{all, "aclnnInplaceAdd"};
  Op<T, S, T> Muls{all, "aclnnMuls"};
  Op<T, S> InplaceMuls{all, "aclnnInplaceMuls"};
  Op<T, std::int64_t, T> Softmax{all, "aclnnSoftmax"};
  Op<T, float, float, float, T> NanToNum{all, "aclnnNanToNum"};
  Op<T, AclType, T> Cast{all, "aclnnCast"};
  Op<T, T> InplaceCopy{all, "aclnnInplaceCopy"};
  Op<T, T, S> InplaceMaskedFillScalar{all, "aclnnInplaceMaskedFillScalar"};
  Op<T, T, T, T> SWhere{all, "aclnnSWhere"};
  Op<T, bool, std::int64_t, bool, T, T> Sort{all, "aclnnSort"};
  Op<T, IA, bool, T> Amax{all, "aclnnAmax"};
  Op<T, IA, bool, T> Amin{all, "aclnnAmin"};
  Op<T, T, T> EqTensor{all, "aclnnEqTensor"};
  Op<T, IA, bool, T> LogSumExp{all, "aclnnLogSumExp"};
  Op<TL, std::int64_t, T> Cat{all, "aclnnCat"};
  Op<T, IA, bool, T> All{all, "aclnnAll"};
  FusedAttentionV2 FusedInferAttentionScoreV2{all, "aclnnFusedInferAttentionScoreV2", true};
  FusedAttentionV4 FusedInferAttentionScoreV4{all, "aclnnFusedInferAttentionScoreV4", true};
  FusedAttentionV5 FusedInferAttentionScoreV5{all, "aclnnFusedInferAttentionScoreV5", true};

  // Not CANN's: a library that stands in for it in tests says so (tests/ascend_fake/).
  Symbol<const char*()> ascend_fake_name{all, "ascend_fake_name", true};

  Api() = default;
  Api(const Api&) = delete;  // `all` points into it
  Api& operator=(const Api&) = delete;
};

}  // namespace espalier::ascend
