#include "serve/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <vector>

namespace espalier {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Bounds = prometheus::Histogram::BucketBoundaries;
using Labels = std::vector<ClientMetric::Label>;

const Bounds& latency_bounds() {
  static const Bounds bounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                1,     2.5,    5,     10,   20,    40,   80,  160,  640};
  return bounds;
}

const Bounds& token_bounds() {
  static const Bounds bounds = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10'000, 20'000, 50'000, 100'000};
  return bounds;
}

const Bounds& sequence_bounds() {
  static const Bounds bounds = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  return bounds;
}

std::string full_name(std::string_view name) {
  return "espalier_" + std::string(name);
}

prometheus::Histogram& histogram(prometheus::Registry& registry, std::string_view name, const char* help,
                                 const Bounds& bounds) {
  return prometheus::BuildHistogram().Name(full_name(name)).Help(help).Register(registry).Add({}, bounds);
}

prometheus::Family<prometheus::Counter>& counters(prometheus::Registry& registry, std::string_view name,
                                                  const char* help) {
  return prometheus::BuildCounter().Name(full_name(name)).Help(help).Register(registry);
}

// A family whose values somebody else counts.
class ReadFamily {
 public:
  ReadFamily(std::string_view name, const char* help, MetricType type)
      : family_{full_name(name), help, type, {}}, counts_(type == MetricType::Counter) {}

  ReadFamily& add(double value, Labels labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    (counts_ ? metric.counter.value : metric.gauge.value) = value;
    family_.metric.push_back(std::move(metric));
    return *this;
  }
  ReadFamily& add(std::int64_t value, Labels labels = {}) { return add(static_cast<double>(value), std::move(labels)); }
  MetricFamily take() { return std::move(family_); }

 private:
  MetricFamily family_;
  bool counts_;
};

MetricFamily counter(std::string_view name, const char* help, double value) {
  return ReadFamily(name, help, MetricType::Counter).add(value).take();
}
MetricFamily counter(std::string_view name, const char* help, std::int64_t value) {
  return counter(name, help, static_cast<double>(value));
}
MetricFamily gauge(std::string_view name, const char* help, double value) {
  return ReadFamily(name, help, MetricType::Gauge).add(value).take();
}

// One number of the drafts: of all together, and of each drafter.
MetricFamily draft_counter(const BatchStatistics& statistics, std::string_view name, const char* help,
                           std::int64_t DraftCounts::*number) {
  ReadFamily family(name, help, MetricType::Counter);
  family.add(statistics.drafts.*number);
  for (const DrafterCounts& drafter : statistics.drafters)
    family.add(drafter.counts.*number, {{"drafter", drafter.name}});
  return family.take();
}

void add_depths(const DraftCounts& counts, const Labels& labels, ReadFamily& family) {
  for (std::size_t i = 0; i < counts.accepted_by_depth.size(); ++i) {
    Labels own = labels;
    own.push_back({"position", std::to_string(i)});
    family.add(counts.accepted_by_depth[i], std::move(own));
  }
}

MetricFamily accepted_by_position(const BatchStatistics& statistics) {
  ReadFamily family("spec_decode_num_accepted_tokens_per_pos_total",
                    "Accepted guesses by their place behind the root; 0 is the first.", MetricType::Counter);
  add_depths(statistics.drafts, {}, family);
  for (const DrafterCounts& drafter : statistics.drafters)
    add_depths(drafter.counts, {{"drafter", drafter.name}}, family);
  return family.take();
}

void add_drafts(const BatchStatistics& statistics, std::vector<MetricFamily>& families) {
  families.push_back(draft_counter(statistics, "spec_decode_num_drafts_total", "Trees with at least one guess.",
                                   &DraftCounts::drafts));
  families.push_back(draft_counter(statistics, "spec_decode_num_draft_tokens_total", "Guesses that were verified.",
                                   &DraftCounts::tokens));
  families.push_back(draft_counter(statistics, "spec_decode_num_accepted_tokens_total", "Guesses that were accepted.",
                                   &DraftCounts::accepted_tokens));
  families.push_back(accepted_by_position(statistics));
}

MetricFamily step_rows(const RowCounts& rows) {
  return ReadFamily("step_rows_total", "Rows of all steps.", MetricType::Counter)
      .add(rows.roots, {{"kind", "root"}})
      .add(rows.drafts, {{"kind", "draft"}})
      .add(rows.prompts, {{"kind", "prefill"}})
      .add(rows.padding, {{"kind", "padding"}})
      .take();
}

void add_counters(const BatchStatistics& read, std::vector<MetricFamily>& families) {
  families.push_back(counter("prompt_tokens_total", "Tokens of prompts that were read.", read.prompt_tokens));
  families.push_back(counter("prompt_tokens_cached_total", "Of those, found in the cache.", read.cached_prompt_tokens));
  families.push_back(counter("generation_tokens_total", "Tokens of answers.", read.answer_tokens));
  families.push_back(
      counter("num_preemptions_total", "Answers that gave way to others for a while.", read.preemptions));
  families.push_back(
      counter("prefix_cache_queries_total", "Tokens that were looked for in the cache.", read.prefix_queries));
  families.push_back(counter("prefix_cache_hits_total", "Of those, found.", read.prefix_hits));
  families.push_back(
      counter("prefix_cache_evictions_total", "Cached blocks that had to make room.", read.prefix_evictions));
  add_drafts(read, families);
  families.push_back(counter("steps_total", "Steps of the model.", read.steps));
  families.push_back(step_rows(read.rows));
  families.push_back(counter("draft_seconds_total", "Time spent guessing.", read.draft_seconds));
  families.push_back(counter("step_seconds_total", "Time spent in steps, guessing included.", read.step_seconds));
}

MetricFamily kv_blocks(const PoolCounts& pool) {
  return ReadFamily("kv_blocks", "Blocks of the KV memory, by what they are used for.", MetricType::Gauge)
      .add(pool.free, {{"state", "free"}})
      .add(pool.cached, {{"state", "cached"}})
      .add(pool.held, {{"state", "held"}})
      .add(pool.padding, {{"state", "padding"}})
      .take();
}

double held_share(const PoolCounts& pool) {
  const std::int64_t usable = pool.all() - pool.padding;
  return usable > 0 ? static_cast<double>(pool.held) / static_cast<double>(usable) : 0;
}

void add_gauges(const ServiceReading& reading, const Metrics::Build& build, std::int64_t connections,
                std::vector<MetricFamily>& families) {
  families.push_back(
      gauge("num_requests_running", "Requests that are being answered.", static_cast<double>(reading.running)));
  families.push_back(gauge("num_requests_waiting", "Requests in the queue.", static_cast<double>(reading.waiting)));
  families.push_back(gauge("kv_cache_usage_perc", "Share of the KV memory that answers hold: 0 to 1.",  //
                           held_share(reading.pool)));
  families.push_back(kv_blocks(reading.pool));
  families.push_back(gauge("http_connections", "Open connections.", static_cast<double>(connections)));
  families.push_back(ReadFamily("build_info", "Which program, and what its texts depend on.", MetricType::Gauge)
                         .add(1.0, {{"version", build.version}, {"fingerprint", build.fingerprint}})
                         .take());
}

}  // namespace

struct Metrics::State {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& successes =
      counters(registry, "request_success_total", "Choices that are complete, by why they ended.");
  prometheus::Family<prometheus::Counter>& errors =
      counters(registry, "request_errors_total", "Requests that ended with an error, by its status.");
  prometheus::Counter& cancelled =
      counters(registry, "requests_cancelled_total", "Requests whose client went away.").Add({});
  prometheus::Histogram& first_token = histogram(
      registry, "time_to_first_token_seconds", "From the request to the first token of its answer.", latency_bounds());
  prometheus::Histogram& between_tokens =
      histogram(registry, "inter_token_latency_seconds",
                "From token to token: the gap of an event divided by its tokens.", latency_bounds());
  prometheus::Histogram& whole_request = histogram(registry, "e2e_request_latency_seconds",
                                                   "From the request to the end of its answer.", latency_bounds());
  prometheus::Histogram& queue =
      histogram(registry, "request_queue_time_seconds", "From the request until the batch took it.", latency_bounds());
  prometheus::Histogram& prompt_tokens =
      histogram(registry, "request_prompt_tokens", "Tokens of a prompt.", token_bounds());
  prometheus::Histogram& generated_tokens =
      histogram(registry, "request_generation_tokens", "Tokens of an answer.", token_bounds());
  prometheus::Histogram& step_seconds = histogram(registry, "step_seconds", "One step of the batch.", latency_bounds());
  prometheus::Histogram& step_sequences =
      histogram(registry, "step_sequences", "Answers in a step.", sequence_bounds());
};

Metrics::Metrics() : state_(std::make_unique<State>()) {
  for (const char* reason : {"stop", "length"}) state_->successes.Add({{"finished_reason", reason}});
}

Metrics::~Metrics() = default;

void Metrics::count_error(int status) {
  state_->errors.Add({{"status", std::to_string(status)}}).Increment();
}

void Metrics::count_cancelled() {
  state_->cancelled.Increment();
}

void Metrics::observe_step(double seconds, std::int64_t sequences) {
  state_->step_seconds.Observe(seconds);
  state_->step_sequences.Observe(static_cast<double>(sequences));
}

void Metrics::observe_queue(double seconds) {
  state_->queue.Observe(seconds);
}

void Metrics::observe_first_token(double seconds) {
  state_->first_token.Observe(seconds);
}

void Metrics::observe_tokens(double seconds, std::int64_t tokens) {
  for (std::int64_t i = 0; i < tokens; ++i) state_->between_tokens.Observe(seconds / static_cast<double>(tokens));
}

void Metrics::observe_choice(std::string_view finish_reason, std::int64_t prompt_tokens, std::int64_t tokens) {
  state_->successes.Add({{"finished_reason", std::string(finish_reason)}}).Increment();
  state_->prompt_tokens.Observe(static_cast<double>(prompt_tokens));
  state_->generated_tokens.Observe(static_cast<double>(tokens));
}

void Metrics::observe_request(double seconds) {
  state_->whole_request.Observe(seconds);
}

std::string Metrics::text(const ServiceReading& reading, const Build& build, std::int64_t connections) const {
  std::vector<MetricFamily> families = state_->registry.Collect();
  add_counters(reading.statistics, families);
  add_gauges(reading, build, connections, families);
  std::erase_if(families, [](const MetricFamily& family) { return family.metric.empty(); });
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace espalier
