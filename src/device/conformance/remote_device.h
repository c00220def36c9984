// A device whose addresses mean nothing on the host, as those of a GPU do not: it computes with another device behind
// addresses moved by a constant. Whoever dereferences one crashes, and it lends nothing. For tests, also of ops that
// write where they should not.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "device/device.h"

namespace espalier {

// Called after each op with the name of the op and the real place of its (first) output.
using AfterOp = std::function<void(std::string_view op, View output)>;

std::unique_ptr<Device> make_remote_device(std::unique_ptr<Device> inner, AfterOp after_op = {});

}  // namespace espalier
