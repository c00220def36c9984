#include "engine/receipt_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text_stream.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

using FoundJson = nlohmann::json;

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// A line of a text, with its number from 1.
struct NumberedLine {
  std::size_t number = 0;
  std::string_view text = {};  // without spaces around it, nor the "data:" of an event
};

// Those that may hold JSON: blank ones, comments of an event stream and its end are left out.
std::vector<NumberedLine> lines_with_json(std::string_view text) {
  constexpr std::string_view kData = "data:";
  std::vector<NumberedLine> lines;
  for (std::size_t number = 1, begin = 0; begin <= text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = without_spaces(text.substr(begin, end - begin));
    begin = end + 1;
    if (line.starts_with(kData)) line = without_spaces(line.substr(kData.size()));
    if (!line.empty() && !line.starts_with(':') && line != "[DONE]") lines.push_back({number, line});
  }
  return lines;
}

bool is_event_stream(std::string_view text) {
  return without_spaces(text).starts_with("data:") || without_spaces(text).starts_with(':');
}

// A value on each line, and not one value on several: the first line is whole.
bool is_lines(const std::vector<NumberedLine>& lines) {
  return lines.size() > 1 && FoundJson::accept(lines.front().text);
}

// What a choice of a response says: a message, or a text. The text of the last chunk of a stream is empty, and not that
// of the answer.
std::optional<std::string> said_beside(const FoundJson& choice) {
  const FoundJson::json_pointer message("/message/content"), text("/text");
  const auto said = [&](const FoundJson::json_pointer& place) {
    return choice.contains(place) && choice.at(place).is_string();
  };
  if (said(message)) return choice.at(message).get<std::string>();
  if (said(text) && !choice.at(text).get<std::string>().empty()) return choice.at(text).get<std::string>();
  return std::nullopt;
}

// A member's name in a place: as it is, unless it could break the line.
std::string shown_name(const std::string& name) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  return std::ranges::all_of(name, plain) && name.size() <= 64 ? name : in_quotes(name);
}

// Walks a document. What stands under "receipt" or "receipts" has to be one, wherever that is.
class ReceiptSearch {
 public:
  explicit ReceiptSearch(std::vector<FoundReceipt>& found) : found_(found) {}

  void look(const FoundJson& value, const std::string& where) {
    if (value.is_array())
      for (std::size_t i = 0; i < value.size(); ++i) look(value[i], fmt::format("{}[{}]", where, i));
    if (!value.is_object()) return;
    if (value.contains("espalier_receipt")) return take(value, where, std::nullopt);
    for (const auto& [name, member] : value.items()) {
      const std::string place = fmt::format("{}{}{}", where, where.ends_with(": ") ? "" : ".", shown_name(name));
      if (name == "receipt" && !member.is_null())
        take(member, place, said_beside(value));
      else if (name == "receipts" && member.is_array())
        for (std::size_t i = 0; i < member.size(); ++i) take(member[i], fmt::format("{}[{}]", place, i), std::nullopt);
      else
        look(member, place);
    }
  }

 private:
  void take(const FoundJson& value, std::string where, std::optional<std::string> said) {
    if (where.ends_with(": ")) where.resize(where.size() - 2);  // the whole document
    FoundReceipt receipt{.where = where, .text = std::move(said)};
    try {
      receipt.receipt = read_receipt(value.dump(), where);
    } catch (const InputError& error) {
      receipt.error = error.what();
    }
    found_.push_back(std::move(receipt));
  }

  std::vector<FoundReceipt>& found_;
};

void look_in(std::string_view json, const std::string& where, std::vector<FoundReceipt>& found) {
  try {
    ReceiptSearch(found).look(parse_json(json, where), where + ": ");
  } catch (const InputError& error) {
    found.push_back({.where = where, .error = error.what()});
  }
}

// The files of a folder that may hold receipts, by name.
std::vector<std::filesystem::path> receipt_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (const auto ending = entry.path().extension(); ending == ".json" || ending == ".jsonl")
      files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

std::vector<FoundReceipt> found_or_refused(const std::string& name, const std::string& where,
                                           const std::function<std::string()>& read) {
  try {
    return find_receipts(read(), where);
  } catch (const InputError& error) {
    return {{.where = name, .error = error.what()}};
  }
}

std::vector<FoundReceipt> at_least_one(std::vector<FoundReceipt> found, const std::string& where) {
  if (found.empty()) found.push_back({.where = where, .error = where + ": no receipt in it"});
  return found;
}

}  // namespace

std::vector<FoundReceipt> find_receipts(std::string_view text, std::string_view where) {
  std::vector<FoundReceipt> found;
  const std::vector<NumberedLine> lines = lines_with_json(text);
  const bool events = is_event_stream(text);
  if (!events && !is_lines(lines)) {
    look_in(text, std::string(where), found);
    return found;
  }
  for (const NumberedLine& line : lines) look_in(line.text, fmt::format("{}:{}", where, line.number), found);
  if (events)
    for (FoundReceipt& one : found) one.text.reset();  // the text of one event is not that of the answer
  return found;
}

std::vector<FoundReceipt> read_receipts(const std::string& name, const std::string& where,
                                        const std::function<std::string()>& read) {
  return at_least_one(found_or_refused(name, where, read), where);
}

std::vector<FoundReceipt> receipts_at(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    return read_receipts(path.string(), path.string(), [&] { return read_text_stream(path); });
  std::vector<FoundReceipt> all;
  for (const std::filesystem::path& file : receipt_files(path))
    for (FoundReceipt& found : found_or_refused(file.string(), file.string(), [&] { return read_text_stream(file); }))
      all.push_back(std::move(found));
  return at_least_one(std::move(all), path.string());
}

}  // namespace espalier
