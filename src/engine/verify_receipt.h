// Whether a receipt is true: its prompt and answer are computed again in one prefill, every token is drawn again by
// what a batch draws with, and the answer has to end where and why the receipt says. That costs a prefill and no
// decoding. Nothing of a batch's rounds, trees and prefix cache is used, so that it judges these too. One thread at a
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/thread_pool.h"
#include "decode/batch.h"
#include "engine/engine.h"
#include "engine/receipt.h"

namespace espalier {

// The first place where model and receipt go apart.
struct ReceiptDifference {
  std::int64_t position = 0;                // in the answer, from 0
  std::optional<std::int32_t> drawn = {};   // what the model says there; nothing: its answer has ended, or nobody asked
  std::optional<std::int32_t> stated = {};  // what the receipt says; nothing: its answer has ended
  // How much more probable the model finds what it says: the difference of the logarithms, before bias, penalties and
  // temperature. Nothing where one of the two has no probability.
  std::optional<double> margin = {};
  std::string finish_reason = {};  // why the model's answer ended there; empty: it goes on
  std::string stated_reason = {};  // likewise, as the receipt says
};

struct ReceiptVerdict {
  std::optional<ReceiptDifference> difference = {};  // nothing: verified
  std::string text = {};                             // of an answer that is
  double seconds = 0;                                // that it took

  bool verified() const { return !difference; }
};

class ReceiptVerifier {
 public:
  // The engine must outlive this.
  explicit ReceiptVerifier(const OpenEngine& engine);

  // Takes context size, settings and the type of keys and values from the receipt. Template and date say how the
  // prompt's tokens came about, and nothing depends on them any more. Throws InputError where the receipt is of another
  // model, arithmetic or order of float sums, or can be none of this model at all; `where` is how the message begins.
  ReceiptVerdict verify(const Receipt& receipt, std::string_view where);

 private:
  DType check_origin(const ReceiptOrigin& origin, std::string_view where) const;
  Batch& batch_for(std::int64_t positions, DType kv_type);

  const OpenEngine* engine_;
  ModelFingerprint fingerprint_;
  ThreadPool threads_;  // for draws
  std::optional<Batch> batch_;
  DType kv_type_ = DType::f16;  // of the batch
};

// Whether a response that says this carries the receipt of it. The prompt may stand in front of the answer, as it was
// given, or as its tokens are spelled.
bool is_text_of(const Receipt& receipt, std::string_view answer, std::string_view said, const ModelText& text);

// In words, on one line: "verified: 96 tokens, finished by stop".
std::string verdict_text(const ReceiptVerdict& verdict, const Receipt& receipt, const Tokenizer& tokenizer);

}  // namespace espalier
