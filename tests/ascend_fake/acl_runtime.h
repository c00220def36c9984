// The runtime calls, descriptors and executors of the Ascend C API (libascendcl and libnnopbase), retyped.
#pragma once

#include "acl_types.h"

namespace ascend_fake {
extern "C" {

// Life cycle.
ACL_API aclError aclInit(const char* configPath);
ACL_API aclError aclFinalize();
ACL_API aclError aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch);
ACL_API const char* aclrtGetSocName();
ACL_API const char* aclGetRecentErrMsg();
ACL_API aclError aclrtGetDeviceCount(uint32_t* count);
ACL_API aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total);
ACL_API aclError aclrtSetDevice(int32_t deviceId);
ACL_API aclError aclrtResetDevice(int32_t deviceId);
ACL_API aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId);
ACL_API aclError aclrtDestroyContext(aclrtContext context);
ACL_API aclError aclrtSetCurrentContext(aclrtContext context);
ACL_API aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value);
ACL_API aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value);

// Streams.
ACL_API aclError aclrtCreateStream(aclrtStream* stream);
ACL_API aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag);
ACL_API aclError aclrtDestroyStream(aclrtStream stream);
ACL_API aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode);
ACL_API aclError aclrtSynchronizeStream(aclrtStream stream);
ACL_API aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeoutMs);
ACL_API aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status);

// Events.
ACL_API aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag);
ACL_API aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag);
ACL_API aclError aclrtDestroyEvent(aclrtEvent event);
ACL_API aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
ACL_API aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);
ACL_API aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
ACL_API aclError aclrtSynchronizeEvent(aclrtEvent event);
ACL_API aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeoutMs); /* not everywhere */
ACL_API aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status);

// Memory.
ACL_API aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
ACL_API aclError aclrtFree(void* devPtr);
ACL_API aclError aclrtMallocHost(void** hostPtr, size_t size);
ACL_API aclError aclrtFreeHost(void* hostPtr);
ACL_API aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind);
ACL_API aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                                  aclrtStream stream);
ACL_API aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream);

// Capture.
ACL_API aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode);
ACL_API aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus* status, aclmdlRI* modelRI);
ACL_API aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* modelRI);
ACL_API aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode);
ACL_API aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream);
ACL_API aclError aclmdlRIDestroy(aclmdlRI modelRI);
ACL_API aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream);
ACL_API aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp* handle);
ACL_API aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle);
ACL_API aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream);

// Descriptors and executors.
ACL_API aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                                   const int64_t* stride, int64_t offset, aclFormat format, const int64_t* storageDims,
                                   uint64_t storageDimsNum, void* tensorData);
ACL_API aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size);
ACL_API aclScalar* aclCreateScalar(void* value, aclDataType dataType);
ACL_API aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size);
ACL_API aclnnStatus aclDestroyTensor(const aclTensor* tensor);
ACL_API aclnnStatus aclDestroyTensorList(const aclTensorList* array);
ACL_API aclnnStatus aclDestroyScalar(const aclScalar* scalar);
ACL_API aclnnStatus aclDestroyIntArray(const aclIntArray* array);
ACL_API aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor);
ACL_API aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor);
ACL_API aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr);
ACL_API aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* addr);
}  // extern "C"
}  // namespace ascend_fake
