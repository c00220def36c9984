// Prints the policy of the chat page on a line, and the page behind it.
#include <cstdio>
#include <string>

#include "serve/page/chat_page.h"

int main() {
  const std::string text = espalier::chat_page_policy() + "\n" + std::string(espalier::chat_page());
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
