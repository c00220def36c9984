#include "ledger.h"

namespace ascend_fake {

std::string described(const Origin& origin) {
  return "call " + std::to_string(origin.call) + " (" + origin.name + ")";
}

Origin Ledger::begin_call(const char* name) {
  log_.push_back(name);
  current_ = {.call = log_.size(), .name = name};
  return current_;
}

const char* Ledger::call(uint64_t number) const {
  return number == 0 || number > log_.size() ? nullptr : log_[number - 1];
}

void Ledger::violation(int rule, const Origin& origin, const std::string& text) {
  // Put together piece by piece: g++ 12 on Arm takes "F" + std::to_string(rule) for a copy onto itself.
  std::string said = "F";
  said.append(std::to_string(rule)).append(" at ").append(described(origin)).append(": ").append(text);
  violations_.push_back({rule, said});
}

}  // namespace ascend_fake
