// The engine that receipts are held against: opened when the first of them could be read, and anew for one whose
// weights were computed with in another way. One thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "engine/receipt_file.h"
#include "engine/verify_receipt.h"

namespace espalier {

class ReceiptBench {
 public:
  // Options beat the receipt, and one that contradicts them is refused. The listener must outlive this.
  ReceiptBench(EngineOptions asked, Listener& listener) : asked_(std::move(asked)), listener_(&listener) {}

  // Makes ready for a receipt, and says why that cannot be; empty: it can. Throws InputError where there is no engine
  // at all.
  std::string open_for(const FoundReceipt& found);

  // Of the last one that was made ready for.
  ReceiptVerifier& verifier() { return *verifier_; }
  const ModelText& text() const { return *engine_->text; }

 private:
  void open(WeightMode weights);

  EngineOptions asked_;
  Listener* listener_;
  std::optional<OpenEngine> engine_;
  std::optional<ReceiptVerifier> verifier_;
};

}  // namespace espalier
