// Which prompt of a data set a record belongs to.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace espalier {

// As the data spells it: MT-bench counts, HumanEval names.
using PromptId = std::variant<std::int64_t, std::string>;
std::string text_of(const PromptId& id);

}  // namespace espalier
