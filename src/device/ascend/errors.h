// What the runtime and the operators answer, as the project's errors.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "device/ascend/acl.h"

namespace espalier::ascend {

// What a code means and what to do about it, in a few words; empty: nobody knows more than its number.
std::string_view meaning_of(AclCode code);

// "aclrtMalloc: error 207001 (no memory left): the runtime's own words", in one line. Its words belong to this thread's
// last call, so this comes directly behind it.
std::string describe_failure(const Api& api, std::string_view call, AclCode code);

// A DeviceError that knows its code.
class AclFailure : public DeviceError {
 public:
  AclFailure(const std::string& message, AclCode code) : DeviceError(message), code_(code) {}
  AclCode code() const { return code_; }
  // An operator would not take these arguments, or is not installed: nothing was launched and nothing is lost. Where no
  // operator at all is found it is no refusal: the environment script was not sourced.
  bool is_refusal() const;

 private:
  AclCode code_;
};

// Throws AclFailure with that.
[[noreturn]] void throw_failure(const Api& api, std::string_view call, AclCode code);

// Calls it, and throws unless it answers success.
template <typename... Parameters, typename... Arguments>
void call(const Api& api, const Symbol<AclCode(Parameters...)>& symbol, Arguments... arguments) {
  const AclCode code = symbol(arguments...);
  if (code != 0) throw_failure(api, symbol.name, code);
}

}  // namespace espalier::ascend
