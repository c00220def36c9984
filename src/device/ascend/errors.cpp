#include "device/ascend/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace espalier::ascend {
namespace {

constexpr std::size_t kMostWords = 400;  // of the runtime's, which may be pages

using Meaning = std::pair<AclCode, std::string_view>;
constexpr std::array<Meaning, 17> kMeanings = {{
    {100001, "the runtime is not initialised"},
    {kStubLibrary, "this is a stub library for linking, not the runtime: take CANN's lib64 instead of its devlib"},
    {107002, "no context on this thread"},
    {107003, "a stream of another context"},
    {161001, "an operator was given nothing where it needs a tensor"},
    {161002, "an operator does not take these types or shapes"},
    {kNoMemory, "no memory left"},
    {kNoResource, "no resource left"},
    {kNoStream, "no stream left"},
    {361001, "the runtime failed inside an operator"},
    {507009, "a task of a kind that cannot be recorded"},
    {507015, "a fault on the NPU: an address outside of its memory, or the card is lost"},
    {507035, "a fault on the NPU: an index outside of its table"},
    {507046, "the NPU did not finish in time"},
    {561002, "an operator refused the shapes of its arguments"},
    {561003, "an operator has no kernel: source CANN's set_env.sh first, and install its kernels for this NPU"},
    {kNoOperators, "operators are not found: source CANN's set_env.sh first"},
}};

// The runtime's words on one line.
std::string words_of(const Api& api) {
  const char* const message = api.aclGetRecentErrMsg ? api.aclGetRecentErrMsg() : nullptr;
  std::string words = message == nullptr ? "" : message;
  std::ranges::replace_if(
      words, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  const auto last = words.find_last_not_of(' ');
  words.resize(last == words.npos ? 0 : last + 1);
  if (words.size() > kMostWords) words = words.substr(0, kMostWords) + " ...";
  return words;
}

}  // namespace

std::string_view meaning_of(AclCode code) {
  const auto* const found = std::ranges::find(kMeanings, code, &Meaning::first);
  return found == kMeanings.end() ? std::string_view() : found->second;
}

std::string describe_failure(const Api& api, std::string_view call, AclCode code) {
  const std::string words = words_of(api);
  const std::string_view meaning = meaning_of(code);
  return fmt::format("{}: error {}{}{}", call, code, meaning.empty() ? "" : fmt::format(" ({})", meaning),
                     words.empty() ? "" : ": " + words);
}

bool AclFailure::is_refusal() const {
  if (code_ == kNoOperators) return false;
  return code_ == 161001 || code_ == 161002 || (code_ >= 561000 && code_ < 562000);
}

void throw_failure(const Api& api, std::string_view call, AclCode code) {
  throw AclFailure("Ascend: " + describe_failure(api, call, code), code);
}

}  // namespace espalier::ascend
