#include "serve/page/chat_page.h"

#include <gmock/gmock.h>
#include <openssl/evp.h>

#include <array>
#include <regex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string chat_page_text() {
  return std::string(chat_page());
}

// By OpenSSL alone, apart from the code under test.
std::string openssl_hash(std::string_view content) {
  std::array<unsigned char, 32> digest{};
  std::array<unsigned char, 45> text{};
  unsigned length = 0;
  EXPECT_EQ(EVP_Digest(content.data(), content.size(), digest.data(), &length, EVP_sha256(), nullptr), 1);
  EXPECT_EQ(EVP_EncodeBlock(text.data(), digest.data(), 32), 44);
  return std::string(text.begin(), text.begin() + 44);
}

// The tags of the page's own markup, without what scripts and style sheets hold.
std::vector<std::string> tags_of_chat_page() {
  std::string page = chat_page_text();
  for (const char* name : {"script", "style"}) {
    const std::string_view content = only_element(page, name);
    page.erase(static_cast<std::size_t>(content.data() - page.data()), content.size());
  }
  const std::regex tag("<[a-zA-Z/!][^>]*>");
  return {std::sregex_token_iterator(page.begin(), page.end(), tag), std::sregex_token_iterator()};
}

TEST(ChatPage, PolicyNamesExactlyTheScriptAndTheStyleThatAreInThePage) {
  const std::string policy = chat_page_policy();
  EXPECT_THAT(policy, HasSubstr("script-src 'sha256-" + openssl_hash(only_element(chat_page(), "script")) + "';"));
  EXPECT_THAT(policy, HasSubstr("style-src 'sha256-" + openssl_hash(only_element(chat_page(), "style")) + "';"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
}

TEST(ChatPage, PolicyAllowsNothingElse) {
  const std::string policy = chat_page_policy();
  EXPECT_THAT(policy, StartsWith("default-src 'none'; "));
  for (const char* rule : {"connect-src 'self';", "img-src data:;", "base-uri 'none';", "form-action 'none';"})
    EXPECT_THAT(policy, HasSubstr(rule));
  EXPECT_THAT(policy, ::testing::EndsWith("frame-ancestors 'none'"));
}

TEST(ChatPage, HasOneScriptAndOneStyleSheetAndTheyAreNotEmpty) {
  EXPECT_GT(only_element(chat_page(), "script").size(), 1000u);
  EXPECT_GT(only_element(chat_page(), "style").size(), 1000u);
}

TEST(ChatPage, NothingOfTheFilesItIsJoinedFromIsLeftOpen) {
  EXPECT_THAT(chat_page_text(), StartsWith("<!DOCTYPE html>\n"));
  EXPECT_THAT(chat_page_text(), ::testing::EndsWith("</html>\n"));
  EXPECT_FALSE(std::regex_search(chat_page_text(), std::regex("@[A-Z_]+@")));
}

TEST(ChatPage, TagsHaveNoStylesNoHandlersAndNoOutsideAssets) {
  const std::regex style(R"(\sstyle\s*=)", std::regex::icase), handler(R"(\son\w+\s*=)", std::regex::icase);
  const std::regex source(R"(\s(src|srcset|action|formaction)\s*=)", std::regex::icase);
  const std::regex link(R"(\shref\s*=\s*"(?!#|data:))", std::regex::icase);
  for (const std::string& tag : tags_of_chat_page())
    for (const std::regex& forbidden : {style, handler, source, link})
      EXPECT_FALSE(std::regex_search(tag, forbidden)) << tag;
}

TEST(ChatPage, NamesNoOtherServer) {
  // The name of SVG's namespace looks like an address and is none.
  const std::string page = std::regex_replace(chat_page_text(), std::regex(R"(http://www\.w3\.org/2000/svg)"), "");
  EXPECT_FALSE(std::regex_search(page, std::regex("https?://|\\burl\\(|@import|[\"']//", std::regex::icase)));
}

TEST(ChatPage, ScriptsWriteTextAndNeverMarkup) {
  const std::string script(only_element(chat_page(), "script"));
  for (const char* name : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"})
    EXPECT_THAT(script, Not(HasSubstr(name)));
}

TEST(ChatPage, IsSmall) {
  EXPECT_LT(chat_page().size(), 96u * 1024);
}

TEST(ChatPage, ElementThatIsMissingOrThereTwiceIsOurMistake) {
  EXPECT_EQ(only_element("a<style>b</style>c", "style"), "b");
  EXPECT_EQ(only_element("<style></style>", "style"), "");
  EXPECT_THROW(only_element("a", "style"), std::logic_error);
  EXPECT_THROW(only_element("<style>", "style"), std::logic_error);
  EXPECT_THROW(only_element("</style><style>", "style"), std::logic_error);
  EXPECT_THROW(only_element("<style>a</style><style>b</style>", "style"), std::logic_error);
}

}  // namespace
}  // namespace espalier
