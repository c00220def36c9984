// An NPU that this process has set, and a context on it. Resetting an NPU takes everything on it from whoever else in
// the process uses it, so openings are counted: the first one sets it and the last one resets it.
#pragma once

#include "device/ascend/acl.h"

namespace espalier::ascend {

class OpenedNpu {
 public:
  // Throws DeviceError where it cannot be set.
  OpenedNpu(const Api& api, int index);
  ~OpenedNpu();
  OpenedNpu(const OpenedNpu&) = delete;
  OpenedNpu& operator=(const OpenedNpu&) = delete;

 private:
  const Api& api_;
  int index_;
};

// The calling thread's, when it is made.
class Context {
 public:
  Context(const Api& api, int index);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  AclContext handle() const { return handle_; }

 private:
  const Api& api_;
  AclContext handle_ = nullptr;
};

}  // namespace espalier::ascend
