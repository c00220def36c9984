// Whether two prototypes of one function pass the same: enums as int, pointers whatever is const behind them, and the
// opaque structs of both sides as one. For files that compare the table of acl.h with prototypes of others:
// they define ESPALIER_THEIRS(name), where those are found, before they include this.
#pragma once

#include <type_traits>

#include "device/ascend/acl.h"

#ifndef ESPALIER_THEIRS  // a file that compares nothing: structs of nobody
namespace espalier::ascend::nobody {
struct aclTensor;
struct aclTensorList;
struct aclScalar;
struct aclIntArray;
struct aclOpExecutor;
}  // namespace espalier::ascend::nobody
#define ESPALIER_THEIRS(name) nobody::name
#endif

namespace espalier::ascend {

struct OpaqueTensor;
struct OpaqueTensorList;
struct OpaqueScalar;
struct OpaqueIntArray;
struct OpaqueExecutor;

template <typename Type, typename = void>
struct Passed {
  using type = Type;
};
template <typename Type>
using PassedAs = typename Passed<std::remove_cv_t<Type>>::type;
template <typename Enum>
struct Passed<Enum, std::enable_if_t<std::is_enum_v<Enum>>> {
  static_assert(sizeof(Enum) == sizeof(int));
  using type = int;
};
template <typename Pointee>
struct Passed<Pointee*> {
  using type = PassedAs<Pointee>*;
};
template <typename Result, typename... Parameters>
struct Passed<Result(Parameters...)> {
  using type = PassedAs<Result>(PassedAs<Parameters>...);
};
template <typename Signature>
struct Passed<Symbol<Signature>> {
  using type = PassedAs<Signature>;
};

template <>
struct Passed<AclTensor> {
  using type = OpaqueTensor;
};
template <>
struct Passed<AclTensorList> {
  using type = OpaqueTensorList;
};
template <>
struct Passed<AclScalar> {
  using type = OpaqueScalar;
};
template <>
struct Passed<AclIntArray> {
  using type = OpaqueIntArray;
};
template <>
struct Passed<AclExecutor> {
  using type = OpaqueExecutor;
};
template <>
struct Passed<ESPALIER_THEIRS(aclTensor)> {
  using type = OpaqueTensor;
};
template <>
struct Passed<ESPALIER_THEIRS(aclTensorList)> {
  using type = OpaqueTensorList;
};
template <>
struct Passed<ESPALIER_THEIRS(aclScalar)> {
  using type = OpaqueScalar;
};
template <>
struct Passed<ESPALIER_THEIRS(aclIntArray)> {
  using type = OpaqueIntArray;
};
template <>
struct Passed<ESPALIER_THEIRS(aclOpExecutor)> {
  using type = OpaqueExecutor;
};

template <typename Ours, typename Theirs>
inline constexpr bool kSamePrototype = std::is_same_v<PassedAs<Ours>, PassedAs<Theirs>>;

}  // namespace espalier::ascend

// Each at namespace scope, once for a function or for both phases of an operator.
#define ESPALIER_SAME(name)                                                                                     \
  static_assert(                                                                                                \
      espalier::ascend::kSamePrototype<decltype(espalier::ascend::Api::name), decltype(ESPALIER_THEIRS(name))>, \
      #name " has another prototype")
#define ESPALIER_SAME_OP(name)                                                                              \
  static_assert(espalier::ascend::kSamePrototype<decltype(decltype(espalier::ascend::Api::name)::plan),     \
                                                 decltype(ESPALIER_THEIRS(aclnn##name##GetWorkspaceSize))>, \
                "aclnn" #name "GetWorkspaceSize has another prototype");                                    \
  static_assert(espalier::ascend::kSamePrototype<decltype(decltype(espalier::ascend::Api::name)::launch),   \
                                                 decltype(ESPALIER_THEIRS(aclnn##name))>,                   \
                "aclnn" #name " has another prototype")
