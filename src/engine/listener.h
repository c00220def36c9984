// What the engine says while it works. A library prints nothing: an application shows what it likes of this. Calls come
// from the thread that called the engine, and must not throw.
#pragma once

#include <string_view>

namespace espalier {

class Listener {
 public:
  virtual ~Listener() = default;

  // One line that a user should see: something was passed over, or is not as asked for.
  virtual void remark(std::string_view /*line*/) {}
  // One line for those who want to know more.
  virtual void detail(std::string_view /*line*/) {}
  // How far some work is, 0 to 1; with 1 it is over.
  virtual void progress(std::string_view /*work*/, double /*share*/) {}
};

}  // namespace espalier
