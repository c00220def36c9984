#include "device/ascend/card.h"

#include <utility>

#include "base/error.h"
#include "device/ascend/errors.h"

namespace espalier::ascend {
namespace {

constexpr std::int32_t kLastTimeoutMs = 1000;  // where waiting has failed before

Chip read_chip(const Api& api) {
  Chip chip;
  const char* const name = api.aclrtGetSocName();
  chip.name = name == nullptr ? "" : name;
  std::int32_t patch = 0;
  if (api.aclrtGetVersion && api.aclrtGetVersion(&chip.acl_major, &chip.acl_minor, &patch) != 0)
    chip.acl_major = chip.acl_minor = 0;
  if (chip.name.starts_with("Ascend310P")) {
    chip.has_bf16 = false;
    chip.f32_product = kAllowLessThanF32;
  }
  return chip;
}

}  // namespace

bool is_fake(const Api& api) {
  return static_cast<bool>(api.ascend_fake_name);
}

int count_npus(const Api& api) {
  std::uint32_t count = 0;
  if (const AclCode code = api.aclrtGetDeviceCount(&count); code != 0)
    device_error("Ascend: {}: is the driver installed, and may this user use it?",
                 describe_failure(api, api.aclrtGetDeviceCount.name, code));
  if (count == 0) device_error("Ascend: no NPU on this machine");
  return static_cast<int>(count);
}

// After the first fault nothing more runs: what is computed from garbage is not worth the wait.
Card::Stream::Stream(const Api& api) : api(api) {
  call(api, api.aclrtCreateStream, &handle);
  const AclCode code = api.aclrtSetStreamFailureMode(handle, kStopOnFailure);
  if (code == 0) return;
  const std::string failure = describe_failure(api, api.aclrtSetStreamFailureMode.name, code);
  api.aclrtDestroyStream(handle);
  device_error("Ascend: {}", failure);
}

Card::Stream::~Stream() {
  api.aclrtDestroyStream(handle);
}

Card::Card(std::shared_ptr<const Api> api, const CardOptions& options)
    : api_(std::move(api)),
      options_(options),
      npu_(*api_, options.index),
      context_(*api_, options.index),
      stream_(*api_),
      chip_(read_chip(*api_)) {
  // The same call gives the same bits. Operators read the value of the process, others that of the context.
  if (api_->aclrtSetSysParamOpt) call(*api_, api_->aclrtSetSysParamOpt, AclSystemOption::deterministic, 1);
  if (api_->aclrtCtxSetSysParamOpt) call(*api_, api_->aclrtCtxSetSysParamOpt, AclSystemOption::deterministic, 1);
}

Card::~Card() {
  settle();
}

void Card::enter() const {
  call(*api_, api_->aclrtSetCurrentContext, context_.handle());
}

void Card::synchronise() {
  failed_ = true;
  call(*api_, api_->aclrtSynchronizeStreamWithTimeout, stream_.handle, options_.timeout_ms);
  failed_ = busy_ = false;
}

void Card::record(AclEvent event) {
  note_work();
  call(*api_, api_->aclrtRecordEvent, event, stream_.handle);
}

void Card::wait_for(AclEvent event) {
  const bool had_failed = std::exchange(failed_, true);
  if (api_->aclrtSynchronizeEventWithTimeout) {
    call(*api_, api_->aclrtSynchronizeEventWithTimeout, event, options_.timeout_ms);
  } else {
    call(*api_, api_->aclrtSynchronizeEvent, event);
  }
  failed_ = had_failed;
}

void Card::settle() noexcept {
  api_->aclrtSetCurrentContext(context_.handle());
  if (!busy_) return;
  busy_ = false;
  api_->aclrtSynchronizeStreamWithTimeout(stream_.handle, failed_ ? kLastTimeoutMs : options_.timeout_ms);
}

std::pair<std::size_t, std::size_t> Card::memory() const {
  for (const AclMemoryKind kind : {AclMemoryKind::hbm, AclMemoryKind::ddr}) {
    std::size_t free = 0, total = 0;
    if (api_->aclrtGetMemInfo(kind, &free, &total) == 0 && total > 0) return {free, total};
  }
  return {0, 0};
}

}  // namespace espalier::ascend
