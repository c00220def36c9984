// Any bytes, read as a file of receipts: every receipt that is found comes back from what it is written as, and each
// one that cannot be read is told in one line.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/receipt_file.h"
#include "require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const espalier::FoundReceipt& found : espalier::find_receipts(text, "fuzz.json")) {
    require(found.receipt.has_value() == found.error.empty());
    require(found.error.find('\n') == std::string_view::npos);
    if (!found.receipt) continue;
    const std::string json = espalier::receipt_json(*found.receipt);
    require(espalier::receipt_json(espalier::read_receipt(json, "again.json")) == json);
  }
  return 0;
}
