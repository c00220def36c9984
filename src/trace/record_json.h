// What traces, failure dumps and (of sampling options) manifests have in common: who wrote them, and how ids, trees and
// times look as JSON (docs/traces.md). Records of another schema, version of the program or arithmetic are refused in
// one line. Pure functions; the *_from functions throw InputError "where: field: ..." and believe nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_field.h"
#include "decode/request.h"
#include "trace/prompt_id.h"

namespace espalier {

inline constexpr int kRecordSchema = 2;
std::string_view program_version();

// The run behind a record.
struct RecordOrigin {
  std::string commit = {};             // of the program; empty: unknown
  std::string configuration = "null";  // JSON on one line, as in the run's manifest

  bool operator==(const RecordOrigin&) const = default;
};

// {"kind", "schema", "arithmetic", "version", "commit", "configuration"}: how every record begins.
nlohmann::ordered_json record_head(std::string_view kind, const RecordOrigin& origin);
// Refuses what is no such record, or one of another schema, version or arithmetic.
RecordOrigin record_origin_from(const JsonField& record, std::string_view kind);

nlohmann::ordered_json json_of(const PromptId& id);
PromptId prompt_id_from(const JsonField& field);

// {"parents", "tokens", "scores", "sources"}, a list each; a score of minus infinity is null.
nlohmann::ordered_json json_of(const TokenTree& tree);
TokenTree tree_from(const JsonField& field);

nlohmann::ordered_json json_of(const RoundTimes& times);
RoundTimes times_from(const JsonField& field);

// Those that are a single number, by name; the bias of tokens is not among them.
nlohmann::ordered_json json_of(const SamplingOptions& options);

// What every draw of an answer depends on, besides the model, and the limit at which a replay stops. Tokens that end an
// answer are here only where the first ones cannot be such: otherwise a replay has the answer.
struct DrawOptions {
  SamplingOptions sampling = {};
  std::uint64_t seed = 0;
  std::int64_t max_tokens = 0;
  std::int64_t min_tokens = 0;
  std::vector<std::int32_t> stop_tokens = {};  // none without min_tokens

  static DrawOptions of(const GenerateOptions& options);
  GenerateOptions generate_options() const;
};
nlohmann::ordered_json json_of(const DrawOptions& options);
DrawOptions draw_options_from(const JsonField& field);

// Ids of tokens: 32-bit, none negative.
std::vector<std::int32_t> tokens_from(const JsonField& field);
// A count: `least` or more, bounded so that sums of them need no care.
std::int64_t count_from(const JsonField& field, std::int64_t least = 0);
// Seconds of a clock: 0 or more.
double seconds_from(const JsonField& field);

std::string_view name(AttentionOp attention);  // "fused", "eager"
std::string_view name(MaskForm mask);          // "list", "dense"
// Of a record with "attention" and "mask".
StepForm form_from(const JsonField& record);

// One line, whatever bytes the texts in it have.
std::string one_line(const nlohmann::ordered_json& object);

// Calls `read`; what the JSON library complains about, a missing field or a wrong type, becomes InputError
// "where: expected WHAT: ...".
void reading(std::string_view what, std::string_view where, const std::function<void()>& read);

}  // namespace espalier
