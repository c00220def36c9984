#include "device/ascend/opened_npu.h"

#include <map>
#include <mutex>
#include <utility>

#include "device/ascend/errors.h"

namespace espalier::ascend {
namespace {

// By the runtime that was loaded and the number of the NPU.
using Key = std::pair<void*, int>;
struct Openings {
  std::mutex mutex;  // held while an NPU is set or reset
  std::map<Key, int> count;
};

// What the runtime has set belongs to the process, and so does this.
Openings& openings() {
  static Openings all;
  return all;
}

Key key_of(const Api& api, int index) {
  return {api.aclrtSetDevice.address, index};
}

}  // namespace

OpenedNpu::OpenedNpu(const Api& api, int index) : api_(api), index_(index) {
  const std::lock_guard lock(openings().mutex);
  int& count = openings().count[key_of(api, index)];
  if (count == 0) call(api, api.aclrtSetDevice, index);
  ++count;
}

OpenedNpu::~OpenedNpu() {
  const std::lock_guard lock(openings().mutex);
  if (--openings().count[key_of(api_, index_)] == 0) api_.aclrtResetDevice(index_);
}

Context::Context(const Api& api, int index) : api_(api) {
  call(api, api.aclrtCreateContext, &handle_, index);
}

Context::~Context() {
  api_.aclrtDestroyContext(handle_);
}

}  // namespace espalier::ascend
