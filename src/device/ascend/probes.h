// What is found out about a card before its first op, because documents leave it open or reports say that it went wrong
// without an error: whether a product of 16-bit matrices can be written unrounded, and whether the fused attention
// computes what the eager one does.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "device/ascend/op_queue.h"

namespace espalier::ascend {

// Sets the queue's abilities. fused: whether it is wanted    remark: hears of what is missing
void probe(OpQueue& queue, const std::shared_ptr<Card>& card, Staging& staging, bool fused,
           const std::function<void(std::string_view)>& remark);

}  // namespace espalier::ascend
