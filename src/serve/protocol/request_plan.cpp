#include "serve/protocol/request_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/random.h"
#include "base/untrusted_text.h"
#include "decode/drafter_names.h"
#include "serve/protocol/api_error.h"
#include "serve/protocol/prompt_tokens.h"

namespace espalier {
namespace {

constexpr std::int64_t kDefaultCompletionTokens = 16;
constexpr std::uint64_t kExactBits = (std::uint64_t{1} << 53) - 1;

// The first of these that says something.
template <typename Value>
std::optional<Value> first_said(const RequestFields* request, const ServerSettings& settings,
                                std::optional<Value> SamplingFields::*field) {
  if (request != nullptr && request->sampling.*field) return request->sampling.*field;
  if (settings.flags.*field) return settings.flags.*field;
  return settings.recommended.*field;
}

SamplingOptions sampling_of(const RequestFields* request, const ServerSettings& settings) {
  const auto number = [&](std::optional<double> SamplingFields::*field, double otherwise) {
    return static_cast<float>(first_said(request, settings, field).value_or(otherwise));
  };
  SamplingOptions sampling;
  sampling.temperature = number(&SamplingFields::temperature, 1);
  sampling.top_p = number(&SamplingFields::top_p, 1);
  sampling.min_p = number(&SamplingFields::min_p, 0);
  sampling.presence_penalty = number(&SamplingFields::presence_penalty, 0);
  sampling.frequency_penalty = number(&SamplingFields::frequency_penalty, 0);
  sampling.repeat_penalty = number(&SamplingFields::repetition_penalty, 1);
  sampling.top_k = first_said(request, settings, &SamplingFields::top_k).value_or(0);
  return sampling;
}

TokenId biased_token(const BiasField& bias, const ModelText& text, std::int64_t vocabulary) {
  if (const auto* id = std::get_if<std::int64_t>(&bias.token)) {
    if (*id < vocabulary) return static_cast<TokenId>(*id);
    throw invalid_request(fmt::format("{}: expected a token id from 0 to {}, got {}", bias.path, vocabulary - 1, *id),
                          bias.path);
  }
  const std::vector<TokenId> tokens = text.tokenizer->encode(std::get<std::string>(bias.token), true);
  if (tokens.size() == 1) return tokens[0];
  throw invalid_request(fmt::format("{}: expected a text that is one token, got one of {}", bias.path, tokens.size()),
                        bias.path);
}

// What all choices of a request draw with, without seed and limits.
TextOptions shared_options(const RequestFields& fields, const ModelText& text, const ServerSettings& settings) {
  TextOptions options{.stop = fields.stop, .ignore_eos = fields.ignore_eos};
  options.include_stop = fields.include_stop_str_in_output;
  options.generate.sampling = sampling_of(&fields, settings);
  for (const BiasField& bias : fields.logit_bias)
    options.generate.sampling.logit_bias[biased_token(bias, text, settings.vocabulary)] = static_cast<float>(bias.bias);
  options.generate.stop_tokens = checked_ids(fields.stop_token_ids, settings.vocabulary, "stop_token_ids");
  return options;
}

DraftCaps draft_caps(const RequestFields& fields, const ServerSettings& settings) {
  if (!fields.speculation) return {};
  SpeculationField asked = *fields.speculation;
  for (std::string& drafter : asked.drafters) {
    const auto loaded = std::ranges::find_if(settings.drafters, [&](const std::string& name) {
      return name == drafter || (drafter == "eagle" && names_eagle(name));
    });
    if (loaded == settings.drafters.end())
      throw invalid_request(
          fmt::format("speculation.draft: expected \"auto\", \"none\" or one of those loaded ({}), got {}",
                      fmt::join(settings.drafters, ", "), in_quotes(drafter)),
          "speculation.draft");
    drafter = *loaded;
  }
  if (asked.tree && *asked.tree != TreeShape::chain && *asked.tree != settings.tree)
    throw invalid_request(
        fmt::format("speculation.tree: expected \"chain\" or \"{}\", the trees of this server, got \"{}\"",
                    name(settings.tree), name(*asked.tree)),
        "speculation.tree");
  return {
      .drafts = asked.on, .nodes = asked.nodes, .depth = asked.depth, .drafters = asked.drafters, .tree = asked.tree};
}

void check_against_server(const RequestFields& fields, const ServerSettings& settings) {
  if (settings.strict_model && fields.model && *fields.model != settings.model)
    throw model_not_found(*fields.model, settings.model);
  if (fields.priority != 0 && !settings.priorities)
    throw invalid_request(fmt::format("priority: expected 0 on a server without --priorities, got {}", fields.priority),
                          "priority");
  if (fields.receipt && !settings.receipts)
    throw invalid_request("receipt: this server's answers depend on their company, so a receipt would say nothing",
                          "receipt");
}

// The most tokens of an answer behind so many of a prompt. The last one drawn needs no position of its own.
std::int64_t token_limit(const RequestFields& fields, std::int64_t prompt, const ServerSettings& settings,
                         std::optional<std::int64_t> otherwise) {
  const std::int64_t left = settings.context - prompt + 1;
  return std::min(left, fields.max_tokens.value_or(otherwise.value_or(left)));
}

void check_limits(const RequestFields& fields, bool echo) {
  if (fields.max_tokens == 0 && !echo)
    throw invalid_request("max_tokens: expected 1 or more without echo, got 0", "max_tokens");
  if (fields.max_tokens && fields.min_tokens > *fields.max_tokens)
    throw invalid_request(
        fmt::format("min_tokens: expected 0 to max_tokens ({}), got {}", *fields.max_tokens, fields.min_tokens),
        "min_tokens");
}

// The part of a plan that does not depend on the prompts.
RequestPlan begin_plan(const RequestFields& fields, Api api, const ModelText& text, const ServerSettings& settings,
                       std::uint64_t fresh_seed) {
  check_against_server(fields, settings);
  RequestPlan plan;
  plan.form = {.api = api,
               .n = static_cast<int>(fields.n),
               .stream = fields.stream,
               .include_usage = fields.stream && fields.include_usage,
               .continuous_usage = fields.stream && fields.include_usage && fields.continuous_usage_stats,
               .timings_per_token = fields.timings_per_token,
               .token_ids = fields.return_token_ids,
               .metrics = fields.metrics,
               .rounds = fields.rounds,
               .receipt = fields.receipt,
               .prediction = fields.prediction.has_value()};
  plan.seed = fields.seed ? static_cast<std::uint64_t>(*fields.seed) : settings.seed.value_or(fresh_seed & kExactBits);
  plan.draft = draft_caps(fields, settings);
  if (fields.prediction) plan.prediction = text.tokenizer->encode(*fields.prediction);
  if (std::ssize(plan.prediction) > settings.context)
    plan.prediction.resize(static_cast<std::size_t>(settings.context));
  plan.cache = fields.cache_prompt;
  plan.salt = fields.cache_salt;
  plan.priority = static_cast<int>(fields.priority);
  return plan;
}

// The choices of one more prompt.
void add_choices(const RequestFields& fields, const ServerSettings& settings, TextOptions options,
                 std::optional<std::int64_t> default_tokens, RequestPlan& plan) {
  const int prompt = static_cast<int>(plan.prompts.size()) - 1;
  GenerateOptions& generate = options.generate;
  generate.max_tokens = token_limit(fields, std::ssize(plan.prompts.back().tokens), settings, default_tokens);
  generate.min_tokens = std::min(fields.min_tokens, generate.max_tokens);
  for (int choice = 0; choice < plan.form.n; ++choice) {
    generate.seed = choice_seed(plan.seed, choice);
    if (choice > 0) generate.prompt_logprobs = -1;  // the first has them computed for all
    plan.choices.push_back({.index = prompt * plan.form.n + choice, .prompt = prompt, .text = options});
  }
}

}  // namespace

std::uint64_t choice_seed(std::uint64_t seed, int choice) {
  if (choice == 0) return seed;
  return mix64(mix64(seed + 0x9e3779b97f4a7c15ull) ^ static_cast<std::uint64_t>(choice) * 0xd1b54a32d192ed03ull) >> 11;
}

AnswerFrame frame_of(const RequestPlan& plan, const ServerSettings& settings, std::string id, std::int64_t created,
                     std::string fingerprint) {
  AnswerFrame frame{.form = plan.form,
                    .id = std::move(id),
                    .created = created,
                    .model = settings.model,
                    .fingerprint = std::move(fingerprint),
                    .seed = plan.seed};
  for (const PlannedPrompt& prompt : plan.prompts) frame.prompts.push_back(prompt.tokens);
  return frame;
}

SamplingOptions default_sampling(const ServerSettings& settings) {
  return sampling_of(nullptr, settings);
}

RequestPlan plan_chat(const ChatRequest& request, const ModelText& text, const ServerSettings& settings,
                      std::uint64_t fresh_seed) {
  const RequestFields& fields = request.fields;
  check_limits(fields, /*echo=*/false);
  RequestPlan plan = begin_plan(fields, Api::chat, text, settings, fresh_seed);
  TextOptions options = shared_options(fields, text, settings);
  plan.form.logprobs = request.logprobs;
  options.generate.logprobs = request.logprobs ? request.top_logprobs : -1;
  plan.prompts.push_back({.tokens = chat_tokens(request.prompt, text, settings.chat)});
  check_prompt_size(plan.prompts[0].tokens, settings.context, "messages");
  add_choices(fields, settings, std::move(options), std::nullopt, plan);
  return plan;
}

RequestPlan plan_completion(const CompletionRequest& request, const ModelText& text, const ServerSettings& settings,
                            std::uint64_t fresh_seed) {
  const RequestFields& fields = request.fields;
  check_limits(fields, request.echo);
  if (const std::int64_t answers = std::ssize(request.prompts) * fields.n; answers > kMostAnswers)
    throw invalid_request(fmt::format("n: expected at most {} answers to a request, got {} prompts times {}",
                                      kMostAnswers, request.prompts.size(), fields.n),
                          "n");
  RequestPlan plan = begin_plan(fields, Api::text, text, settings, fresh_seed);
  TextOptions options = shared_options(fields, text, settings);
  plan.form.prompts = static_cast<int>(request.prompts.size());
  plan.form.echo = request.echo;
  plan.form.logprobs = request.logprobs.has_value();
  options.generate.logprobs = request.logprobs.value_or(-1);
  options.generate.prompt_logprobs = request.echo ? options.generate.logprobs : -1;
  for (const PromptField& prompt : request.prompts) {
    const std::string path = request.many ? fmt::format("prompt[{}]", plan.prompts.size()) : "prompt";
    plan.prompts.push_back(plain_prompt(prompt, request, text, settings.vocabulary, path));
    check_prompt_size(plan.prompts.back().tokens, settings.context, path);
    add_choices(fields, settings, options, kDefaultCompletionTokens, plan);
  }
  return plan;
}

}  // namespace espalier
