// Who did what: call numbers, violations, and the handles of everything that is alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ascend_fake {

// The call that made a thing.
struct Origin {
  uint64_t call = 0;
  const char* name = "";
  int32_t device = -1;  // on which it made memory; -1: none
};
std::string described(const Origin& origin);

// E: the call returns this code.
struct Refusal {
  int code;
  std::string text;
};
// L: the task failed while it ran; a later synchronise returns this code.
struct Fault {
  int code;
  std::string text;
};
// U: undefined or silent on a card.
struct Violation {
  int rule;
  std::string text;
};

class Ledger {
 public:
  // The next call of the API.
  Origin begin_call(const char* name);
  const Origin& current() const { return current_; }
  uint64_t calls() const { return log_.size(); }
  const char* call(uint64_t number) const;

  void violation(int rule, const std::string& text) { violation(rule, current_, text); }
  // One found late, for which an earlier call is to blame.
  void violation(int rule, const Origin& origin, const std::string& text);
  const std::vector<Violation>& violations() const { return violations_; }
  void clear_violations() { violations_.clear(); }

 private:
  Origin current_;
  std::vector<const char*> log_;
  std::vector<Violation> violations_;
};

// Handles of one kind of object. They are numbers in a space no host address is in, and none is given twice, so that
// every use after the end is found.
template <typename T>
class Registry {
 public:
  Registry(uint64_t kind, const char* name) : base_(0x00B0000000000000u + (kind << 44)), name_(name) {}

  void* add(T value) {
    const uint64_t handle = base_ + 64 * ++count_;
    objects_.emplace(handle, std::move(value));
    return reinterpret_cast<void*>(handle);
  }
  T* find(const void* handle) {
    const auto found = objects_.find(reinterpret_cast<uint64_t>(handle));
    return found == objects_.end() ? nullptr : &found->second;
  }
  // Why find gave nothing.
  std::string absence(const void* handle) const {
    const uint64_t number = reinterpret_cast<uint64_t>(handle);
    const bool ours = number > base_ && number <= base_ + 64 * count_ && (number - base_) % 64 == 0;
    return std::string(name_) + (ours ? " was destroyed already" : " is not a handle of this kind");
  }
  void erase(const void* handle) { objects_.erase(reinterpret_cast<uint64_t>(handle)); }
  void clear() { objects_.clear(); }
  const char* name() const { return name_; }
  std::unordered_map<uint64_t, T>& objects() { return objects_; }

 private:
  uint64_t base_;
  const char* name_;
  uint64_t count_ = 0;
  std::unordered_map<uint64_t, T> objects_;
};

}  // namespace ascend_fake
