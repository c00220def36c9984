// The tokens of a template and a place in them, from which all its parsers read: look at what is there, take it, or
// expect it. Errors say what stands there instead, with line and column. The place never goes back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/guard.h"
#include "text/jinja/lexer.h"

namespace espalier::jinja {

inline constexpr int kMaxNesting = 100;  // of parse functions, and of the expressions they build

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  TokenStream(const TokenStream&) = delete;  // parsers refer to it
  TokenStream& operator=(const TokenStream&) = delete;

  const Token& token() const { return tokens_[next_]; }
  const Token& token_after() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  Position here() const { return token().position; }
  std::string describe() const;  // the token, for messages

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(here(), format, std::forward<Args>(args)...);
  }

  bool at(TokenKind kind) const { return token().kind == kind; }
  bool at_symbol(std::string_view symbol) const { return at(TokenKind::symbol) && token().text == symbol; }
  bool at_name(std::string_view name) const { return at(TokenKind::name) && token().text == name; }

  // Never called at the end, so that a token is always left.
  const Token& take() { return tokens_[next_++]; }
  std::string take_name();

  bool accept_symbol(std::string_view symbol);
  bool accept_name(std::string_view name);

  void expect(TokenKind kind, std::string_view what);
  void expect_symbol(std::string_view symbol);
  void expect_name(std::string_view name);

 private:
  friend class Nesting;

  const std::vector<Token> tokens_;  // the last one is `end`
  std::size_t next_ = 0;
  int nesting_ = 0;
};

// Counts a parse function while it runs, because each uses the C++ stack.
class Nesting {
 public:
  explicit Nesting(TokenStream& tokens) : tokens_(tokens) {
    if (++tokens_.nesting_ > kMaxNesting) tokens_.fail("nested more than {} deep", kMaxNesting);
  }
  ~Nesting() { --tokens_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  TokenStream& tokens_;
};

}  // namespace espalier::jinja
