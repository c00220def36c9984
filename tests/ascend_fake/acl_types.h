// The types, values and codes of the Ascend C API that the fake knows, retyped by us as interface facts: handles are
// void*, descriptors opaque, enums of size int, 0 is success.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(ASCEND_FAKE_BUILDS)
#define ACL_API __attribute__((visibility("default")))
#else
#define ACL_API
#endif

namespace ascend_fake {
extern "C" {

using aclError = int;
using aclnnStatus = int32_t;
using aclrtStream = void*;
using aclrtEvent = void*;
using aclrtContext = void*;
using aclmdlRI = void*;
using aclrtTaskGrp = void*;
struct aclTensor;
struct aclTensorList;
struct aclScalar;
struct aclIntArray;
struct aclOpExecutor;

enum aclDataType : int {
  ACL_DT_UNDEFINED = -1,
  ACL_FLOAT = 0,
  ACL_FLOAT16 = 1,
  ACL_INT8 = 2,
  ACL_INT32 = 3,
  ACL_UINT8 = 4,
  ACL_INT16 = 6,
  ACL_UINT16 = 7,
  ACL_UINT32 = 8,
  ACL_INT64 = 9,
  ACL_UINT64 = 10,
  ACL_DOUBLE = 11,
  ACL_BOOL = 12,
  ACL_BF16 = 27,
  ACL_INT4 = 29,
};
enum aclFormat : int { ACL_FORMAT_UNDEFINED = -1, ACL_FORMAT_ND = 2, ACL_FORMAT_FRACTAL_NZ = 29 };
enum aclrtMemcpyKind : int {
  ACL_MEMCPY_HOST_TO_HOST = 0,
  ACL_MEMCPY_HOST_TO_DEVICE = 1,
  ACL_MEMCPY_DEVICE_TO_HOST = 2,
  ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
  ACL_MEMCPY_DEFAULT = 4,
};
enum aclrtMemMallocPolicy : int {
  ACL_MEM_MALLOC_HUGE_FIRST = 0,
  ACL_MEM_MALLOC_HUGE_ONLY = 1,
  ACL_MEM_MALLOC_NORMAL_ONLY = 2
};
enum aclrtMemAttr : int { ACL_DDR_MEM = 0, ACL_HBM_MEM = 1 };
enum aclmdlRICaptureMode : int {
  ACL_MODEL_RI_CAPTURE_MODE_GLOBAL = 0,
  ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL = 1,
  ACL_MODEL_RI_CAPTURE_MODE_RELAXED = 2,
};
enum aclmdlRICaptureStatus : int {
  ACL_MODEL_RI_CAPTURE_STATUS_NONE = 0,
  ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE = 1,
  ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED = 2,
};
enum aclSysParamOpt : int {
  ACL_OPT_DETERMINISTIC = 0,
  ACL_OPT_ENABLE_DEBUG_KERNEL = 1,
  ACL_OPT_STRONG_CONSISTENCY = 2
};
enum aclrtEventRecordedStatus : int { ACL_EVENT_RECORDED_STATUS_NOT_READY = 0, ACL_EVENT_RECORDED_STATUS_COMPLETE = 1 };
enum aclrtStreamStatus : int { ACL_STREAM_STATUS_COMPLETE = 0, ACL_STREAM_STATUS_NOT_READY = 1 };

constexpr uint32_t ACL_EVENT_SYNC = 1;
constexpr uint32_t ACL_EVENT_CAPTURE_STREAM_PROGRESS = 2;
constexpr uint32_t ACL_EVENT_TIME_LINE = 8;
constexpr uint32_t ACL_EVENT_EXTERNAL = 0x20;
constexpr uint64_t ACL_STOP_ON_FAILURE = 1;

constexpr int8_t KEEP_DTYPE = 0;
constexpr int8_t ALLOW_FP32_DOWN_PRECISION = 1;
constexpr int8_t USE_FP16 = 2;
constexpr int8_t USE_HF32 = 3;
}  // extern "C"

// Codes of the runtime.
constexpr int kBadParameterOfAcl = 100000;
constexpr int kNotInitialised = 100001;
constexpr int kRepeatedInit = 100002;
constexpr int kBadParameter = 107000;
constexpr int kNoContext = 107002;
constexpr int kForeignStream = 107003;
constexpr int kBadHandle = 107017;
constexpr int kCaptureInvalid = 107024;  // the first of the family 107024 to 107045, on which sources disagree
constexpr int kNotRejoined = 107025;
constexpr int kStreamCapturing = 107027;
constexpr int kEventCapturing = 107028;
constexpr int kNotCapturing = 107029;
constexpr int kBlockingInCapture = 107030;
constexpr int kDefaultStream = 107031;
constexpr int kGroupOpen = 107033;
constexpr int kGroupNotOpen = 107034;
constexpr int kOtherEnd = 107036;
constexpr int kWrongThread = 107038;
constexpr int kWouldBlock = 107041;
constexpr int kNotSupported = 207000;
constexpr int kNoMemory = 207001;
constexpr int kNoStream = 207008;
constexpr int kTaskNotSupported = 507009;
constexpr int kCoreFault = 507015;
constexpr int kVectorFault = 507035;
constexpr int kTimedOut = 507046;
// Codes of aclnn.
constexpr int kNull = 161001;
constexpr int kInvalid = 161002;
constexpr int kRuntime = 361001;
constexpr int kTilingRefused = 561002;
constexpr int kNoKernel = 561003;
constexpr int kNullInside = 561103;

}  // namespace ascend_fake
