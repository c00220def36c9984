#include "serve/protocol/prompt_tokens.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/protocol/api_error.h"

namespace espalier {
namespace {

// What the model's template or tokenizer has to say against a prompt is the client's to hear.
template <typename Function>
auto or_refused(std::string_view param, Function function) {
  try {
    return function();
  } catch (const InputError& error) {
    throw invalid_request(fmt::format("{}: {}", param, error.what()), param);
  }
}

// The server's variables, and over them those of the request. Either may be empty.
std::string joined_variables(const std::string& server, const std::string& request) {
  if (server.empty() || request.empty()) return server.empty() ? request : server;
  nlohmann::json variables = nlohmann::json::parse(server);
  variables.update(nlohmann::json::parse(request));
  return variables.dump();
}

ChatContext context_of(const ChatPromptFields& prompt, const ModelText& text, const ChatContext& chat) {
  if (!chat.instead && !text.chat_template)
    throw invalid_request("messages: the model has no chat template, use /v1/completions", "messages");
  ChatContext context = chat;
  context.generation_prompt = prompt.add_generation_prompt;
  context.continue_final = prompt.continue_final_message;
  context.variables_json = joined_variables(chat.variables_json, prompt.template_variables);
  return context;
}

PlannedPrompt text_prompt(const std::string& prompt, const CompletionRequest& request, const ModelText& text,
                          const std::string& path) {
  PlannedPrompt planned;
  planned.tokens = or_refused(path, [&] { return encode_plain(text, prompt, request.parse_special); });
  const auto bos = text.tokenizer->bos();
  const bool begins_with_bos = bos && !planned.tokens.empty() && planned.tokens.front() == *bos;
  const bool spells_bos = request.parse_special && !text.bos_text.empty() && prompt.starts_with(text.bos_text);
  planned.added_bos = begins_with_bos && !spells_bos;
  if (request.echo) planned.echo = prompt;
  return planned;
}

}  // namespace

std::vector<TokenId> chat_tokens(const ChatPromptFields& prompt, const ModelText& text, const ChatContext& chat) {
  const ChatContext context = context_of(prompt, text, chat);
  return or_refused("messages", [&] { return encode_chat(text, prompt.messages, context); });
}

std::string chat_text(const ChatPromptFields& prompt, const ModelText& text, const ChatContext& chat) {
  const ChatContext context = context_of(prompt, text, chat);
  std::string joined;
  for (const TextPiece& piece : or_refused("messages", [&] { return render_chat(text, prompt.messages, context); }))
    joined += piece.text;
  return joined;
}

PlannedPrompt plain_prompt(const PromptField& prompt, const CompletionRequest& request, const ModelText& text,
                           std::int64_t vocabulary, const std::string& path) {
  if (const auto* words = std::get_if<std::string>(&prompt)) return text_prompt(*words, request, text, path);
  PlannedPrompt planned{.tokens = checked_ids(std::get<std::vector<std::int64_t>>(prompt), vocabulary, path)};
  if (request.echo) planned.echo = text.tokenizer->decode(planned.tokens);
  return planned;
}

std::vector<TokenId> checked_ids(const std::vector<std::int64_t>& ids, std::int64_t vocabulary,
                                 const std::string& path) {
  std::vector<TokenId> checked;
  checked.reserve(ids.size());
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= vocabulary)
      throw invalid_request(
          fmt::format("{}[{}]: expected a token id from 0 to {}, got {}", path, checked.size(), vocabulary - 1, id),
          fmt::format("{}[{}]", path, checked.size()));
    checked.push_back(static_cast<TokenId>(id));
  }
  return checked;
}

void check_prompt_size(const std::vector<TokenId>& tokens, std::int64_t context, const std::string& path) {
  if (tokens.empty()) throw invalid_request(fmt::format("{}: expected at least one token, got none", path), path);
  if (std::ssize(tokens) > context) throw prompt_too_long(std::ssize(tokens), context, path);
}

}  // namespace espalier
