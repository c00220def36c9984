#include "session/told_tokens.h"

#include <utility>

namespace espalier {

// What has not come out belongs to the last tokens, and whoever stands between them waits with them.
void ToldTokens::push(TextToken token, std::int64_t text, std::int64_t pending) {
  waiting_.push_back({.token = std::move(token)});
  for (auto last = waiting_.rbegin(); last != waiting_.rend() && last->end < 0; ++last) {
    if (pending <= 0) last->end = text;
    pending -= std::ssize(last->token.bytes);
  }
}

void ToldTokens::finish(std::int64_t text) {
  for (Waiting& waiting : waiting_)
    if (waiting.end < 0) waiting.end = text;
}

std::vector<TextToken> ToldTokens::take(std::int64_t said) {
  std::vector<TextToken> taken;
  while (!waiting_.empty() && waiting_.front().end >= 0 && waiting_.front().end <= said) {
    taken.push_back(std::move(waiting_.front().token));
    waiting_.pop_front();
  }
  return taken;
}

std::vector<TextToken> ToldTokens::take_before(std::int64_t end) {
  std::vector<TextToken> taken;
  for (Waiting& waiting : std::exchange(waiting_, {})) {
    if (!waiting.token.bytes.empty() && waiting.token.offset >= end) break;
    taken.push_back(std::move(waiting.token));
  }
  return taken;
}

}  // namespace espalier
