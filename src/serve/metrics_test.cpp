#include "serve/metrics.h"

#include <gmock/gmock.h>

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ServiceReading some_reading() {
  ServiceReading reading;
  reading.statistics.prompt_tokens = 7;
  reading.statistics.drafts = {.drafts = 4, .tokens = 20, .accepted_tokens = 6, .accepted_by_depth = {4, 2}};
  reading.statistics.drafters = {{.name = "ngram", .counts = {.drafts = 3}}};
  reading.statistics.rows = {.roots = 10, .drafts = 20, .prompts = 30, .padding = 1};
  reading.pool = {.free = 2, .cached = 3, .held = 5, .padding = 1};
  reading.running = 2;
  reading.waiting = 9;
  return reading;
}

TEST(Metrics, TellWhatTheBatchCounts) {
  const Metrics metrics;
  const std::string text = metrics.text(some_reading(), {.version = "1", .fingerprint = "b1"}, 3);
  for (const char* line :
       {"espalier_prompt_tokens_total 7", "espalier_spec_decode_num_drafts_total 4",
        "espalier_spec_decode_num_drafts_total{drafter=\"ngram\"} 3",
        "espalier_spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} 2",
        "espalier_step_rows_total{kind=\"prefill\"} 30", "espalier_kv_blocks{state=\"held\"} 5",
        "espalier_kv_cache_usage_perc 0.5", "espalier_num_requests_running 2", "espalier_num_requests_waiting 9",
        "espalier_http_connections 3", "espalier_build_info{version=\"1\",fingerprint=\"b1\"} 1",
        "# TYPE espalier_prompt_tokens_total counter", "# TYPE espalier_kv_blocks gauge"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(Metrics, CountWhatTheyAreTold) {
  Metrics metrics;
  metrics.count_error(503);
  metrics.count_error(503);
  metrics.count_cancelled();
  metrics.observe_choice("stop", 12, 34);
  metrics.observe_tokens(0.05, 5);
  metrics.observe_first_token(0.2);
  metrics.observe_step(0.01, 4);
  const std::string text = metrics.text({}, {}, 0);
  for (const char* line :
       {"espalier_request_errors_total{status=\"503\"} 2", "espalier_requests_cancelled_total 1",
        "espalier_request_success_total{finished_reason=\"stop\"} 1",
        "espalier_request_success_total{finished_reason=\"length\"} 0", "espalier_inter_token_latency_seconds_count 5",
        "espalier_time_to_first_token_seconds_count 1", "espalier_request_generation_tokens_sum 34",
        "espalier_step_sequences_bucket{le=\"4\"} 1"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(Metrics, AFamilyWithoutValuesIsNotThere) {
  EXPECT_THAT(Metrics().text({}, {}, 0), Not(HasSubstr("per_pos_total")));
}

}  // namespace
}  // namespace espalier
