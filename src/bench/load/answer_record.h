// What one streamed answer came to: the stream as it was heard, and what it says. Servers are strangers: whatever they
// send becomes a record, with a problem in one line where it is no answer. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

// Seconds everywhere are those since the load began.
struct TimedEvent {
  double at = 0;
  std::string data = {};
};

// What is kept while the clock runs; nothing is parsed then.
struct TimedStream {
  double sent = 0;
  double ended = 0;
  int status = 0;                       // 0: there was no response
  std::string body = {};                // its beginning, where the status is not 200
  std::vector<TimedEvent> events = {};  // of a response with status 200
  std::string problem = {};             // of the connection
  bool broken_off = false;              // by us: the load had ended
};

// An event, or several that came at the same moment, with text or tokens.
struct HeardPiece {
  double at = 0;
  double tokens = 0;
};

struct AnswerRecord {
  double sent = 0;
  double ended = 0;
  std::vector<HeardPiece> pieces = {};
  double tokens = 0;               // of the answer; of one that was broken off, those that came
  std::int64_t prompt_tokens = 0;  // 0: the server does not tell
  std::int64_t cached_tokens = 0;  // of the prompt, as the server says
  bool tokens_known = false;       // of each piece; otherwise they all have their share of the whole
  bool usage_known = false;        // the whole is what the server says; otherwise an event is taken for a token
  bool broken_off = false;
  std::string problem = {};  // "": complete, or broken off

  bool complete() const { return problem.empty() && !broken_off; }
};

// Pieces this close together came with one write of the server: what it says at once, in several events.
inline constexpr double kSameMoment = 0.5e-3;

AnswerRecord read_answer(const TimedStream& stream);

// From the request to the first piece. Requires one.
double first_token_seconds(const AnswerRecord& answer);

// From a piece to the next.
struct AnswerGap {
  double from = 0;
  double to = 0;
  double tokens = 0;  // of the later piece, at least 1

  double seconds() const { return to - from; }
};
std::vector<AnswerGap> gaps_of(const AnswerRecord& answer);

// What an error object says, or the beginning of whatever it is; one line.
std::string error_message(std::string_view body);

}  // namespace espalier
