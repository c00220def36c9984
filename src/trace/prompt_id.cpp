#include "trace/prompt_id.h"

namespace espalier {

std::string text_of(const PromptId& id) {
  const auto* number = std::get_if<std::int64_t>(&id);
  return number != nullptr ? std::to_string(*number) : std::get<std::string>(id);
}

}  // namespace espalier
