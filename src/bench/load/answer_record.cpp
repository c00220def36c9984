#include "bench/load/answer_record.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

using HeardJson = nlohmann::json;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

// A member of an object, if it is there and not null.
const HeardJson* member(const HeardJson& value, const char* key) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find(key);
  return found == value.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> count_at(const HeardJson& value, const char* key) {
  const HeardJson* number = member(value, key);
  if (number == nullptr || !number->is_number_integer()) return std::nullopt;
  const auto count = number->get<std::int64_t>();
  return count < 0 || count > kMostTokens ? std::nullopt : std::optional(count);
}

bool has_text(const HeardJson& value, const char* key) {
  const HeardJson* text = member(value, key);
  return text != nullptr && text->is_string() && !text->get_ref<const std::string&>().empty();
}

std::optional<std::string> error_in(const HeardJson& value) {
  const HeardJson* error = member(value, "error");
  if (error == nullptr) return std::nullopt;
  const HeardJson* message = error->is_object() ? member(*error, "message") : error;
  return in_quotes(message != nullptr && message->is_string() ? message->get<std::string>() : error->dump());
}

// Reads the events of one answer, one by one.
class AnswerReader {
 public:
  explicit AnswerReader(const TimedStream& stream) {
    answer_.sent = stream.sent;
    answer_.ended = stream.ended;
    answer_.broken_off = stream.broken_off;
    if (stream.status != 0 && stream.status != 200) {
      answer_.problem = fmt::format("status {}: {}", stream.status, error_message(stream.body));
      return;
    }
    for (const TimedEvent& event : stream.events)
      if (answer_.problem.empty() && !done_) read(event);
    finish(stream);
  }

  AnswerRecord take() { return std::move(answer_); }

 private:
  void read(const TimedEvent& event) {
    if (event.data == "[DONE]") {
      done_ = true;
      return;
    }
    const HeardJson json = HeardJson::parse(event.data, nullptr, false);
    if (!json.is_object()) {
      answer_.problem = fmt::format("an event that is no JSON object: {}", in_quotes(event.data));
    } else if (const auto error = error_in(json)) {
      answer_.problem = fmt::format("an error in the stream: {}", *error);
    } else {
      if (const HeardJson* usage = member(json, "usage")) read_usage(*usage);
      const HeardJson* choices = member(json, "choices");
      if (choices != nullptr && choices->is_array() && !choices->empty()) read_choice(choices->front(), event.at);
    }
  }

  void read_usage(const HeardJson& usage) {
    if (const auto tokens = count_at(usage, "completion_tokens")) {
      answer_.tokens = static_cast<double>(*tokens);
      answer_.usage_known = true;
    }
    answer_.prompt_tokens = count_at(usage, "prompt_tokens").value_or(answer_.prompt_tokens);
    if (const HeardJson* details = member(usage, "prompt_tokens_details"))
      answer_.cached_tokens = count_at(*details, "cached_tokens").value_or(0);
  }

  void read_choice(const HeardJson& choice, double at) {
    if (member(choice, "finish_reason") != nullptr) finished_ = true;
    const HeardJson* delta = member(choice, "delta");
    const HeardJson& text = delta != nullptr ? *delta : choice;
    const HeardJson* ids = member(choice, "token_ids");
    const double tokens = ids != nullptr && ids->is_array() ? static_cast<double>(ids->size()) : 0;
    if (tokens == 0 && !has_text(text, "content") && !has_text(text, "text") && !has_text(text, "reasoning_content"))
      return;
    all_have_ids_ = all_have_ids_ && tokens > 0;
    events_.push_back({at, tokens});
  }

  void finish(const TimedStream& stream) {
    share_tokens();
    merge_moments();
    if (!answer_.problem.empty() || stream.broken_off) return;
    if (!stream.problem.empty())
      answer_.problem = stream.problem;
    else if (stream.events.empty())
      answer_.problem = "no event stream";
    else if (!done_ && !finished_)
      answer_.problem = "the stream ended before the answer";
    else if (events_.empty())
      answer_.problem = "an answer without a token";
  }

  void share_tokens() {
    const auto count = static_cast<double>(events_.size());
    const bool have_ids = all_have_ids_ && !events_.empty();
    // As many events as tokens: one each.
    answer_.tokens_known = have_ids || (answer_.usage_known && answer_.tokens == count);
    if (!have_ids)
      for (HeardPiece& event : events_) event.tokens = answer_.usage_known ? answer_.tokens / count : 1;
    if (answer_.usage_known) return;
    answer_.tokens = 0;
    for (const HeardPiece& event : events_) answer_.tokens += event.tokens;
  }

  // A moment ends kSameMoment after its first event, so that a stream without pauses is still many pieces.
  void merge_moments() {
    for (const HeardPiece& event : events_)
      if (answer_.pieces.empty() || event.at - answer_.pieces.back().at >= kSameMoment)
        answer_.pieces.push_back(event);
      else
        answer_.pieces.back().tokens += event.tokens;
  }

  AnswerRecord answer_;
  std::vector<HeardPiece> events_;
  bool all_have_ids_ = true;
  bool finished_ = false;
  bool done_ = false;
};

}  // namespace

AnswerRecord read_answer(const TimedStream& stream) {
  return AnswerReader(stream).take();
}

double first_token_seconds(const AnswerRecord& answer) {
  check(!answer.pieces.empty(), "the first token of an answer without one");
  return answer.pieces.front().at - answer.sent;
}

std::vector<AnswerGap> gaps_of(const AnswerRecord& answer) {
  std::vector<AnswerGap> gaps;
  for (std::size_t i = 1; i < answer.pieces.size(); ++i)
    gaps.push_back({answer.pieces[i - 1].at, answer.pieces[i].at, std::max(1.0, answer.pieces[i].tokens)});
  return gaps;
}

std::string error_message(std::string_view body) {
  const HeardJson json = HeardJson::parse(body, nullptr, false);
  if (const auto error = error_in(json)) return *error;
  return body.empty() ? "no explanation" : in_quotes(body);
}

}  // namespace espalier
