// Cuts the source of a template into tokens and applies jinja2's white space rules as transformers sets them up:
// trim_blocks (a line end after a block tag goes), lstrip_blocks (blanks before a block tag go), "-" and "+" signs,
// and no line end at the end of the file. Raw blocks come out as data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/guard.h"

namespace espalier::jinja {

enum class TokenKind {
  data,
  block_begin,
  block_end,
  output_begin,
  output_end,
  name,
  string,
  integer,
  real,
  symbol,
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // of a string: its value, escapes resolved
  Position position;
};

// The last token is `end`. Throws InputError with the position of what is malformed.
std::vector<Token> tokenize(std::string_view source);

}  // namespace espalier::jinja
