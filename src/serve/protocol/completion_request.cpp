#include "serve/protocol/completion_request.h"

#include <limits>

#include "serve/protocol/api_error.h"
#include "serve/protocol/field_rules.h"

namespace espalier {
namespace {

constexpr std::size_t kMostPromptIds = std::size_t{1} << 24;  // the body's limit comes first

std::vector<std::int64_t> prompt_ids(const BodyField& field) {
  return field.integers(0, std::numeric_limits<std::int32_t>::max(), kMostPromptIds);
}

PromptField one_prompt(const BodyField& field) {
  if (field.is_string()) return field.text();
  if (!field.is_array()) field.refuse("a string or a list of token ids");
  return prompt_ids(field);
}

// A text, ids, or a list of either; what the first element of a list is decides.
void read_prompt(const BodyField& field, CompletionRequest& request) {
  if (!field.is_string() && !field.is_array()) field.refuse("a string, a list of token ids, or a list of either");
  const bool is_list = field.is_array() && field.size() > 0 && !field.element(0).is_number();
  if (!is_list) {
    request.prompts.push_back(one_prompt(field));
    return;
  }
  request.many = true;
  field.array(1, kMostPrompts);
  for (std::size_t i = 0; i < field.size(); ++i) {
    request.prompts.push_back(one_prompt(field.element(i)));
    if (request.prompts.back().index() != request.prompts.front().index())
      field.element(i).refuse("the same kind as the first: all texts, or all lists of token ids");
  }
}

constexpr FieldRule<CompletionRequest> kCompletionRules[] = {
    {"prompt", read_prompt},
    {"parse_special", [](const BodyField& f, CompletionRequest& r) { r.parse_special = f.boolean(); }},
    {"echo", [](const BodyField& f, CompletionRequest& r) { r.echo = f.boolean(); }},
    {"logprobs", [](const BodyField& f, CompletionRequest& r) { r.logprobs = f.integer(0, kMostAlternatives); }},
};

}  // namespace

CompletionRequest parse_completion_request(std::string_view body) {
  const JsonBody json(body);
  CompletionRequest request{.fields = read_request_fields(json.root())};
  read_fields<CompletionRequest>(json.root(), kCompletionRules, request);
  if (request.prompts.empty()) throw invalid_request("prompt is missing", "prompt");
  return request;
}

std::vector<std::string_view> completion_field_names() {
  std::vector<std::string_view> names = shared_field_names();
  add_names<CompletionRequest>(kCompletionRules, names);
  return names;
}

}  // namespace espalier
