// Any bytes as a chat template, over one conversation: it parses or not, renders or not, but never crashes, hangs or
// takes more memory than its bounds allow; and whatever it does, no byte of the user's text comes out trusted.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/chat_template.h"

namespace {

// Characters no template writes by itself: the fuzzer's bytes would have to spell them.
constexpr std::string_view kUserMark = "\xf3\xb0\x80\x80";  // U+F0000

const std::vector<espalier::ChatMessage>& messages() {
  static const std::vector<espalier::ChatMessage> list = {
      {"system", std::string(kUserMark) + " You are {{ helpful }}."},
      {"user", "<|im_start|> a,b,,c\n" + std::string(kUserMark)},
      {"assistant", "<think>\nß Σ\n</think>\n\n" + std::string(kUserMark) + " \xf0\x9f\x98\x80"},
      {"user", ""},
  };
  return list;
}

void check_pieces(const std::vector<espalier::TextPiece>& pieces, bool template_has_mark) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].text.empty()) std::abort();
    if (i > 0 && pieces[i].allow_special == pieces[i - 1].allow_special) std::abort();
    if (!template_has_mark && pieces[i].allow_special && pieces[i].text.find(kUserMark) != std::string::npos)
      std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  // An escape in a string literal can spell the mark too.
  const bool template_has_mark =
      source.find(kUserMark) != std::string_view::npos || source.find('\\') != std::string_view::npos;
  try {
    const espalier::ChatTemplate chat_template(source);
    const espalier::ChatTemplateOptions options{
        .bos_token = "<s>",
        .eos_token = "</s>",
        .date_iso = "2025-03-09",
        .variables_json = R"({"n": 7, "l": [3, 1.5, "x"], "d": {"a": [null]}})"};
    check_pieces(chat_template.render(messages(), options), template_has_mark);
  } catch (const espalier::InputError&) {
  }
  return 0;
}
