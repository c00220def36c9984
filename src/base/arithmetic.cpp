#include "base/arithmetic.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {

void check_arithmetic(std::string_view where, const nlohmann::json& recorded) {
  if (recorded == kArithmetic) return;
  const std::string number = recorded.is_null()             ? "1"
                             : recorded.is_number_integer() ? recorded.dump()
                                                            : in_quotes(recorded.dump());
  input_error("{}: arithmetic {}, this program computes with {}: its bits need not come out again", where, number,
              kArithmetic);
}

}  // namespace espalier
