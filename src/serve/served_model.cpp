#include "serve/served_model.h"

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <limits>
#include <utility>

#include "base/error.h"
#include "engine/build_facts.h"
#include "engine/model_advice.h"
#include "engine/model_hash.h"
#include "engine/run_configuration.h"
#include "trace/failure_dump.h"

namespace espalier {
namespace {

// Of a prompt whose log-probabilities are asked for, in one step: as many as a step reads of others.
constexpr std::int64_t kScoredRows = 64;
constexpr std::int64_t kLeastPool = 1024;  // positions, without which a device is too small
constexpr int kMostDumps = 16;             // a fault that comes back fills no disk

std::int64_t quarter_of_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), bytes = ::sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || bytes <= 0) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(pages) * bytes / 4;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char date[sizeof "2026-11-15"];
  std::strftime(date, sizeof date, "%Y-%m-%d", &local);
  return date;
}

// By the second, since 1970.
std::int64_t changed_at(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::int64_t>(status.st_mtime) : 0;
}

std::string model_name(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::absolute(path, ignored).lexically_normal();
  const std::filesystem::path named = whole.has_filename() ? whole : whole.parent_path();
  return std::filesystem::is_directory(named, ignored) ? named.filename().string() : named.stem().string();
}

SamplingFields fields_of(const SamplingWish& wish) {
  return {.temperature = wish.temperature,
          .top_p = wish.top_p,
          .top_k = wish.top_k,
          .min_p = wish.min_p,
          .repetition_penalty = wish.repeat_penalty};
}

DraftPlan without_oracle(DraftPlan plan) {
  if (plan.has("oracle")) throw InputError("--draft oracle: not with serve, it needs the answers beforehand");
  return plan;
}

// The pool is sized when the model is loaded; a device must have room for some of it.
ServedModelOptions with_least_pool(ServedModelOptions options) {
  options.engine = with_drafting(std::move(options.engine), options.drafting);
  options.engine.pool_positions = kLeastPool;
  return options;
}

}  // namespace

std::int64_t parameter_count(const ModelConfig& config) {
  const std::int64_t query = config.heads * config.head_size, key = config.kv_heads * config.head_size;
  const std::int64_t matrices = config.hidden * (2 * query + 2 * key + 3 * config.intermediate);
  std::int64_t vectors = 2 * config.hidden;
  if (config.qkv_bias) vectors += query + 2 * key;
  if (config.output_bias) vectors += config.hidden;
  if (config.qk_norm) vectors += 2 * config.head_size;
  const std::int64_t tables = config.vocabulary * config.hidden * (config.tied ? 1 : 2);
  return tables + config.hidden + config.layers * (matrices + vectors);
}

ServedModel::ServedModel(ServedModelOptions options, Listener* listener)
    : options_(with_least_pool(std::move(options))), engine_(open_engine(options_.engine, listener)) {
  check_device();
  drafting_ = std::make_unique<Drafting>(without_oracle(options_.drafting), engine_, options_.seed.value_or(0));
  engine_.decoder.parallel = options_.parallel;
  engine_.decoder.stall_seconds = options_.stall_seconds;
  engine_.decoder.scored_rows = kScoredRows;
  size_memory();
  choose_chat();
  // What is wrong with the variables is better said now than to every client.
  if (!options_.chat.variables.empty()) render_chat(text(), {{.role = "user", .content = "hello"}}, chat_);
  recommended_ = fields_of(recommended_sampling(engine_.path, engine_.places.cache).sampling);
  fingerprint_ = model_fingerprint(engine_, chat_.instead.get());
  facts_ = make_facts();
}

void ServedModel::check_device() const {
  if (batch_invariant() || options_.allow_batch_variance) return;
  input_error(
      "device {}: an answer there depends on what is computed beside it, expected a device whose rows are "
      "independent, or --allow-batch-variance",
      engine_.device->name());
}

PoolMemory ServedModel::pool_memory() const {
  if (options_.kv_bytes) return {.bytes = *options_.kv_bytes};
  const std::optional<std::int64_t> free = engine_.device->free_memory();
  if (!free) return {.bytes = quarter_of_memory(), .given = false};
  return {.bytes = pool_bytes_of_free(*engine_.model, engine_.decoder, drafting_->speculation(), *free),
          .given = false};
}

// The context is what the pool holds beside what an answer is admitted for.
void ServedModel::size_memory() {
  const std::int64_t wanted = engine_.decoder.context;
  const PoolSize size = pool_of_bytes(*engine_.model, engine_.decoder, drafting_->speculation(), pool_memory());
  engine_.decoder.cache_positions = size.positions;
  engine_.decoder.context = size.context;
  if (size.context < wanted)
    engine_.listener->remark(
        fmt::format("the context is {} positions instead of {}: {} holds {} in all", size.context, wanted,
                    options_.kv_bytes ? "--kv-memory" : "what is free (--kv-memory sets the size)", size.positions));
}

// As chat does where nobody says with which system message a conversation begins. What pages send is no reason for
// another template.
void ServedModel::choose_chat() {
  system_ = std::exchange(options_.chat.system, {});
  options_.chat = with_chosen_system(std::move(options_.chat), engine_);
  chat_ = chat_context(options_.chat);
}

std::unique_ptr<Batch> ServedModel::make_batch() const {
  return std::make_unique<Batch>(*engine_.model, engine_.decoder, drafting_->speculation(options_.parallel));
}

ModelFacts ServedModel::make_facts() const {
  const ModelConfig& config = engine_.model->config();
  return {.id = options_.alias.empty() ? model_name(engine_.path) : options_.alias,
          .created = changed_at(engine_.path),
          .context = context(),
          .trained_context = config.context,
          .vocabulary = config.vocabulary,
          .parameters = parameter_count(config),
          .file_bytes = model_bytes(engine_.path).value_or(0),
          .file_sha256 = fingerprint_.model};
}

ServerFacts ServedModel::server_facts() const {
  const ChatTemplate* own = engine_.text->chat_template ? &*engine_.text->chat_template : nullptr;
  const ChatTemplate* used = chat_.instead ? chat_.instead.get() : own;
  return {.model_file = engine_.path.filename().string(),
          .slots = options_.parallel,
          .chat_template = used != nullptr ? used->source() : std::string(),
          .system_message = system_,
          .build = fmt::format("espalier {}", build_version()),
          .fingerprint = settings()->fingerprint,
          .device = std::string(device_name()),
          .batch_invariant = batch_invariant()};
}

ServerSettings ServedModel::server_settings(const std::string& date) const {
  ServerSettings settings{.model = facts_.id,
                          .strict_model = options_.strict_model,
                          .context = context(),
                          .vocabulary = facts_.vocabulary,
                          .flags = options_.sampling,
                          .recommended = recommended_,
                          .seed = options_.seed,
                          .priorities = options_.priorities,
                          .receipts = batch_invariant(),
                          .drafters = drafting_->drafters(),
                          .tree = drafting_->tree().shape,
                          .chat = chat_};
  settings.chat.date_iso = date;
  return settings;
}

std::shared_ptr<const TextSettings> ServedModel::settings_of(const std::string& date) const {
  auto settings = std::make_shared<TextSettings>();
  settings->server = server_settings(date);
  const std::string told = date_for(engine_, chat_.instead.get(), date);
  settings->fingerprint = server_fingerprint({.model = fingerprint_,
                                              .context = context(),
                                              .sampling = default_sampling(settings->server),
                                              .template_variables = options_.chat.variables,
                                              .date = told});
  settings->chat_receipts = {.fingerprint = fingerprint_, .context = context(), .date = told};
  settings->raw_receipts = {.fingerprint = fingerprint_, .context = context()};
  return settings;
}

std::shared_ptr<const TextSettings> ServedModel::settings() const {
  const std::string date = options_.chat.date.empty() ? today() : options_.chat.date;
  const std::lock_guard lock(mutex_);
  if (!settings_ || settings_date_ != date) {
    settings_ = settings_of(date);
    settings_date_ = date;
  }
  return settings_;
}

std::string ServedModel::keep_failure(const AnswerFailure& failure, const std::string& id) const {
  const std::string where = fmt::format("request {} failed in {}", id, name(failure.stage));
  try {
    FailureDump dump = dump_of(failure, std::current_exception());
    if (dumps_ >= kMostDumps) return fmt::format("{}: {}", where, dump.error.substr(0, dump.error.find('\n')));
    ++dumps_;
    dump.prompt_id = PromptId(id);
    const std::filesystem::path folder = options_.dump_folder.empty() ? "." : options_.dump_folder;
    const TextOptions text{.generate = {.sampling = default_sampling(settings()->server)}};
    const RecordOrigin origin = record_origin({engine_, *drafting_, text, options_.chat});
    const std::filesystem::path path = write_failure_dump(dump, origin, folder);
    return fmt::format("{}: {}; dump: {}", where, dump.error.substr(0, dump.error.find('\n')), path.string());
  } catch (const std::exception& error) {
    return fmt::format("{}; no dump: {}", where, error.what());
  }
}

}  // namespace espalier
