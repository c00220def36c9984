#include "serve/protocol/testing/told_answer.h"

#include <algorithm>

#include "base/random.h"
#include "session/text_stream.h"

namespace espalier {
namespace {

double made_up(TokenId token) {
  return -10.0 * uniform(7, static_cast<std::uint64_t>(token)) - 1e-3;
}

// Tells the tokens of an answer, and keeps what comes out.
class Teller {
 public:
  Teller(const ModelText& text, const TextOptions& options, std::int64_t offset)
      : options_(options),
        vocabulary_(text.tokenizer->vocabulary_size()),
        pieces_(offset),
        stream_(text, {0}, options, {.on_part = [this](const TextPart& part) { pieces_.add(part); }}),
        request_(stream_.request()) {}

  // False: the answer is complete.
  bool tell(TokenId id, bool last) {
    const std::vector<TokenId>& stops = request_.options.stop_tokens;
    GeneratedToken token;
    token.token = id;
    token.last = last;
    token.stops = std::ranges::find(stops, id) != stops.end();
    if (options_.generate.logprobs >= 0) token.logprobs = made_up_logprobs(id, options_.generate.logprobs, vocabulary_);
    result_.tokens.push_back(id);
    const bool goes_on = request_.events.on_token(token);
    if (token.stops) result_.finish_reason = FinishReason::stop_token;
    if (!token.stops && !goes_on) result_.finish_reason = FinishReason::stopped;
    return goes_on && !token.stops;
  }

  void end_round() {
    const TokenTree root(result_.tokens.back());
    const std::vector<Visit> visits = {{0, result_.tokens.back()}};
    pieces_.add(Round{.tree = root, .visits = visits, .finish = {}, .times = {}});
    request_.events.on_step();
    take();
  }

  ToldAnswer finish() {
    stream_.finish();
    take();
    told_.whole.end = end_of(stream_.take(result_), options_);
    told_.whole.figures = figures_of(result_, 1);
    return std::move(told_);
  }

 private:
  void take() {
    told_.pieces.push_back(pieces_.take());
    told_.whole.piece.append(told_.pieces.back());
  }

  TextOptions options_;
  TokenId vocabulary_;
  ChoicePieces pieces_;
  TextStream stream_;
  GenerateRequest request_;
  GenerateResult result_;
  ToldAnswer told_;
};

}  // namespace

Logprobs made_up_logprobs(TokenId token, std::int64_t n, TokenId vocabulary) {
  Logprobs all{.chosen = {token, made_up(token)}, .top = {}};
  for (TokenId id = 0; id < vocabulary; ++id) all.top.push_back({id, made_up(id)});
  std::ranges::stable_sort(all.top, std::ranges::greater(), &TokenLogprob::logprob);
  all.top.resize(std::min(all.top.size(), static_cast<std::size_t>(n)));
  return all;
}

ToldAnswer told_answer(const ModelText& text, const std::vector<TokenId>& tokens, const std::vector<int>& rounds,
                       const TextOptions& options, std::int64_t offset) {
  Teller teller(text, options, offset);
  bool goes_on = true;
  for (std::size_t i = 0, round = 0; goes_on && i < tokens.size(); ++round) {
    const std::size_t end = std::min(tokens.size(), i + static_cast<std::size_t>(rounds[round % rounds.size()]));
    for (; goes_on && i < end; ++i) goes_on = teller.tell(tokens[i], i + 1 == tokens.size());
    teller.end_round();
  }
  return teller.finish();
}

}  // namespace espalier
