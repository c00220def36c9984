#include "trace/record_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/untrusted_text.h"
#include "tree/choice_tree.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostCount = std::int64_t{1} << 48;
constexpr std::int64_t kMostId = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kAllSources = std::numeric_limits<SourceSet>::max();
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

constexpr std::string_view kAttentions[] = {"fused", "eager"};
constexpr std::string_view kMasks[] = {"list", "dense"};

// A number, or null for minus infinity, which JSON has no word for.
Json or_null(double value) {
  return std::isinf(value) ? Json() : Json(value);
}

float float_from(const JsonField& field) {
  const double number = field.number();
  if (std::abs(number) > std::numeric_limits<float>::max())
    input_error("{}: expected a number that 32 bits hold, got {}", field.where(), number);
  return static_cast<float>(number);
}

// One entry for each node of a tree.
JsonField list_of(const JsonField& tree, const char* name, std::size_t nodes) {
  JsonField list = tree.at(name);
  if (list.array().size() != nodes)
    input_error("{}: expected {}, one for each node, got {}", list.where(), nodes, list.array().size());
  return list;
}

double score_at(const JsonField& scores, std::size_t node) {
  const nlohmann::json& value = scores.array()[node];
  if (value.is_null()) return kMinusInfinity;
  return value.is_number() ? value.get<double>() : scores.element(node).number();
}

Json bias_json(const SamplingOptions& sampling) {
  Json list = Json::array();
  for (const auto& [id, bias] : sampling.logit_bias) list.push_back({id, or_null(bias)});
  return list;
}

void read_bias(const JsonField& list, SamplingOptions& sampling) {
  for (const JsonField& pair : list.elements()) {
    if (pair.array().size() != 2)
      input_error("{}: expected an id and a value, got {} values", pair.where(), pair.array().size());
    const auto id = static_cast<std::int32_t>(pair.element(0).integer(0, kMostId));
    const JsonField bias = pair.element(1);
    sampling.logit_bias.insert_or_assign(id, bias.is_null() ? static_cast<float>(kMinusInfinity) : float_from(bias));
  }
}

// In a message: numbers as they are, anything else in quotes and not too long.
std::string shown(const nlohmann::json& value) {
  if (value.is_number()) return value.dump();
  return in_quotes(value.is_string() ? value.get_ref<const std::string&>() : value.dump());
}

}  // namespace

std::string_view program_version() {
  return ESPALIER_VERSION;
}

Json record_head(std::string_view kind, const RecordOrigin& origin) {
  return {{"kind", kind},
          {"schema", kRecordSchema},
          {"arithmetic", kArithmetic},
          {"version", program_version()},
          {"commit", origin.commit.empty() ? Json() : Json(origin.commit)},
          {"configuration", Json::parse(origin.configuration)}};
}

RecordOrigin record_origin_from(const JsonField& record, std::string_view kind) {
  const auto found = record.is_object() ? record.find("kind") : std::nullopt;
  if (!found || !found->is_string() || found->string() != kind)
    input_error("{}: expected a {} of espalier, got {}", record.where(), kind, in_quotes(record.json().dump()));
  const JsonField schema = record.at("schema"), version = record.at("version");
  if (schema.json() != kRecordSchema)
    input_error("{}: a {} of schema {}, expected {}", record.where(), kind, shown(schema.json()), kRecordSchema);
  if (!version.is_string() || version.string() != program_version())
    input_error("{}: a {} of version {}, expected {}, that of this program", record.where(), kind,
                shown(version.json()), program_version());
  const auto arithmetic = record.find("arithmetic");
  check_arithmetic(record.where(), arithmetic ? arithmetic->json() : nlohmann::json());
  return {.commit = record.string_or("commit", ""), .configuration = one_line(record.at("configuration").json())};
}

Json json_of(const PromptId& id) {
  return std::visit([](const auto& value) { return Json(value); }, id);
}

PromptId prompt_id_from(const JsonField& field) {
  if (field.is_string()) return field.string();
  if (!field.json().is_number_integer())
    input_error("{}: expected a text or an integer, got {}", field.where(), in_quotes(field.json().dump()));
  return field.integer();
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

TokenTree tree_from(const JsonField& field) {
  const std::vector<std::int64_t> parents = field.at("parents").integers(0, kMaxTreeRows - 1);
  if (parents.empty() || parents.size() > kMaxTreeRows)
    input_error("{}: expected 1 to {} nodes, got {}", field.where(), kMaxTreeRows, parents.size());
  const auto tokens = list_of(field, "tokens", parents.size()).integers(0, kMostId);
  const auto sources = list_of(field, "sources", parents.size()).integers(0, kAllSources);
  const JsonField scores = list_of(field, "scores", parents.size());
  if (parents[0] != 0 || score_at(scores, 0) != 0 || sources[0] != 0)
    input_error("{}: expected parent 0, score 0 and no sources at the root, got {}, {} and {}", field.where(),
                parents[0], score_at(scores, 0), sources[0]);
  TokenTree tree(static_cast<std::int32_t>(tokens[0]));
  try {
    for (std::size_t i = 1; i < parents.size(); ++i)
      tree.append(static_cast<int>(parents[i]), {.token = static_cast<std::int32_t>(tokens[i]),
                                                 .score = score_at(scores, i),
                                                 .sources = static_cast<SourceSet>(sources[i])});
  } catch (const std::logic_error& error) {  // what a tree may not be, the tree knows best
    input_error("{}: {}", field.where(), error.what());
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

RoundTimes times_from(const JsonField& field) {
  const auto at = [&](const char* name) { return seconds_from(field.at(name)); };
  return {at("draft"), at("prepare"), at("verify"), at("accept"), at("commit")};
}

Json json_of(const SamplingOptions& options) {
  return {{"temperature", options.temperature},
          {"top_k", options.top_k},
          {"top_p", options.top_p},
          {"min_p", options.min_p},
          {"repeat_penalty", options.repeat_penalty},
          {"presence_penalty", options.presence_penalty},
          {"frequency_penalty", options.frequency_penalty}};
}

DrawOptions DrawOptions::of(const GenerateOptions& options) {
  DrawOptions draw{.sampling = options.sampling, .seed = options.seed, .max_tokens = options.max_tokens};
  if (options.min_tokens == 0) return draw;
  draw.min_tokens = options.min_tokens;
  draw.stop_tokens = options.stop_tokens;
  return draw;
}

GenerateOptions DrawOptions::generate_options() const {
  return {.sampling = sampling,
          .seed = seed,
          .max_tokens = max_tokens,
          .stop_tokens = stop_tokens,
          .min_tokens = min_tokens};
}

Json json_of(const DrawOptions& options) {
  Json object = json_of(options.sampling);
  object["logit_bias"] = bias_json(options.sampling);
  object["seed"] = options.seed;
  object["max_tokens"] = options.max_tokens;
  if (options.min_tokens == 0) return object;
  object["min_tokens"] = options.min_tokens;
  object["stop_tokens"] = options.stop_tokens;
  return object;
}

DrawOptions draw_options_from(const JsonField& field) {
  DrawOptions options;
  SamplingOptions& sampling = options.sampling;
  sampling.temperature = float_from(field.at("temperature"));
  sampling.top_k = field.at("top_k").integer();
  sampling.top_p = float_from(field.at("top_p"));
  sampling.min_p = float_from(field.at("min_p"));
  sampling.repeat_penalty = float_from(field.at("repeat_penalty"));
  sampling.presence_penalty = float_from(field.at("presence_penalty"));
  sampling.frequency_penalty = float_from(field.at("frequency_penalty"));
  read_bias(field.at("logit_bias"), sampling);
  options.seed = field.at("seed").natural();
  options.max_tokens = count_from(field.at("max_tokens"));
  if (const std::optional<JsonField> least = field.find("min_tokens")) {
    options.min_tokens = count_from(*least, 1);
    options.stop_tokens = tokens_from(field.at("stop_tokens"));
  }
  try {
    check_options(sampling);
  } catch (const InputError& error) {
    input_error("{}: {}", field.where(), error.what());
  }
  return options;
}

std::vector<std::int32_t> tokens_from(const JsonField& field) {
  const std::vector<std::int64_t> ids = field.integers(0, kMostId);
  return {ids.begin(), ids.end()};
}

std::int64_t count_from(const JsonField& field, std::int64_t least) {
  return field.integer(least, kMostCount);
}

double seconds_from(const JsonField& field) {
  const double seconds = field.number();
  if (seconds < 0) input_error("{}: expected 0 seconds or more, got {}", field.where(), seconds);
  return seconds;
}

std::string_view name(AttentionOp attention) {
  return kAttentions[attention == AttentionOp::eager ? 1 : 0];
}

std::string_view name(MaskForm mask) {
  return kMasks[mask == MaskForm::dense ? 1 : 0];
}

StepForm form_from(const JsonField& record) {
  const bool eager = record.at("attention").one_of(kAttentions) == 1, dense = record.at("mask").one_of(kMasks) == 1;
  return {.attention = eager ? AttentionOp::eager : AttentionOp::fused,
          .mask = dense ? MaskForm::dense : MaskForm::list};
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
