// What is left of an answer that failed: everything a replay of the round needs but the weights, and what a person
// wants to look at (docs/traces.md). A value; one JSON object.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decode/request.h"
#include "trace/record_json.h"
#include "trace/traced_turn.h"

namespace espalier {

enum class FailureKind { error, violation, mismatch };
std::string_view name(FailureKind kind);  // "error", "violation" (of an invariant: our own mistake), "mismatch"

// Both answers to a turn, from the round in which they part.
struct Mismatch {
  std::int64_t token = 0;                      // the first that differs, counted from the beginning of the answer
  std::vector<std::int32_t> speculative = {};  // tokens behind `answered` with speculation, to the end of the round
  std::vector<std::int32_t> plain = {};        // and without, as many
};

struct FailureDump {
  FailureKind kind = FailureKind::error;
  std::string error = {};  // as it was reported; may have several lines
  std::string stage = {};  // prefill, draft, verify, accept, commit
  PromptId prompt_id = {};
  std::int64_t turn = 1;
  std::int64_t round = 0;  // of the answer, from 0; of no meaning in the prefill
  std::vector<std::int32_t> prompt = {};
  std::vector<std::int32_t> answered = {};  // before the round; the last one is its root
  std::optional<TokenTree> tree = {};
  std::vector<std::int32_t> drawn = {};  // the teacher's choices in this round, as far as it came
  DrawOptions draw = {};
  StepForm form = {};
  std::optional<Mismatch> mismatch = {};
  // For people: tables of the step and metadata of the cache, as JSON on one line; null where there are none.
  std::string tables = "null";
  std::string cache = "null";
};

// Of an exception that is leaving an answer, inside FailureObserver.
FailureDump dump_of(const AnswerFailure& failure, std::exception_ptr error);
// Of a turn that does not have the tokens of `plain`, the same turn without speculation. Requires a difference.
FailureDump mismatch_dump(const TracedTurn& turn, std::span<const std::int32_t> plain, std::string_view plain_finish);

// A new file in `folder`, which is made where it is missing; whole or not at all. Named after time and process. Throws
// DeviceError.
std::filesystem::path write_failure_dump(const FailureDump& dump, const RecordOrigin& origin,
                                         const std::filesystem::path& folder);

// Whether the file is no trace, which is compressed: a dump is JSON as it is. Throws InputError where it cannot be
// read.
bool is_failure_dump(const std::filesystem::path& path);

struct ReadDump {
  FailureDump dump = {};
  RecordOrigin origin = {};
};
// Throws InputError: no dump, or one of another schema or version.
ReadDump failure_dump_from(std::string_view text, std::string_view where);
ReadDump read_failure_dump(const std::filesystem::path& path);

}  // namespace espalier
