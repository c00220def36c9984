#include "serve/protocol/chat_request.h"

#include "serve/protocol/api_error.h"
#include "serve/protocol/field_rules.h"

namespace espalier {
namespace {

// What a client said of the prompt, before both settings are held against each other.
struct SentChatPrompt {
  ChatPromptFields fields = {};
  std::optional<bool> generation_prompt = {};
};

constexpr FieldRule<SentChatPrompt> kChatPromptRules[] = {
    {"messages", [](const BodyField& f, SentChatPrompt& p) { p.fields.messages = read_messages(f); }},
    {"add_generation_prompt", [](const BodyField& f, SentChatPrompt& p) { p.generation_prompt = f.boolean(); }},
    {"continue_final_message",
     [](const BodyField& f, SentChatPrompt& p) { p.fields.continue_final_message = f.boolean(); }},
    {"chat_template_kwargs",
     [](const BodyField& f, SentChatPrompt& p) { p.fields.template_variables = f.object().json(); }},
};

constexpr FieldRule<ChatRequest> kChatRules[] = {
    {"echo",
     [](const BodyField& f, ChatRequest&) {
       if (f.boolean()) f.refuse_because("not supported in a chat, expected false");
     }},
    {"logprobs", [](const BodyField& f, ChatRequest& r) { r.logprobs = f.boolean(); }},
    {"top_logprobs",
     [](const BodyField& f, ChatRequest& r) {
       r.top_logprobs = f.integer(0, kMostAlternatives);
       if (r.top_logprobs > 0 && !r.logprobs) f.refuse_because("logprobs must be true with it");
     }},
};

}  // namespace

ChatPromptFields read_chat_prompt(const BodyField& body) {
  SentChatPrompt sent;
  read_fields<SentChatPrompt>(body, kChatPromptRules, sent);
  ChatPromptFields& prompt = sent.fields;
  if (prompt.messages.empty()) throw invalid_request("messages is missing", "messages");
  if (prompt.continue_final_message && sent.generation_prompt.value_or(false))
    throw invalid_request("continue_final_message and add_generation_prompt: expected at most one to be true",
                          "continue_final_message");
  if (prompt.continue_final_message && prompt.messages.back().role != "assistant")
    throw invalid_request("continue_final_message: expected an assistant message at the end", "continue_final_message");
  prompt.add_generation_prompt = sent.generation_prompt.value_or(!prompt.continue_final_message);
  return prompt;
}

ChatPromptFields parse_chat_prompt(std::string_view body) {
  const JsonBody json(body);
  return read_chat_prompt(json.root());
}

ChatRequest parse_chat_request(std::string_view body) {
  const JsonBody json(body);
  ChatRequest request{.fields = read_request_fields(json.root()), .prompt = read_chat_prompt(json.root())};
  read_fields<ChatRequest>(json.root(), kChatRules, request);
  return request;
}

std::vector<std::string_view> chat_prompt_field_names() {
  std::vector<std::string_view> names;
  add_names<SentChatPrompt>(kChatPromptRules, names);
  return names;
}

std::vector<std::string_view> chat_field_names() {
  std::vector<std::string_view> names = shared_field_names();
  add_names<SentChatPrompt>(kChatPromptRules, names);
  add_names<ChatRequest>(kChatRules, names);
  return names;
}

}  // namespace espalier
