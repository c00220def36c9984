#include "serve/protocol/message_fields.h"

#include <fmt/format.h>

#include <array>

#include "base/untrusted_text.h"

namespace espalier {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

std::string text_of_part(const BodyField& part) {
  if (part.is_string()) return part.text();
  const auto type = part.object().find("type");
  if (!type) part.refuse_because("type is missing");
  if (type->text() != "text")
    type->refuse_because(fmt::format("expected \"text\", got {}: only text is understood", in_quotes(type->text())));
  const auto text = part.find("text");
  if (!text) part.refuse_because("text is missing");
  return text->text();
}

std::string role_of(const BodyField& message) {
  const auto role = message.object().find("role");
  if (!role) message.refuse_because("role is missing");
  const std::string_view name = kRoles[role->one_of(kRoles)];
  return std::string(name == "developer" ? "system" : name);
}

bool asks_for_something(const std::optional<BodyField>& field) {
  return field && !(field->is_array() && field->size() == 0);
}

// What an assistant called is part of the prompt that templates with tools write; ours have none.
void refuse_tool_calls(const BodyField& message) {
  for (const std::string_view name : {"tool_calls", "function_call"})
    if (const auto calls = message.find(name); asks_for_something(calls))
      calls->refuse_because("calls of tools are not supported");
}

ChatMessage read_message(const BodyField& message) {
  ChatMessage read{.role = role_of(message), .content = {}};
  refuse_tool_calls(message);
  const auto content = message.find("content");
  if (content)
    read.content = text_of_content(*content);
  else if (read.role != "assistant")
    message.refuse_because("content is missing");
  return read;
}

}  // namespace

std::string text_of_content(const BodyField& content) {
  if (content.is_string()) return content.text();
  if (!content.is_array()) content.refuse("a string or a list of parts");
  content.array(1, kMostParts);
  std::string joined;
  for (std::size_t i = 0; i < content.size(); ++i) {
    if (i > 0) joined += '\n';
    joined += text_of_part(content.element(i));
  }
  return joined;
}

std::vector<ChatMessage> read_messages(const BodyField& messages) {
  if (!messages.is_array()) messages.refuse("a list of messages");
  messages.array(1, kMostMessages);
  std::vector<ChatMessage> all;
  for (std::size_t i = 0; i < messages.size(); ++i) all.push_back(read_message(messages.element(i)));
  const std::size_t count = all.size();
  if (count > 1 && all[count - 1].role == "assistant" && all[count - 2].role == "assistant")
    messages.refuse_because("expected at most one assistant message at the end, got two");
  return all;
}

}  // namespace espalier
