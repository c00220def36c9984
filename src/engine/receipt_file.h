// The receipts in a text: one receipt, a list of them, JSON lines, or responses of the server that carry some, whole or
// as a stream of events. One that is damaged does not hide the others. Functions without state.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/receipt.h"

namespace espalier {

struct FoundReceipt {
  std::string where = {};                // "answers.jsonl:3", "response.json: choices[1].receipt"
  std::optional<Receipt> receipt = {};   // nothing: it cannot be read, and
  std::string error = {};                // why: one line that begins with its place
  std::optional<std::string> text = {};  // what the response says beside it
};

// In the order of the text. Empty: there is none in it. What is no JSON at all is one that cannot be read.
std::vector<FoundReceipt> find_receipts(std::string_view text, std::string_view where);

// Those of a text that is still to be read, at least one: where it cannot be, and where none is in it, one says so.
// `name`: what it was asked for as, "-"; what cannot be read is called that. `where`: as above, "standard input".
std::vector<FoundReceipt> read_receipts(const std::string& name, const std::string& where,
                                        const std::function<std::string()>& read);
// Those of a file, or of all files *.json and *.jsonl of a folder, by name. A file that is named holds receipts; a
// folder may hold other files as well, a run's for one. At least one, as above.
std::vector<FoundReceipt> receipts_at(const std::filesystem::path& path);

}  // namespace espalier
