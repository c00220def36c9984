#include "text/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "text/jinja/json.h"
#include "text/jinja/template.h"
#include "text/utf8.h"

namespace espalier {
namespace {

using jinja::Text;
using jinja::Value;

// On top of the fixed bounds: what an honest template needs for a long conversation.
constexpr std::size_t kStepsPerMessage = 2'000;
constexpr std::size_t kTextPerInputByte = 128;

std::size_t input_bytes(std::span<const ChatMessage> messages, const ChatTemplateOptions& options) {
  std::size_t bytes = options.variables_json.size();
  for (const ChatMessage& message : messages) bytes += message.role.size() + message.content.size();
  return bytes;
}

jinja::Limits limits_for(std::span<const ChatMessage> messages, const ChatTemplateOptions& options) {
  jinja::Limits limits;
  limits.steps += kStepsPerMessage * messages.size();
  limits.text_bytes += kTextPerInputByte * input_bytes(messages, options);
  return limits;
}

Value text_value(std::string_view what, const std::string& bytes, bool trusted) {
  if (const auto bad = first_invalid_utf8(bytes)) input_error("{}: invalid UTF-8 at byte {}", what, *bad);
  return Value(Text(bytes, trusted));
}

Value message_value(jinja::Guard& guard, const ChatMessage& message, std::size_t number) {
  const std::string what = fmt::format("message {}", number);
  return jinja::make_dict(guard,
                          {{Value(Text("role", true)), text_value(what + " role", message.role, false)},
                           {Value(Text("content", true)), text_value(what + " content", message.content, false)}});
}

Value messages_value(jinja::Guard& guard, std::span<const ChatMessage> messages) {
  std::vector<Value> values;
  for (const ChatMessage& message : messages) values.push_back(message_value(guard, message, values.size()));
  return jinja::make_list(guard, std::move(values));
}

void add_variables(jinja::Guard& guard, const std::string& variables_json, jinja::Context& context) {
  const auto json = nlohmann::ordered_json::parse(variables_json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) input_error("template variables: expected a JSON object, got '{}'", variables_json);
  for (const auto& [name, value] : json.items()) {
    if (name == "messages" || name == "add_generation_prompt")
      input_error("template variables: '{}' is set by the conversation", name);
    // First match wins, so these go before the defaults.
    context.variables.emplace_back(name, jinja::from_json(guard, value));
  }
}

// The variables transformers gives every template.
jinja::Context make_context(jinja::Guard& guard, std::span<const ChatMessage> messages,
                            const ChatTemplateOptions& options) {
  jinja::Context context;
  if (!options.variables_json.empty()) add_variables(guard, options.variables_json, context);
  context.variables.emplace_back("messages", messages_value(guard, messages));
  context.variables.emplace_back("add_generation_prompt", Value(options.add_generation_prompt));
  context.variables.emplace_back("tools", Value());
  context.variables.emplace_back("documents", Value());
  if (!options.bos_token.empty())
    context.variables.emplace_back("bos_token", text_value("bos_token", options.bos_token, true));
  if (!options.eos_token.empty())
    context.variables.emplace_back("eos_token", text_value("eos_token", options.eos_token, true));
  if (!options.date_iso.empty()) context.now = jinja::parse_date(options.date_iso);
  return context;
}

}  // namespace

struct ChatTemplate::Program {
  std::string source;
  jinja::Template text;
};

ChatTemplate::ChatTemplate(std::string_view source)
    : program_(new Program{std::string(source), jinja::Template(source)}) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

const std::string& ChatTemplate::source() const {
  return program_->source;
}

bool ChatTemplate::mentions_date() const {
  return program_->source.find("strftime_now") != std::string::npos;
}

std::vector<TextPiece> ChatTemplate::render(std::span<const ChatMessage> messages,
                                            const ChatTemplateOptions& options) const {
  jinja::Guard guard(limits_for(messages, options));
  const jinja::Context context = make_context(guard, messages, options);
  return program_->text.render(context, guard).pieces();
}

}  // namespace espalier
