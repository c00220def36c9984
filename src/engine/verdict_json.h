// What became of receipts: counted, as one line, and as JSON. Values and pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/receipt_file.h"
#include "engine/verify_receipt.h"

namespace espalier {

enum class ReceiptOutcome { verified, differs, refused };  // the worst is the last

// Whether a verified receipt came beside a text that its tokens do not say.
bool other_text_beside(const FoundReceipt& found, const ReceiptVerdict& verdict, const ModelText& text);

// One object for each receipt. other_text: as other_text_beside() says.
nlohmann::ordered_json verdict_json(const FoundReceipt& found, const ReceiptVerdict& verdict, bool other_text,
                                    const Tokenizer& tokenizer);
nlohmann::ordered_json refusal_json(const std::string& where, const std::string& error);

struct ReceiptCounts {
  int verified = 0;
  int differs = 0;
  int refused = 0;

  void add(ReceiptOutcome outcome);
  int all() const { return verified + differs + refused; }
  ReceiptOutcome worst() const;
};
// "3 receipts: 1 verified, 2 not verified, 0 refused"
std::string counts_text(const ReceiptCounts& counts);
// The object that has all others; `receipts` is their list.
nlohmann::ordered_json verdicts_json(const nlohmann::ordered_json& receipts, const ReceiptCounts& counts);

}  // namespace espalier
