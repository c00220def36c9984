#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

namespace espalier::jinja {
namespace {

struct RelationSymbol {
  std::string_view symbol;
  Relation relation;
};
constexpr RelationSymbol kRelations[] = {{"==", Relation::equal},  {"!=", Relation::not_equal},
                                         {"<", Relation::less},    {"<=", Relation::less_equal},
                                         {">", Relation::greater}, {">=", Relation::greater_equal}};

int depth(const ExpressionPtr& expression) {
  return expression ? expression->depth : 0;
}

int depth(std::span<const ExpressionPtr> expressions) {
  int deepest = 0;
  for (const ExpressionPtr& expression : expressions) deepest = std::max(deepest, depth(expression));
  return deepest;
}

int depth(const Arguments& arguments) {
  int deepest = depth(arguments.positional);
  for (const auto& [name, value] : arguments.named) deepest = std::max(deepest, depth(value));
  return deepest;
}

template <typename Form>
ExpressionPtr node(Position position, Form form, int inner_depth) {
  if (inner_depth >= kMaxNesting) fail_at(position, "expression nested more than {} deep", kMaxNesting);
  auto expression = std::make_unique<Expression>();
  expression->position = position;
  expression->depth = inner_depth + 1;
  expression->form = std::move(form);
  return expression;
}

}  // namespace

ExpressionPtr ExpressionParser::parse_expression(bool conditional) {
  const Nesting nesting(tokens_);
  return conditional ? parse_conditional() : parse_or();
}

bool ExpressionParser::at_tuple_end() const {
  return tokens_.at(TokenKind::output_end) || tokens_.at(TokenKind::block_end) || tokens_.at_symbol(")");
}

ExpressionPtr ExpressionParser::parse_tuple(TupleOptions options) {
  const Position position = tokens_.here();
  Sequence tuple{.items = {}, .kind = ListKind::tuple};
  if (at_tuple_end()) {
    if (!options.parenthesized) tokens_.fail("expected an expression, got {}", tokens_.describe());
    return node(position, std::move(tuple), 0);
  }
  tuple.items.push_back(parse_expression(options.conditional));
  if (!tokens_.at_symbol(",")) return std::move(tuple.items[0]);
  while (tokens_.accept_symbol(",")) {
    if (at_tuple_end()) break;
    tuple.items.push_back(parse_expression(options.conditional));
  }
  const int inner = depth(tuple.items);
  return node(position, std::move(tuple), inner);
}

ExpressionPtr ExpressionParser::parse_output() {
  const Position position = tokens_.here();
  safe_ = nullptr;
  ExpressionPtr value = parse_tuple();
  // jinja2 marks the text as HTML, which changes nothing when it is printed at once and much when it is combined.
  if (safe_ != nullptr && safe_ != value.get())
    fail_at(position, "the filter 'safe' is supported only as the last step of an output");
  return value;
}

// --- operators

ExpressionPtr ExpressionParser::parse_conditional() {
  ExpressionPtr value = parse_or();
  while (tokens_.at_name("if")) {
    const Position position = tokens_.take().position;
    ExpressionPtr test = parse_or();
    ExpressionPtr otherwise = tokens_.accept_name("else") ? parse_expression() : nullptr;
    const int inner = std::max({depth(value), depth(test), depth(otherwise)});
    value = node(position, Conditional{std::move(test), std::move(value), std::move(otherwise)}, inner);
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (tokens_.at_name("or")) left = parse_logical(std::move(left), false, &ExpressionParser::parse_and);
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (tokens_.at_name("and")) left = parse_logical(std::move(left), true, &ExpressionParser::parse_not);
  return left;
}

ExpressionPtr ExpressionParser::parse_logical(ExpressionPtr left, bool is_and, Rule operand) {
  const Position position = tokens_.take().position;
  ExpressionPtr right = (this->*operand)();
  const int inner = std::max(depth(left), depth(right));
  return node(position, Logical{is_and, std::move(left), std::move(right)}, inner);
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!tokens_.at_name("not")) return parse_comparison();
  const Nesting nesting(tokens_);
  const Position position = tokens_.take().position;
  ExpressionPtr operand = parse_not();
  const int inner = depth(operand);
  return node(position, Unary{UnaryOperator::logical_not, std::move(operand)}, inner);
}

ExpressionPtr ExpressionParser::parse_comparison() {
  const Position position = tokens_.here();
  ExpressionPtr first = parse_sum();
  Comparison comparison;
  int inner = depth(first);
  while (const std::optional<Relation> relation = accept_relation()) {
    comparison.rest.emplace_back(*relation, parse_sum());
    inner = std::max(inner, depth(comparison.rest.back().second));
  }
  if (comparison.rest.empty()) return first;
  comparison.first = std::move(first);
  return node(position, std::move(comparison), inner);
}

std::optional<Relation> ExpressionParser::accept_relation() {
  for (const RelationSymbol& entry : kRelations)
    if (tokens_.accept_symbol(entry.symbol)) return entry.relation;
  if (tokens_.accept_name("in")) return Relation::in;
  const Token& after = tokens_.token_after();
  if (tokens_.at_name("not") && after.kind == TokenKind::name && after.text == "in") {
    tokens_.take();
    tokens_.take();
    return Relation::not_in;
  }
  return std::nullopt;
}

ExpressionPtr ExpressionParser::parse_sum() {
  static constexpr Operator kSums[] = {{"+", Arithmetic::add}, {"-", Arithmetic::subtract}};
  return parse_arithmetic(kSums, &ExpressionParser::parse_concatenation);
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  const Position position = tokens_.here();
  std::vector<ExpressionPtr> parts;
  do parts.push_back(parse_product());
  while (tokens_.accept_symbol("~"));
  if (parts.size() == 1) return std::move(parts[0]);
  const int inner = depth(parts);
  return node(position, Concatenation{std::move(parts)}, inner);
}

ExpressionPtr ExpressionParser::parse_product() {
  static constexpr Operator kProducts[] = {{"*", Arithmetic::multiply},
                                           {"/", Arithmetic::divide},
                                           {"//", Arithmetic::floor_divide},
                                           {"%", Arithmetic::modulo}};
  return parse_arithmetic(kProducts, &ExpressionParser::parse_power);
}

ExpressionPtr ExpressionParser::parse_power() {
  static constexpr Operator kPowers[] = {{"**", Arithmetic::power}};
  return parse_arithmetic(kPowers, &ExpressionParser::parse_operand);
}

ExpressionPtr ExpressionParser::parse_arithmetic(std::span<const Operator> operators, Rule operand) {
  ExpressionPtr left = (this->*operand)();
  while (tokens_.at(TokenKind::symbol)) {
    const auto found = std::find_if(operators.begin(), operators.end(),
                                    [&](const Operator& entry) { return entry.symbol == tokens_.token().text; });
    if (found == operators.end()) break;
    const Position position = tokens_.take().position;
    ExpressionPtr right = (this->*operand)();
    const int inner = std::max(depth(left), depth(right));
    left = node(position, Binary{found->operation, std::move(left), std::move(right)}, inner);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_operand() {
  return parse_filters(parse_sign());
}

// Signs bind tighter than powers and filters: -2 ** 2 is 4 in jinja2.
ExpressionPtr ExpressionParser::parse_sign() {
  if (!tokens_.at_symbol("-") && !tokens_.at_symbol("+")) return parse_postfix(parse_primary());
  const Nesting nesting(tokens_);
  const UnaryOperator operation = tokens_.at_symbol("-") ? UnaryOperator::negate : UnaryOperator::plus;
  const Position position = tokens_.take().position;
  ExpressionPtr operand = parse_sign();
  const int inner = depth(operand);
  return node(position, Unary{operation, std::move(operand)}, inner);
}

// --- what follows a value

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr value) {
  while (true) {
    if (tokens_.at_symbol(".")) {
      value = parse_attribute(std::move(value));
    } else if (tokens_.at_symbol("[")) {
      value = parse_subscript(std::move(value));
    } else if (tokens_.at_symbol("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr value) {
  while (true) {
    if (tokens_.accept_symbol("|")) {
      value = parse_filter(std::move(value));
    } else if (tokens_.at_name("is")) {
      value = parse_test(std::move(value));
    } else if (tokens_.at_symbol("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr object) {
  const Position position = tokens_.take().position;
  const int inner = depth(object);
  if (tokens_.at(TokenKind::integer)) {
    ExpressionPtr index = parse_primary();
    return node(position, Subscript{std::move(object), std::move(index)}, inner);
  }
  return node(position, Attribute{std::move(object), tokens_.take_name()}, inner);
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const Position position = tokens_.take().position;
  ExpressionPtr begin = tokens_.at_symbol(":") ? nullptr : parse_expression();
  if (tokens_.at_symbol(",")) tokens_.fail("subscripts with several indices are not supported");
  if (tokens_.accept_symbol("]")) {
    const int inner = std::max(depth(object), depth(begin));
    return node(position, Subscript{std::move(object), std::move(begin)}, inner);
  }
  tokens_.expect_symbol(":");
  ExpressionPtr end = tokens_.at_symbol(":") || tokens_.at_symbol("]") ? nullptr : parse_expression();
  ExpressionPtr step;
  if (tokens_.accept_symbol(":") && !tokens_.at_symbol("]")) step = parse_expression();
  tokens_.expect_symbol("]");
  const int inner = std::max({depth(object), depth(begin), depth(end), depth(step)});
  return node(position, Slice{std::move(object), std::move(begin), std::move(end), std::move(step)}, inner);
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  const Position position = tokens_.here();
  Arguments arguments = parse_arguments();
  const int inner = std::max(depth(callee), depth(arguments));
  return node(position, Call{std::move(callee), std::move(arguments)}, inner);
}

Arguments ExpressionParser::parse_arguments() {
  Arguments arguments;
  tokens_.expect_symbol("(");
  while (!tokens_.at_symbol(")")) {
    if (tokens_.at_symbol("*") || tokens_.at_symbol("**")) tokens_.fail("arguments with '*' are not supported");
    const Token& after = tokens_.token_after();
    const bool named = tokens_.at(TokenKind::name) && after.kind == TokenKind::symbol && after.text == "=";
    if (named) {
      std::string name = tokens_.take_name();
      tokens_.take();
      for (const auto& other : arguments.named)
        if (other.first == name) tokens_.fail("argument '{}' is given twice", name);
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!arguments.named.empty()) tokens_.fail("an argument without name follows one with a name");
      arguments.positional.push_back(parse_expression());
    }
    if (!tokens_.at_symbol(")")) tokens_.expect_symbol(",");
  }
  tokens_.expect_symbol(")");
  return arguments;
}

std::string ExpressionParser::take_dotted_name() {
  std::string name = tokens_.take_name();
  while (tokens_.accept_symbol(".")) name.append(".").append(tokens_.take_name());
  return name;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
  const Position position = tokens_.here();
  const std::string name = take_dotted_name();
  if (name == "safe" && input != nullptr && tokens_.at(TokenKind::output_end)) {
    safe_ = input.get();
    return input;
  }
  if (name == "safe") fail_at(position, "the filter 'safe' is supported only as the last step of an output");
  const Filter filter = find_filter(name);
  if (filter == nullptr) fail_at(position, "the filter '{}' is not supported", name);
  Arguments arguments = tokens_.at_symbol("(") ? parse_arguments() : Arguments{};
  const int inner = std::max(depth(input), depth(arguments));
  return node(position, Filtered{std::move(input), filter, std::move(arguments)}, inner);
}

bool ExpressionParser::at_test_argument() const {
  switch (tokens_.token().kind) {
    case TokenKind::name: return !tokens_.at_name("else") && !tokens_.at_name("or") && !tokens_.at_name("and");
    case TokenKind::string:
    case TokenKind::integer:
    case TokenKind::real: return true;
    default: return tokens_.at_symbol("[") || tokens_.at_symbol("{");
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const Position position = tokens_.take().position;
  const bool negated = tokens_.accept_name("not");
  const std::string name = take_dotted_name();
  const Test test = find_test(name);
  if (test == nullptr) fail_at(position, "the test '{}' is not supported", name);
  Arguments arguments;
  if (tokens_.at_symbol("(")) {
    arguments = parse_arguments();
  } else if (at_test_argument()) {
    if (tokens_.at_name("is")) tokens_.fail("tests with 'is' cannot be chained");
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  const int inner = std::max(depth(input), depth(arguments));
  ExpressionPtr tested = node(position, Tested{std::move(input), test, std::move(arguments)}, inner);
  if (!negated) return tested;
  return node(position, Unary{UnaryOperator::logical_not, std::move(tested)}, inner + 1);
}

// --- values

ExpressionPtr ExpressionParser::parse_primary() {
  switch (tokens_.token().kind) {
    case TokenKind::name: return parse_name();
    case TokenKind::string: return parse_strings();
    case TokenKind::integer:
    case TokenKind::real: return parse_number();
    default: break;
  }
  if (tokens_.accept_symbol("(")) {
    const Nesting nesting(tokens_);
    ExpressionPtr value = parse_tuple({.parenthesized = true});
    tokens_.expect_symbol(")");
    return value;
  }
  if (tokens_.at_symbol("[")) return parse_list();
  if (tokens_.at_symbol("{")) return parse_dict();
  tokens_.fail("expected an expression, got {}", tokens_.describe());
}

ExpressionPtr ExpressionParser::parse_name() {
  const Position position = tokens_.here();
  std::string name = tokens_.take_name();
  if (name == "true" || name == "True") return node(position, Literal{Value(true)}, 0);
  if (name == "false" || name == "False") return node(position, Literal{Value(false)}, 0);
  if (name == "none" || name == "None") return node(position, Literal{Value()}, 0);
  const bool of_macro = in_macro_ && (name == "varargs" || name == "kwargs" || name == "caller");
  if (of_macro || name == "self" || name == "super") fail_at(position, "the variable '{}' is not supported", name);
  return node(position, Name{std::move(name)}, 0);
}

ExpressionPtr ExpressionParser::parse_strings() {
  const Position position = tokens_.here();
  std::string value;
  while (tokens_.at(TokenKind::string)) value += tokens_.take().text;
  return node(position, Literal{Value(Text(value, true))}, 0);
}

ExpressionPtr ExpressionParser::parse_number() {
  const Token& number = tokens_.take();
  const char* end = number.text.data() + number.text.size();
  std::int64_t integer = 0;
  double real = 0;
  const bool is_integer = number.kind == TokenKind::integer;
  const std::errc error = is_integer ? std::from_chars(number.text.data(), end, integer).ec
                                     : std::from_chars(number.text.data(), end, real).ec;
  if (error != std::errc{}) fail_at(number.position, "the number '{}' is too large to be supported", number.text);
  return node(number.position, Literal{is_integer ? Value(integer) : Value(real)}, 0);
}

ExpressionPtr ExpressionParser::parse_list() {
  const Position position = tokens_.take().position;
  Sequence list;
  while (!tokens_.at_symbol("]")) {
    if (!list.items.empty()) tokens_.expect_symbol(",");
    if (tokens_.at_symbol("]")) break;
    list.items.push_back(parse_expression());
  }
  tokens_.expect_symbol("]");
  const int inner = depth(list.items);
  return node(position, std::move(list), inner);
}

ExpressionPtr ExpressionParser::parse_dict() {
  const Position position = tokens_.take().position;
  DictDisplay dict;
  int inner = 0;
  while (!tokens_.at_symbol("}")) {
    if (!dict.entries.empty()) tokens_.expect_symbol(",");
    if (tokens_.at_symbol("}")) break;
    ExpressionPtr key = parse_expression();
    tokens_.expect_symbol(":");
    ExpressionPtr value = parse_expression();
    inner = std::max({inner, depth(key), depth(value)});
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  tokens_.expect_symbol("}");
  return node(position, std::move(dict), inner);
}

}  // namespace espalier::jinja
