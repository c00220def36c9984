#include "report/round_picture.h"

#include "base/error.h"
#include "text/token_text.h"

namespace espalier {

void RoundPicture::look(const Round& round) {
  ++rounds_;
  const bool best = !picture_ || round.accepted() > picture_->accepted() ||
                    (picture_->nodes.size() == 1 && round.tree.size() > 1);  // a guess is worth more than none
  if (wanted_ ? round.number != *wanted_ : !best) return;
  picture_ = picture_of(
      round, [&](std::int32_t token) { return tokenizer_.bytes(token, false); }, drafters_);
  prefix_ = round.prefix;
}

TreePicture RoundPicture::picture(const TextResult& answer) const {
  check(found(), "a picture of no round");
  TreePicture picture = *picture_;
  const auto count = static_cast<std::size_t>(prefix_) - answer.prompt.size();
  const std::string text = tokenizer_.decode(std::span(answer.generated.tokens).first(count));
  picture.before = text.empty() ? "the prompt" : quoted_token(text);
  return picture;
}

}  // namespace espalier
