// Parses the expressions of a template. Reads from the tokens that the statements are read from too, and stops at the
// first one that cannot belong to the expression.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace espalier::jinja {

struct TupleOptions {
  bool conditional = true;  // whether "a if b" is part of it
  bool parenthesized = false;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExpressionPtr parse_expression(bool conditional = true);
  // One expression, or several with commas between them: a tuple.
  ExpressionPtr parse_tuple(TupleOptions options = {});
  // What stands between "{{" and "}}".
  ExpressionPtr parse_output();
  // What stands behind a "|". `input` is null in filter and set blocks.
  ExpressionPtr parse_filter(ExpressionPtr input);

  // In the body of a macro some names are not variables.
  void set_in_macro(bool in_macro) { in_macro_ = in_macro; }

 private:
  using Rule = ExpressionPtr (ExpressionParser::*)();
  struct Operator {
    std::string_view symbol;
    Arithmetic operation;
  };

  // Operators, from the weakest binding to the strongest.
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_logical(ExpressionPtr left, bool is_and, Rule operand);
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  std::optional<Relation> accept_relation();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_arithmetic(std::span<const Operator> operators, Rule operand);
  ExpressionPtr parse_operand();
  ExpressionPtr parse_sign();

  // What follows a value.
  ExpressionPtr parse_postfix(ExpressionPtr value);
  ExpressionPtr parse_filters(ExpressionPtr value);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_test(ExpressionPtr input);
  bool at_test_argument() const;
  Arguments parse_arguments();
  std::string take_dotted_name();

  // Values.
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_strings();
  ExpressionPtr parse_number();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  bool at_tuple_end() const;

  TokenStream& tokens_;
  bool in_macro_ = false;
  const Expression* safe_ = nullptr;  // what "safe" was applied to in this output
};

}  // namespace espalier::jinja
