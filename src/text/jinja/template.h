// A parsed template that can be rendered many times. Immutable after construction, safe to share between threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/date.h"

namespace espalier::jinja {

struct Context {
  std::vector<std::pair<std::string, Value>> variables;
  std::optional<Date> now;  // without it strftime_now is undefined
};

class Template {
 public:
  // Throws InputError with line and column.
  explicit Template(std::string_view source);

  // Throws InputError with line and column, also when the guard's bounds are reached.
  Text render(const Context& context, Guard& guard) const;

 private:
  Block body_;
};

}  // namespace espalier::jinja
