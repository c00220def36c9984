#include "engine/verdict_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

namespace espalier {
namespace {

using VerdictJson = nlohmann::ordered_json;

VerdictJson token_json(std::int32_t token, const Tokenizer& tokenizer) {
  return {{"token", token}, {"text", tokenizer.decode(std::span(&token, 1))}};
}

VerdictJson difference_json(const ReceiptDifference& difference, const Tokenizer& tokenizer) {
  VerdictJson object = {{"position", difference.position},
                        {"model", nullptr},
                        {"receipt", nullptr},
                        {"margin", nullptr},
                        {"model_finish_reason", nullptr},
                        {"receipt_finish_reason", nullptr}};
  if (difference.drawn) object["model"] = token_json(*difference.drawn, tokenizer);
  if (difference.stated) object["receipt"] = token_json(*difference.stated, tokenizer);
  if (difference.margin) object["margin"] = *difference.margin;
  if (!difference.finish_reason.empty()) object["model_finish_reason"] = difference.finish_reason;
  if (!difference.stated_reason.empty()) object["receipt_finish_reason"] = difference.stated_reason;
  return object;
}

}  // namespace

bool other_text_beside(const FoundReceipt& found, const ReceiptVerdict& verdict, const ModelText& text) {
  return verdict.verified() && found.text && !is_text_of(*found.receipt, verdict.text, *found.text, text);
}

VerdictJson verdict_json(const FoundReceipt& found, const ReceiptVerdict& verdict, bool other_text,
                         const Tokenizer& tokenizer) {
  const Receipt& receipt = *found.receipt;
  return {{"receipt", found.where},
          {"verdict", verdict.verified() && !other_text ? "verified" : "not verified"},
          {"prompt_tokens", receipt.prompt.size()},
          {"tokens", receipt.answer.size()},
          {"finish_reason", receipt.finish_reason},
          {"text", verdict.verified() ? VerdictJson(verdict.text) : VerdictJson()},
          {"other_text_beside", other_text},
          {"difference", verdict.difference ? difference_json(*verdict.difference, tokenizer) : VerdictJson()},
          {"seconds", verdict.seconds}};
}

VerdictJson refusal_json(const std::string& where, const std::string& error) {
  return {{"receipt", where}, {"verdict", "refused"}, {"error", error}};
}

void ReceiptCounts::add(ReceiptOutcome outcome) {
  switch (outcome) {
    case ReceiptOutcome::verified: ++verified; break;
    case ReceiptOutcome::differs: ++differs; break;
    case ReceiptOutcome::refused: ++refused; break;
  }
}

ReceiptOutcome ReceiptCounts::worst() const {
  if (refused > 0) return ReceiptOutcome::refused;
  return differs > 0 ? ReceiptOutcome::differs : ReceiptOutcome::verified;
}

std::string counts_text(const ReceiptCounts& counts) {
  return fmt::format("{} receipts: {} verified, {} not verified, {} refused", counts.all(), counts.verified,
                     counts.differs, counts.refused);
}

VerdictJson verdicts_json(const VerdictJson& receipts, const ReceiptCounts& counts) {
  return {{"receipts", receipts},
          {"verified", counts.verified},
          {"not_verified", counts.differs},
          {"refused", counts.refused}};
}

}  // namespace espalier
