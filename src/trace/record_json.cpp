#include "trace/record_json.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "tree/choice_tree.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostCount = std::int64_t{1} << 48;

// A number, or null for minus infinity, which JSON has no word for.
Json or_null(double value) {
  return std::isinf(value) ? Json() : Json(value);
}

double number_or_infinity(const nlohmann::json& value) {
  return value.is_null() ? -std::numeric_limits<double>::infinity() : value.get<double>();
}

std::int32_t int32_from(const nlohmann::json& value, std::string_view where) {
  const auto number = value.get<std::int64_t>();
  if (number < 0 || number > std::numeric_limits<std::int32_t>::max())
    input_error("{}: expected a number from 0 to {}, got {}", where, std::numeric_limits<std::int32_t>::max(),
                in_quotes(value.dump()));
  return static_cast<std::int32_t>(number);
}

const nlohmann::json& list_of(const nlohmann::json& object, const char* name, std::size_t size,
                              std::string_view where) {
  const nlohmann::json& list = object.at(name);
  if (!list.is_array() || list.size() != size)
    input_error("{}: tree: expected {} {}, got {}", where, size, name, list.is_array() ? list.size() : 0);
  return list;
}

Json bias_json(const SamplingOptions& sampling) {
  Json list = Json::array();
  for (const auto& [id, bias] : sampling.logit_bias) list.push_back({id, or_null(bias)});
  return list;
}

void read_bias(const nlohmann::json& list, std::string_view where, SamplingOptions& sampling) {
  for (const auto& pair : list)
    sampling.logit_bias.insert_or_assign(int32_from(pair.at(0), where),
                                         static_cast<float>(number_or_infinity(pair.at(1))));
}

// In a message: numbers as they are, anything else in quotes and not too long.
std::string shown(const nlohmann::json& value) {
  if (value.is_number()) return value.dump();
  return in_quotes(value.is_string() ? value.get_ref<const std::string&>() : value.dump());
}

template <typename Form>
Form one_of(const nlohmann::json& value, std::string_view where, Form first, Form second) {
  const auto text = value.get<std::string>();
  if (text == name(first)) return first;
  if (text != name(second))
    input_error("{}: expected {} or {}, got {}", where, name(first), name(second), in_quotes(text));
  return second;
}

}  // namespace

std::string_view program_version() {
  return ESPALIER_VERSION;
}

Json record_head(std::string_view kind, const RecordOrigin& origin) {
  return {{"kind", kind},
          {"schema", kRecordSchema},
          {"version", program_version()},
          {"commit", origin.commit.empty() ? Json() : Json(origin.commit)},
          {"configuration", origin.configuration}};
}

RecordOrigin record_origin_from(const nlohmann::json& object, std::string_view kind, std::string_view where) {
  if (!object.is_object() || !object.contains("kind") || object["kind"] != kind)
    input_error("{}: expected a {} of espalier, got {}", where, kind, in_quotes(object.dump()));
  RecordOrigin origin;
  reading(fmt::format("a {} of espalier", kind), where, [&] {
    if (object.at("schema") != kRecordSchema)
      input_error("{}: a {} of schema {}, expected {}", where, kind, shown(object["schema"]), kRecordSchema);
    if (object.at("version") != program_version())
      input_error("{}: a {} of version {}, expected {}, that of this program", where, kind, shown(object["version"]),
                  program_version());
    if (!object.at("commit").is_null()) origin.commit = object["commit"].get<std::string>();
    origin.configuration = object.at("configuration");
  });
  return origin;
}

Json json_of(const PromptId& id) {
  return std::visit([](const auto& value) { return Json(value); }, id);
}

PromptId prompt_id_from(const nlohmann::json& value, std::string_view where) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_integer())
    input_error("{}: prompt_id: expected a text or an integer, got {}", where, in_quotes(value.dump()));
  return value.get<std::int64_t>();
}

Json json_of(const TokenTree& tree) {
  Json parents = Json::array(), tokens = Json::array(), scores = Json::array(), sources = Json::array();
  for (const TreeNode& node : tree.nodes()) {
    parents.push_back(node.parent);
    tokens.push_back(node.token);
    scores.push_back(or_null(node.score));
    sources.push_back(node.sources);
  }
  return {{"parents", parents}, {"tokens", tokens}, {"scores", scores}, {"sources", sources}};
}

TokenTree tree_from(const nlohmann::json& object, std::string_view where) {
  const nlohmann::json& parents = object.at("parents");
  if (!parents.is_array() || parents.empty() || parents.size() > kMaxTreeRows)
    input_error("{}: tree: expected 1 to {} parents, got {}", where, kMaxTreeRows,
                parents.is_array() ? parents.size() : 0);
  const auto& tokens = list_of(object, "tokens", parents.size(), where);
  const auto& scores = list_of(object, "scores", parents.size(), where);
  const auto& sources = list_of(object, "sources", parents.size(), where);
  TokenTree tree(int32_from(tokens[0], where));
  if (parents[0] != 0 || scores[0] != 0)
    input_error("{}: tree: expected parent 0 and score 0 at the root, got {}", where,
                in_quotes(parents[0].dump() + ", " + scores[0].dump()));
  try {
    for (std::size_t i = 1; i < parents.size(); ++i)
      tree.append(int32_from(parents[i], where), {.token = int32_from(tokens[i], where),
                                                  .score = number_or_infinity(scores[i]),
                                                  .sources = sources[i].get<SourceSet>()});
  } catch (const std::logic_error& error) {  // what a tree may not be, the tree knows best
    input_error("{}: {}", where, error.what());
  }
  return tree;
}

Json json_of(const RoundTimes& times) {
  return {{"draft", times.draft},
          {"prepare", times.prepare},
          {"verify", times.verify},
          {"accept", times.accept},
          {"commit", times.commit}};
}

RoundTimes times_from(const nlohmann::json& object, std::string_view where) {
  if (!object.is_object())
    input_error("{}: expected the seconds of the stages, got {}", where, in_quotes(object.dump()));
  const auto at = [&](const char* name) { return object.at(name).get<double>(); };
  return {at("draft"), at("prepare"), at("verify"), at("accept"), at("commit")};
}

DrawOptions DrawOptions::of(const GenerateOptions& options) {
  return {.sampling = options.sampling, .seed = options.seed, .max_tokens = options.max_tokens};
}

GenerateOptions DrawOptions::generate_options() const {
  return {.sampling = sampling, .seed = seed, .max_tokens = max_tokens};
}

Json json_of(const DrawOptions& options) {
  const SamplingOptions& sampling = options.sampling;
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repeat_penalty", sampling.repeat_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"logit_bias", bias_json(sampling)},
          {"seed", options.seed},
          {"max_tokens", options.max_tokens}};
}

DrawOptions draw_options_from(const nlohmann::json& object, std::string_view where) {
  DrawOptions options;
  SamplingOptions& sampling = options.sampling;
  const auto number = [&](const char* name) { return object.at(name).get<float>(); };
  sampling.temperature = number("temperature");
  sampling.top_k = object.at("top_k").get<std::int64_t>();
  sampling.top_p = number("top_p");
  sampling.min_p = number("min_p");
  sampling.repeat_penalty = number("repeat_penalty");
  sampling.presence_penalty = number("presence_penalty");
  sampling.frequency_penalty = number("frequency_penalty");
  read_bias(object.at("logit_bias"), where, sampling);
  options.seed = object.at("seed").get<std::uint64_t>();
  options.max_tokens = count_from(object.at("max_tokens"), where);
  return options;
}

std::vector<std::int32_t> tokens_from(const nlohmann::json& list, std::string_view where) {
  if (!list.is_array()) input_error("{}: expected a list of tokens, got {}", where, in_quotes(list.dump()));
  std::vector<std::int32_t> tokens;
  tokens.reserve(list.size());
  for (const auto& value : list) tokens.push_back(int32_from(value, where));
  return tokens;
}

std::int64_t count_from(const nlohmann::json& value, std::string_view where) {
  const auto count = value.get<std::int64_t>();
  if (!value.is_number_integer() || count < 0 || count > kMostCount)
    input_error("{}: expected a count from 0 to {}, got {}", where, kMostCount, in_quotes(value.dump()));
  return count;
}

std::string_view name(AttentionOp attention) {
  return attention == AttentionOp::eager ? "eager" : "fused";
}

std::string_view name(MaskForm mask) {
  return mask == MaskForm::dense ? "dense" : "list";
}

Json json_of(const StepForm& form) {
  return {{"attention", name(form.attention)}, {"mask", name(form.mask)}};
}

StepForm form_from(const nlohmann::json& object, std::string_view where) {
  return {.attention = one_of(object.at("attention"), where, AttentionOp::fused, AttentionOp::eager),
          .mask = one_of(object.at("mask"), where, MaskForm::list, MaskForm::dense)};
}

std::string one_line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void reading(std::string_view what, std::string_view where, const std::function<void()>& read) {
  try {
    read();
  } catch (const nlohmann::json::exception& error) {
    const std::string_view message = error.what();
    const std::size_t begin = message.find("] ");
    input_error("{}: expected {}: {}", where, what,
                in_quotes(message.substr(begin == std::string_view::npos ? 0 : begin + 2)));
  }
}

}  // namespace espalier
