// What every operation of the template interpreter is given: where it is in the template, for its error message, and
// how much it may still do. A template comes with a model file and is not trusted: whatever it says, rendering ends
// after a bounded number of steps and has made a bounded amount of text. One guard belongs to one rendering.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>

#include "base/error.h"

namespace espalier::jinja {

struct Position {
  int line = 1;
  int column = 1;  // in characters
};

// The bounds of one rendering. The text bound covers every string made on the way, not only the output, so it is also
// the bound on memory.
struct Limits {
  std::size_t steps = 2'000'000;
  std::size_t text_bytes = std::size_t{64} << 20;
  int depth = 400;  // of nested evaluation, macro calls included; bounds the C++ stack
};

template <typename... Args>
[[noreturn]] void fail_at(Position position, fmt::format_string<Args...> format, Args&&... args) {
  input_error("chat template, line {}, column {}: {}", position.line, position.column,
              fmt::format(format, std::forward<Args>(args)...));
}

class Guard {
 public:
  explicit Guard(const Limits& limits) : limits_(limits) {}

  void at(Position position) { position_ = position; }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(position_, format, std::forward<Args>(args)...);
  }

  // One evaluation, one visited element.
  void spend_steps(std::size_t count) {
    if (count > limits_.steps - steps_) fail("rendering takes more than {} steps", limits_.steps);
    steps_ += count;
  }

  // Bytes of text made or searched.
  void spend_text(std::size_t bytes) {
    if (bytes > limits_.text_bytes - text_bytes_)
      fail("rendering handles more than {} bytes of text", limits_.text_bytes);
    text_bytes_ += bytes;
  }

  void enter() {
    if (++depth_ > limits_.depth) fail("evaluation is nested more than {} deep", limits_.depth);
  }
  void leave() { --depth_; }

 private:
  const Limits limits_;
  Position position_;
  std::size_t steps_ = 0;
  std::size_t text_bytes_ = 0;
  int depth_ = 0;
};

// Counts one level of evaluation while it lives.
class Level {
 public:
  explicit Level(Guard& guard) : guard_(guard) { guard_.enter(); }
  ~Level() { guard_.leave(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Guard& guard_;
};

}  // namespace espalier::jinja
