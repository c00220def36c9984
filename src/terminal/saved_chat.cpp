#include "terminal/saved_chat.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_field.h"
#include "base/json_text.h"

namespace espalier {
namespace {

constexpr int kSavedChatVersion = 1;

// The roles in their order.
void check_role(const JsonField& role, const std::vector<ChatMessage>& before) {
  const bool may_begin = before.empty() || before.back().role == "system";
  const bool fits = role.string() == "system"      ? before.empty()
                    : role.string() == "user"      ? may_begin || before.back().role == "assistant"
                    : role.string() == "assistant" ? !may_begin && before.back().role == "user"
                                                   : false;
  if (!fits) input_error("{}: expected a system message or none, then user and assistant in turn", role.where());
}

}  // namespace

std::string saved_chat(const std::vector<ChatMessage>& messages) {
  nlohmann::ordered_json object = {{"espalier_chat", kSavedChatVersion}, {"messages", nlohmann::ordered_json::array()}};
  for (const ChatMessage& message : messages)
    object["messages"].push_back({{"role", message.role}, {"content", message.content}});
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::vector<ChatMessage> parse_saved_chat(std::string_view bytes, std::string_view file) {
  const nlohmann::json json = parse_json(bytes, file);
  const JsonField document(json, file);
  document.at("espalier_chat").integer(kSavedChatVersion, kSavedChatVersion);
  std::vector<ChatMessage> messages;
  for (const JsonField& message : document.at("messages").elements()) {
    check_role(message.at("role"), messages);
    messages.push_back({message.at("role").string(), message.at("content").string()});
  }
  if (!messages.empty() && messages.back().role == "user")
    input_error("{}: messages: expected an answer to the last question", file);
  return messages;
}

}  // namespace espalier
