#include "eval/prepared_prompts.h"

#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<TokenId>;

constexpr int kSchema = 1;

Ids ids_of(const EvalPrompt& prompt, const PromptTexts& texts, const ChatContext& chat) {
  if (texts.raw) return encode_plain(texts.text, prompt.turns[0]);
  std::vector<ChatMessage> messages;
  if (!texts.system.empty()) messages.push_back({"system", texts.system});
  messages.push_back({"user", prompt.turns[0]});
  return encode_chat(texts.text, messages, chat);
}

Ids ids_or_none(const EvalPrompt& prompt, const PromptTexts& texts, const ChatContext& chat) {
  try {
    return ids_of(prompt, texts, chat);
  } catch (const InputError&) {
    return {};
  }
}

// Most templates do not tell the time: their prompts are the same tomorrow.
bool date_matters(const EvalPrompt& prompt, const PromptTexts& texts) {
  if (texts.raw || texts.chat.date_iso.empty()) return false;
  ChatContext another = texts.chat;
  for (const char* other : {"1999-03-04T05:06:07", "2018-11-22T23:45:51"}) {
    another.date_iso = other;
    if (ids_or_none(prompt, texts, another) != ids_or_none(prompt, texts, texts.chat)) return true;
  }
  return false;
}

std::string description(std::span<const EvalPrompt> prompts, const PromptFile& file, const PromptTexts& texts) {
  const Json object = {{"schema", kSchema},
                       {"identity", texts.identity},
                       {"raw", texts.raw},
                       {"system", texts.system},
                       {"variables", texts.chat.variables_json},
                       {"date", date_matters(prompts.front(), texts) ? Json(texts.chat.date_iso) : Json()},
                       {"data", file.sha256},
                       {"lines", {prompts.front().line, prompts.back().line}}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Prompts of one file.
std::vector<Ids> prepare(std::span<const EvalPrompt> prompts, const PromptFile& file, const PromptTexts& texts,
                         const ArtefactCache& cache) {
  const auto build = [&] {
    std::vector<Ids> all;
    for (const EvalPrompt& prompt : prompts) all.push_back(ids_or_none(prompt, texts, texts.chat));
    return all;
  };
  if (texts.identity.empty() || file.sha256.empty()) return build();
  const std::string kept =
      cache.get("prompts", description(prompts, file, texts), [&] { return Json(build()).dump(); });
  return nlohmann::json::parse(kept).get<std::vector<Ids>>();
}

}  // namespace

std::vector<Ids> prepare_prompts(const PromptSet& data, const PromptTexts& texts, const ArtefactCache& cache) {
  std::vector<Ids> all;
  const std::span<const EvalPrompt> prompts = data.prompts;
  for (std::size_t begin = 0; begin < prompts.size();) {
    std::size_t end = begin;
    while (end < prompts.size() && prompts[end].file == prompts[begin].file) ++end;
    for (Ids& ids : prepare(prompts.subspan(begin, end - begin), data.files[prompts[begin].file], texts, cache))
      all.push_back(std::move(ids));
    begin = end;
  }
  check(all.size() == prompts.size(), "prepare_prompts: {} of {}", all.size(), prompts.size());
  return all;
}

}  // namespace espalier
