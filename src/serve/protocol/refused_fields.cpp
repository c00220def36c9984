#include "serve/protocol/refused_fields.h"

#include <fmt/format.h>

namespace espalier {
namespace {

bool is_empty(const BodyField& field) {
  return (field.is_string() && field.text().empty()) || (field.is_array() && field.size() == 0) ||
         (field.is_object() && field.members().empty()) || (field.is_boolean() && !field.boolean());
}

bool is_text(const BodyField& field, std::string_view word) {
  return field.is_string() && field.text() == word;
}

// {"type": word}
bool has_type(const BodyField& field, std::string_view word) {
  if (!field.is_object()) return false;
  const auto type = field.find("type");
  return type && is_text(*type, word);
}

bool is_number_of(const BodyField& field, double value) {
  if (!field.is_number()) return false;
  return field.number(-1e308, 1e308) == value;
}

// Whether a field asks for nothing, and may pass. `body` is the whole request.
using Trivial = bool (*)(const BodyField& field, const BodyField& body);

bool when_empty(const BodyField& field, const BodyField&) {
  return is_empty(field);
}

template <int Value>
bool when_number(const BodyField& field, const BodyField&) {
  return is_number_of(field, Value);
}

bool tools_pass(const BodyField& field, const BodyField& body) {
  const auto choice = body.find("tool_choice");
  return is_empty(field) || (choice && is_text(*choice, "none"));
}

bool functions_pass(const BodyField& field, const BodyField& body) {
  const auto choice = body.find("function_call");
  return is_empty(field) || (choice && is_text(*choice, "none"));
}

// Without tools "auto" chooses none.
bool choice_passes(const BodyField& field, const BodyField&) {
  return is_text(field, "none") || is_text(field, "auto");
}

bool format_passes(const BodyField& field, const BodyField&) {
  return has_type(field, "text") || is_empty(field);
}

bool modalities_pass(const BodyField& field, const BodyField&) {
  return is_empty(field) || (field.is_array() && field.size() == 1 && is_text(field.element(0), "text"));
}

bool best_of_passes(const BodyField& field, const BodyField&) {
  return is_number_of(field, 1) || is_number_of(field, 0);
}

bool true_passes(const BodyField& field, const BodyField&) {
  return field.is_boolean() && field.boolean();
}

// A template brings its own, so chats have none added anyway.
bool special_tokens_pass(const BodyField& field, const BodyField& body) {
  return field.is_boolean() && (field.boolean() || body.find("messages"));
}

struct RefusedField {
  std::string_view name;
  Trivial trivial;
  std::string_view instead;  // what would pass
};

constexpr RefusedField kRefused[] = {
    {"tools", tools_pass, "none, or tool_choice \"none\""},
    {"tool_choice", choice_passes, "\"none\" or \"auto\""},
    {"functions", functions_pass, "none, or function_call \"none\""},
    {"function_call", choice_passes, "\"none\" or \"auto\""},
    {"response_format", format_passes, "type \"text\""},
    {"grammar", when_empty, "none"},
    {"json_schema", when_empty, "none"},
    {"structured_outputs", when_empty, "none"},
    {"guided_json", when_empty, "none"},
    {"guided_regex", when_empty, "none"},
    {"guided_choice", when_empty, "none"},
    {"guided_grammar", when_empty, "none"},
    {"suffix", when_empty, "none"},
    {"best_of", best_of_passes, "1"},
    {"use_beam_search", when_empty, "false"},
    {"audio", when_empty, "none"},
    {"modalities", modalities_pass, "[\"text\"]"},
    {"chat_template", when_empty, "none: templates come from the model"},
    {"documents", when_empty, "none"},
    {"bad_words", when_empty, "none"},
    {"allowed_token_ids", when_empty, "none"},
    {"skip_special_tokens", true_passes, "true"},
    {"truncate_prompt_tokens", when_number<-1>, "-1"},
    {"mirostat", when_number<0>, "0"},
    {"typical_p", when_number<1>, "1"},
    {"dynatemp_range", when_number<0>, "0"},
    {"xtc_probability", when_number<0>, "0"},
    {"dry_multiplier", when_number<0>, "0"},
    {"top_n_sigma", when_number<-1>, "-1"},
    {"samplers", when_empty, "none: their order is fixed"},
    {"repeat_last_n", when_number<-1>, "-1: penalties see prompt and answer"},
    {"t_max_predict_ms", when_number<0>, "0"},
    {"lora", when_empty, "none"},
    {"add_special_tokens", special_tokens_pass, "true"},
};

}  // namespace

void refuse_unsupported_fields(const BodyField& body) {
  for (const RefusedField& refused : kRefused)
    if (const auto field = body.find(refused.name); field && !refused.trivial(*field, body))
      field->refuse_because(fmt::format("not supported, expected {}", refused.instead));
}

std::vector<std::string_view> refusable_field_names() {
  std::vector<std::string_view> names;
  for (const RefusedField& refused : kRefused) names.push_back(refused.name);
  return names;
}

}  // namespace espalier
