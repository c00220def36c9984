// Both phases of an operator, with its operands described for as long as they take. Included where operators are run.
#pragma once

#include <tuple>
#include <type_traits>

#include "device/ascend/op_queue.h"

namespace espalier::ascend {

template <typename Argument>
struct IsDescribed : std::false_type {};
template <typename Handle>
struct IsDescribed<Described<Handle>> : std::true_type {};

// A layout is described here; a description, a number or nothing is passed as it is.
template <typename Argument>
auto operand_of(const Api& api, const Argument& argument) {
  if constexpr (IsDescribed<Argument>::value) {
    return argument.get();
  } else if constexpr (std::is_convertible_v<const Argument&, Layout>) {
    return describe(api, argument);
  } else {
    return argument;
  }
}
inline const AclTensor* passed(const TensorDescriptor& tensor) {
  return tensor.get();
}
template <typename Argument>
Argument passed(const Argument& argument) {
  return argument;
}

template <typename... Parameters, typename... Arguments>
void OpQueue::run(const Op<Parameters...>& op, const Arguments&... arguments) {
  const std::tuple operands{operand_of(api(), arguments)...};
  std::uint64_t bytes = 0;
  AclExecutor* executor = nullptr;
  std::apply([&](const auto&... operand) { call(api(), op.plan, passed(operand)..., &bytes, &executor); }, operands);
  std::byte* const memory = workspace(bytes, executor);
  card_->note_work();
  call(api(), op.launch, memory, bytes, executor, card_->stream());
}

}  // namespace espalier::ascend
