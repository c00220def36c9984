#include "text/jinja/token_stream.h"

namespace espalier::jinja {

std::string TokenStream::describe() const {
  switch (token().kind) {
    case TokenKind::end: return "the end of the template";
    case TokenKind::data: return "text";
    case TokenKind::block_begin: return "'{%'";
    case TokenKind::block_end: return "'%}'";
    case TokenKind::output_begin: return "'{{'";
    case TokenKind::output_end: return "'}}'";
    case TokenKind::string: return "a string";
    default: return fmt::format("'{}'", token().text);
  }
}

std::string TokenStream::take_name() {
  if (!at(TokenKind::name)) fail("expected a name, got {}", describe());
  return take().text;
}

bool TokenStream::accept_symbol(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  take();
  return true;
}

bool TokenStream::accept_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void TokenStream::expect(TokenKind kind, std::string_view what) {
  if (!at(kind)) fail("expected {}, got {}", what, describe());
  take();
}

void TokenStream::expect_symbol(std::string_view symbol) {
  if (!accept_symbol(symbol)) fail("expected '{}', got {}", symbol, describe());
}

void TokenStream::expect_name(std::string_view name) {
  if (!accept_name(name)) fail("expected '{}', got {}", name, describe());
}

}  // namespace espalier::jinja
