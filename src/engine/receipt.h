// The receipt of an answer: everything that its text depends on, the answer as tokens, and a SHA-256 over all of it in
// a canonical form (docs/receipts.md). Who has the model can tell from it, without trusting anybody, whether this is
// what the model says (verify_receipt.h). Plain values and functions without state.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decode/request.h"
#include "engine/fingerprint.h"
#include "session/session.h"

namespace espalier {

inline constexpr int kReceiptVersion = 1;

// What the answers of an engine have in common.
struct ReceiptOrigin {
  ModelFingerprint fingerprint = {};
  std::int64_t context = 0;  // positions of a sequence of the batch that answers
  std::string date = {};     // that the template was told; empty: it was not asked for (date_for())
};

struct Receipt {
  ReceiptOrigin origin = {};
  std::vector<std::int32_t> prompt = {};
  // How tokens are drawn, with the effective seed of this choice, and when the answer ends. Log-probabilities and what
  // happens to a full chat change no text behind these prompt tokens, and are no part of it.
  TextOptions options = {};
  std::vector<std::int32_t> answer = {};  // the stop token included
  std::string finish_reason = {};         // "stop", "length", "context", or "cancelled": only the beginning is there
};

// Throws InputError unless answers of this device depend on their requests alone. asked_by: "--receipt", "receipt".
void check_receipts(const Device& device, std::string_view asked_by);
// Likewise where a stop string is no UTF-8, which JSON does not take.
void check_receipts(const TextOptions& options);

// Of the answers of batches that are made with engine.decoder, to chats with these settings, or to raw prompts. Throws
// what model_fingerprint() does.
ReceiptOrigin receipt_origin(const OpenEngine& engine, const ChatContext& chat, bool raw);

// Of an answer that was asked for with these options.
Receipt make_receipt(const ReceiptOrigin& origin, const TextOptions& options, std::span<const std::int32_t> prompt,
                     const GenerateResult& result);

// The text that is hashed, and its hash.
std::string canonical_receipt(const Receipt& receipt);
std::string receipt_sha256(const Receipt& receipt);

// One JSON object on one line, without its end.
std::string receipt_json(const Receipt& receipt);
// The same, with distrust. `where`: how messages begin. Throws InputError: no receipt, another version, a field that is
// missing, unknown or wrong, a hash that does not fit.
Receipt read_receipt(std::string_view json, std::string_view where);

}  // namespace espalier
