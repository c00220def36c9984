#include "report/run_words.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/recorded_run.h"
#include "text/token_text.h"

namespace espalier {

std::function<TokenWords(const nlohmann::ordered_json& configuration)> words_of_runs(
    const std::string& given, const std::optional<std::filesystem::path>& cache) {
  using Texts = std::map<std::string, std::optional<ModelText>>;  // by what a record says of its model
  // The function may be copied, and its words outlive it: all of them share the texts.
  return [given, cache, texts = std::make_shared<Texts>()](const nlohmann::ordered_json& configuration) {
    const bool says = configuration.is_object() && configuration.contains("model");
    const std::string model = says ? configuration["model"].dump() : "";
    auto place = texts->find(model);
    if (place == texts->end())
      place = texts->emplace(model, recorded_text(configuration, given, "manifest.json", cache)).first;
    TokenWords words{.drafters = recorded_drafters(configuration)};
    if (const std::optional<ModelText>& text = place->second)
      words.word = [texts, &tokenizer = *text->tokenizer](std::int32_t token) {
        const bool known = token < tokenizer.vocabulary_size();
        return known ? quoted_token(tokenizer.bytes(token, false)) : std::to_string(token);
      };
    return words;
  };
}

}  // namespace espalier
