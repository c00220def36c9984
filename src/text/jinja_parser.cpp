#include "text/jinja_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <span>

#include "text/jinja_lexer.h"

namespace espalier::jinja {
namespace {

constexpr int kMaxDepth = 100;
constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;

struct RelationSymbol {
  std::string_view symbol;
  Relation relation;
};
constexpr RelationSymbol kRelations[] = {{"==", Relation::equal},  {"!=", Relation::not_equal},
                                         {"<", Relation::less},    {"<=", Relation::less_equal},
                                         {">", Relation::greater}, {">=", Relation::greater_equal}};

struct ArithmeticSymbol {
  std::string_view symbol;
  Arithmetic operation;
};
constexpr ArithmeticSymbol kSums[] = {{"+", Arithmetic::add}, {"-", Arithmetic::subtract}};
constexpr ArithmeticSymbol kProducts[] = {{"*", Arithmetic::multiply},
                                          {"/", Arithmetic::divide},
                                          {"//", Arithmetic::floor_divide},
                                          {"%", Arithmetic::modulo}};
constexpr ArithmeticSymbol kPowers[] = {{"**", Arithmetic::power}};

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

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block parse_template() { return parse_block({}); }

 private:
  // Counts nested parse functions, because each uses the C++ stack.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxDepth) parser_.fail("nested more than {} deep", kMaxDepth);
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  // --- tokens

  const Token& token() const { return tokens_[next_]; }
  const Token& token_after() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  Position here() const { return token().position; }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(here(), format, std::forward<Args>(args)...);
  }

  std::string describe() const {
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

  bool at_symbol(std::string_view symbol) const { return token().kind == TokenKind::symbol && token().text == symbol; }
  bool at_name(std::string_view name) const { return token().kind == TokenKind::name && token().text == name; }

  bool accept_symbol(std::string_view symbol) {
    if (!at_symbol(symbol)) return false;
    ++next_;
    return true;
  }

  bool accept_name(std::string_view name) {
    if (!at_name(name)) return false;
    ++next_;
    return true;
  }

  void expect_symbol(std::string_view symbol) {
    if (!accept_symbol(symbol)) fail("expected '{}', got {}", symbol, describe());
  }

  void expect_name(std::string_view name) {
    if (!accept_name(name)) fail("expected '{}', got {}", name, describe());
  }

  std::string take_name() {
    if (token().kind != TokenKind::name) fail("expected a name, got {}", describe());
    return tokens_[next_++].text;
  }

  void expect_kind(TokenKind kind, std::string_view what) {
    if (token().kind != kind) fail("expected {}, got {}", what, describe());
    ++next_;
  }

  void expect_block_end() { expect_kind(TokenKind::block_end, "'%}'"); }

  // --- statements

  using Ends = std::initializer_list<std::string_view>;

  // Statements up to "{% name" with one of the names, which is left for the caller to read; without names up to the
  // end of the template.
  Block parse_block(Ends ends) {
    const Nesting nesting(*this);
    Block body;
    while (token().kind != TokenKind::end) {
      const Position position = here();
      if (token().kind == TokenKind::data) {
        body.push_back(statement(position, Data{Text(tokens_[next_++].text, true)}));
      } else if (token().kind == TokenKind::output_begin) {
        ++next_;
        body.push_back(statement(position, parse_output()));
      } else {
        expect_kind(TokenKind::block_begin, "a statement");
        if (std::find(ends.begin(), ends.end(), token().text) != ends.end() && token().kind == TokenKind::name)
          return body;
        parse_statement(position, body);
      }
    }
    if (ends.size() > 0) fail("expected '{{% {} %}}', got the end of the template", *(ends.end() - 1));
    return body;
  }

  template <typename Form>
  static std::unique_ptr<const Statement> statement(Position position, Form form) {
    auto node = std::make_unique<Statement>();
    node->position = position;
    node->form = std::move(form);
    return node;
  }

  Output parse_output() {
    const Position position = here();
    safe_ = nullptr;
    ExpressionPtr value = parse_tuple();
    // jinja2 marks the text as HTML, which changes nothing when it is printed at once and much when it is combined.
    if (safe_ != nullptr && safe_ != value.get())
      fail_at(position, "the filter 'safe' is supported only as the last step of an output");
    expect_kind(TokenKind::output_end, "'}}'");
    return Output{std::move(value)};
  }

  void parse_statement(Position position, Block& body) {
    if (token().kind != TokenKind::name) fail("expected the name of a statement, got {}", describe());
    const std::string name = token().text;
    if (name == "if") return body.push_back(statement(position, parse_if()));
    if (name == "for") return body.push_back(statement(position, parse_for()));
    if (name == "set") return parse_set(position, body);
    if (name == "macro") return body.push_back(statement(position, parse_macro()));
    if (name == "filter") return body.push_back(statement(position, parse_filter_block()));
    if (name == "with") return body.push_back(statement(position, parse_with()));
    if (name == "generation") return body.push_back(statement(position, parse_generation()));
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail("'{}' outside a loop", name);
      ++next_;
      expect_block_end();
      if (name == "break") return body.push_back(statement(position, Break{}));
      return body.push_back(statement(position, Continue{}));
    }
    fail("the statement '{}' is not supported", name);
  }

  If parse_if() {
    If node;
    ++next_;
    while (true) {
      ExpressionPtr test = parse_tuple({.conditional = false});
      expect_block_end();
      Block body = parse_block({"elif", "else", "endif"});
      node.branches.emplace_back(std::move(test), std::move(body));
      if (accept_name("elif")) continue;
      if (accept_name("else")) {
        expect_block_end();
        node.otherwise = parse_block({"endif"});
      }
      expect_name("endif");
      expect_block_end();
      return node;
    }
  }

  For parse_for() {
    For node;
    ++next_;
    node.target = parse_target({.stops_at_in = true});
    expect_name("in");
    node.iterable = parse_tuple({.conditional = false});
    if (accept_name("if")) node.condition = parse_expression();
    if (at_name("recursive")) fail("recursive loops are not supported");
    expect_block_end();
    const Scope scope(scopes_);
    ++loops_;
    node.body = parse_block({"else", "endfor"});
    --loops_;
    if (accept_name("else")) {
      expect_block_end();
      node.otherwise = parse_block({"endfor"});
    }
    expect_name("endfor");
    expect_block_end();
    return node;
  }

  void parse_set(Position position, Block& body) {
    ++next_;
    Target target = parse_target({.namespaces = true});
    if (accept_symbol("=")) {
      ExpressionPtr value = parse_tuple();
      expect_block_end();
      return body.push_back(statement(position, Set{std::move(target), std::move(value)}));
    }
    SetBlock node;
    node.target = std::move(target);
    while (accept_symbol("|")) node.filters.push_back(parse_filter(nullptr));
    expect_block_end();
    const Scope scope(scopes_);
    node.body = parse_block({"endset"});
    expect_name("endset");
    expect_block_end();
    body.push_back(statement(position, std::move(node)));
  }

  FilterBlock parse_filter_block() {
    FilterBlock node;
    ++next_;
    do node.filters.push_back(parse_filter(nullptr));
    while (accept_symbol("|"));
    expect_block_end();
    const Scope scope(scopes_);
    node.body = parse_block({"endfilter"});
    expect_name("endfilter");
    expect_block_end();
    return node;
  }

  With parse_with() {
    With node;
    ++next_;
    while (token().kind != TokenKind::block_end) {
      if (!node.variables.empty()) expect_symbol(",");
      Target target = parse_target({});
      expect_symbol("=");
      node.variables.emplace_back(std::move(target), parse_expression());
    }
    expect_block_end();
    const Scope scope(scopes_);
    node.body = parse_block({"endwith"});
    expect_name("endwith");
    expect_block_end();
    return node;
  }

  // transformers marks the assistant's words with this one; the text is that of the body.
  With parse_generation() {
    With node;
    ++next_;
    expect_block_end();
    const Scope scope(scopes_);
    const int loops = std::exchange(loops_, 0);
    node.body = parse_block({"endgeneration"});
    loops_ = loops;
    expect_name("endgeneration");
    expect_block_end();
    return node;
  }

  // A macro sees the variables of the place where it stands. At the top those live as long as the rendering.
  MacroStatement parse_macro() {
    if (scopes_ > 0) fail("a macro inside another block than 'if' is not supported");
    MacroStatement node;
    ++next_;
    node.name = take_name();
    expect_symbol("(");
    while (!at_symbol(")")) {
      if (!node.parameters.empty()) expect_symbol(",");
      std::string name = take_name();
      ExpressionPtr fallback = accept_symbol("=") ? parse_expression() : nullptr;
      if (!fallback && !node.parameters.empty() && node.parameters.back().second)
        fail("parameter '{}' without default follows one with a default", name);
      for (const auto& parameter : node.parameters)
        if (parameter.first == name) fail("parameter '{}' is named twice", name);
      node.parameters.emplace_back(std::move(name), std::move(fallback));
    }
    expect_symbol(")");
    expect_block_end();
    const Scope scope(scopes_);
    in_macro_ = true;
    node.body = parse_block({"endmacro"});
    in_macro_ = false;
    expect_name("endmacro");
    expect_block_end();
    return node;
  }

  // Counts the blocks around us that have variables of their own.
  class Scope {
   public:
    explicit Scope(int& scopes) : scopes_(scopes) { ++scopes_; }
    ~Scope() { --scopes_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    int& scopes_;
  };

  struct TargetOptions {
    bool namespaces = false;
    bool stops_at_in = false;
  };

  Target parse_target(TargetOptions options) {
    Target target = parse_single_target(options);
    if (!at_symbol(",")) return target;
    Target tuple;
    tuple.position = target.position;
    tuple.is_tuple = true;
    tuple.parts.push_back(std::move(target));
    while (accept_symbol(",")) {
      if (at_symbol("=") || (options.stops_at_in && at_name("in"))) break;
      tuple.parts.push_back(parse_single_target(options));
    }
    return tuple;
  }

  Target parse_single_target(TargetOptions options) {
    const Nesting nesting(*this);
    Target target;
    target.position = here();
    if (accept_symbol("(")) {
      target = parse_target({});
      expect_symbol(")");
      return target;
    }
    target.name = take_name();
    constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none", "True", "False", "None"};
    if (std::find(kConstants.begin(), kConstants.end(), target.name) != kConstants.end())
      fail_at(target.position, "cannot assign to '{}'", target.name);
    if (options.namespaces && accept_symbol(".")) target.attribute = take_name();
    return target;
  }

  // --- expressions, from the weakest binding to the strongest

  template <typename Form>
  ExpressionPtr node(Position position, Form form, int inner_depth) const {
    if (inner_depth >= kMaxDepth) fail_at(position, "expression nested more than {} deep", kMaxDepth);
    auto expression = std::make_unique<Expression>();
    expression->position = position;
    expression->depth = inner_depth + 1;
    expression->form = std::move(form);
    return expression;
  }

  struct TupleOptions {
    bool conditional = true;  // whether "a if b" is part of it
    bool parenthesized = false;
  };

  bool at_tuple_end() const {
    return token().kind == TokenKind::output_end || token().kind == TokenKind::block_end || at_symbol(")");
  }

  // One expression, or several with commas between them: a tuple.
  ExpressionPtr parse_tuple(TupleOptions options) {
    const Position position = here();
    Sequence tuple{.items = {}, .kind = ListKind::tuple};
    if (at_tuple_end()) {
      if (!options.parenthesized) fail("expected an expression, got {}", describe());
      return node(position, std::move(tuple), 0);
    }
    tuple.items.push_back(parse_expression(options.conditional));
    if (!at_symbol(",")) return std::move(tuple.items[0]);
    while (accept_symbol(",")) {
      if (at_tuple_end()) break;
      tuple.items.push_back(parse_expression(options.conditional));
    }
    const int inner = depth(tuple.items);
    return node(position, std::move(tuple), inner);
  }
  ExpressionPtr parse_tuple() { return parse_tuple(TupleOptions{}); }

  ExpressionPtr parse_expression(bool conditional = true) {
    const Nesting nesting(*this);
    return conditional ? parse_conditional() : parse_or();
  }

  ExpressionPtr parse_conditional() {
    ExpressionPtr value = parse_or();
    while (at_name("if")) {
      const Position position = here();
      ++next_;
      ExpressionPtr test = parse_or();
      ExpressionPtr otherwise = accept_name("else") ? parse_expression() : nullptr;
      const int inner = std::max({depth(value), depth(test), depth(otherwise)});
      value = node(position, Conditional{std::move(test), std::move(value), std::move(otherwise)}, inner);
    }
    return value;
  }

  ExpressionPtr parse_or() {
    ExpressionPtr left = parse_and();
    while (at_name("or")) left = parse_logical(std::move(left), false, &Parser::parse_and);
    return left;
  }

  ExpressionPtr parse_and() {
    ExpressionPtr left = parse_not();
    while (at_name("and")) left = parse_logical(std::move(left), true, &Parser::parse_not);
    return left;
  }

  ExpressionPtr parse_logical(ExpressionPtr left, bool is_and, ExpressionPtr (Parser::*operand)()) {
    const Position position = here();
    ++next_;
    ExpressionPtr right = (this->*operand)();
    const int inner = std::max(depth(left), depth(right));
    return node(position, Logical{is_and, std::move(left), std::move(right)}, inner);
  }

  ExpressionPtr parse_not() {
    if (!at_name("not")) return parse_comparison();
    const Nesting nesting(*this);
    const Position position = here();
    ++next_;
    ExpressionPtr operand = parse_not();
    const int inner = depth(operand);
    return node(position, Unary{UnaryOperator::logical_not, std::move(operand)}, inner);
  }

  std::optional<Relation> accept_relation() {
    for (const RelationSymbol& entry : kRelations)
      if (accept_symbol(entry.symbol)) return entry.relation;
    if (accept_name("in")) return Relation::in;
    if (at_name("not") && token_after().kind == TokenKind::name && token_after().text == "in") {
      next_ += 2;
      return Relation::not_in;
    }
    return std::nullopt;
  }

  ExpressionPtr parse_comparison() {
    const Position position = here();
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

  ExpressionPtr parse_arithmetic(std::span<const ArithmeticSymbol> symbols, ExpressionPtr (Parser::*operand)()) {
    ExpressionPtr left = (this->*operand)();
    while (token().kind == TokenKind::symbol) {
      const auto found = std::find_if(symbols.begin(), symbols.end(),
                                      [&](const ArithmeticSymbol& entry) { return entry.symbol == token().text; });
      if (found == symbols.end()) break;
      const Position position = here();
      ++next_;
      ExpressionPtr right = (this->*operand)();
      const int inner = std::max(depth(left), depth(right));
      left = node(position, Binary{found->operation, std::move(left), std::move(right)}, inner);
    }
    return left;
  }

  ExpressionPtr parse_sum() { return parse_arithmetic(kSums, &Parser::parse_concatenation); }
  ExpressionPtr parse_product() { return parse_arithmetic(kProducts, &Parser::parse_power); }
  ExpressionPtr parse_power() { return parse_arithmetic(kPowers, &Parser::parse_operand); }

  ExpressionPtr parse_concatenation() {
    const Position position = here();
    std::vector<ExpressionPtr> parts;
    do parts.push_back(parse_product());
    while (accept_symbol("~"));
    if (parts.size() == 1) return std::move(parts[0]);
    const int inner = depth(parts);
    return node(position, Concatenation{std::move(parts)}, inner);
  }

  ExpressionPtr parse_operand() { return parse_filters(parse_sign()); }

  // Signs bind tighter than powers and filters: -2 ** 2 is 4 in jinja2.
  ExpressionPtr parse_sign() {
    if (!at_symbol("-") && !at_symbol("+")) return parse_postfix(parse_primary());
    const Nesting nesting(*this);
    const Position position = here();
    const UnaryOperator operation = at_symbol("-") ? UnaryOperator::negate : UnaryOperator::plus;
    ++next_;
    ExpressionPtr operand = parse_sign();
    const int inner = depth(operand);
    return node(position, Unary{operation, std::move(operand)}, inner);
  }

  ExpressionPtr parse_postfix(ExpressionPtr value) {
    while (true) {
      if (at_symbol(".")) {
        value = parse_attribute(std::move(value));
      } else if (at_symbol("[")) {
        value = parse_subscript(std::move(value));
      } else if (at_symbol("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr parse_filters(ExpressionPtr value) {
    while (true) {
      if (accept_symbol("|")) {
        value = parse_filter(std::move(value));
      } else if (at_name("is")) {
        value = parse_test(std::move(value));
      } else if (at_symbol("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr parse_attribute(ExpressionPtr object) {
    const Position position = here();
    ++next_;
    const int inner = depth(object);
    if (token().kind == TokenKind::integer) {
      ExpressionPtr index = parse_primary();
      return node(position, Subscript{std::move(object), std::move(index)}, inner);
    }
    return node(position, Attribute{std::move(object), take_name()}, inner);
  }

  ExpressionPtr parse_subscript(ExpressionPtr object) {
    const Position position = here();
    ++next_;
    ExpressionPtr begin = at_symbol(":") ? nullptr : parse_expression();
    if (at_symbol(",")) fail("subscripts with several indices are not supported");
    if (accept_symbol("]")) {
      const int inner = std::max(depth(object), depth(begin));
      return node(position, Subscript{std::move(object), std::move(begin)}, inner);
    }
    expect_symbol(":");
    ExpressionPtr end = at_symbol(":") || at_symbol("]") ? nullptr : parse_expression();
    ExpressionPtr step;
    if (accept_symbol(":") && !at_symbol("]")) step = parse_expression();
    expect_symbol("]");
    const int inner = std::max({depth(object), depth(begin), depth(end), depth(step)});
    return node(position, Slice{std::move(object), std::move(begin), std::move(end), std::move(step)}, inner);
  }

  Arguments parse_arguments() {
    Arguments arguments;
    expect_symbol("(");
    while (!at_symbol(")")) {
      if (at_symbol("*") || at_symbol("**")) fail("arguments with '*' are not supported");
      const bool named =
          token().kind == TokenKind::name && token_after().kind == TokenKind::symbol && token_after().text == "=";
      if (named) {
        std::string name = take_name();
        ++next_;
        for (const auto& other : arguments.named)
          if (other.first == name) fail("argument '{}' is given twice", name);
        arguments.named.emplace_back(std::move(name), parse_expression());
      } else {
        if (!arguments.named.empty()) fail("an argument without name follows one with a name");
        arguments.positional.push_back(parse_expression());
      }
      if (!at_symbol(")")) expect_symbol(",");
    }
    expect_symbol(")");
    return arguments;
  }

  ExpressionPtr parse_call(ExpressionPtr callee) {
    const Position position = here();
    Arguments arguments = parse_arguments();
    const int inner = std::max(depth(callee), depth(arguments));
    return node(position, Call{std::move(callee), std::move(arguments)}, inner);
  }

  std::string take_dotted_name() {
    std::string name = take_name();
    while (accept_symbol(".")) name.append(".").append(take_name());
    return name;
  }

  // After the "|". `input` is null in filter and set blocks.
  ExpressionPtr parse_filter(ExpressionPtr input) {
    const Position position = here();
    const std::string name = take_dotted_name();
    if (name == "safe" && input != nullptr && token().kind == TokenKind::output_end) {
      safe_ = input.get();
      return input;
    }
    if (name == "safe") fail_at(position, "the filter 'safe' is supported only as the last step of an output");
    const Filter filter = find_filter(name);
    if (filter == nullptr) fail_at(position, "the filter '{}' is not supported", name);
    Arguments arguments = at_symbol("(") ? parse_arguments() : Arguments{};
    const int inner = std::max(depth(input), depth(arguments));
    return node(position, Filtered{std::move(input), filter, std::move(arguments)}, inner);
  }

  bool at_test_argument() const {
    switch (token().kind) {
      case TokenKind::name: return !at_name("else") && !at_name("or") && !at_name("and");
      case TokenKind::string:
      case TokenKind::integer:
      case TokenKind::real: return true;
      default: return at_symbol("[") || at_symbol("{");
    }
  }

  ExpressionPtr parse_test(ExpressionPtr input) {
    const Position position = here();
    ++next_;
    const bool negated = accept_name("not");
    const std::string name = take_dotted_name();
    const Test test = find_test(name);
    if (test == nullptr) fail_at(position, "the test '{}' is not supported", name);
    Arguments arguments;
    if (at_symbol("(")) {
      arguments = parse_arguments();
    } else if (at_test_argument()) {
      if (at_name("is")) fail("tests with 'is' cannot be chained");
      arguments.positional.push_back(parse_postfix(parse_primary()));
    }
    const int inner = std::max(depth(input), depth(arguments));
    ExpressionPtr tested = node(position, Tested{std::move(input), test, std::move(arguments)}, inner);
    if (!negated) return tested;
    return node(position, Unary{UnaryOperator::logical_not, std::move(tested)}, inner + 1);
  }

  ExpressionPtr parse_primary() {
    const Position position = here();
    switch (token().kind) {
      case TokenKind::name: return parse_name();
      case TokenKind::string: return parse_strings();
      case TokenKind::integer:
      case TokenKind::real: return parse_number();
      default: break;
    }
    if (accept_symbol("(")) {
      const Nesting nesting(*this);
      ExpressionPtr value = parse_tuple({.parenthesized = true});
      expect_symbol(")");
      return value;
    }
    if (at_symbol("[")) return parse_list();
    if (at_symbol("{")) return parse_dict();
    fail_at(position, "expected an expression, got {}", describe());
  }

  ExpressionPtr parse_name() {
    const Position position = here();
    std::string name = take_name();
    if (name == "true" || name == "True") return node(position, Literal{Value(true)}, 0);
    if (name == "false" || name == "False") return node(position, Literal{Value(false)}, 0);
    if (name == "none" || name == "None") return node(position, Literal{Value()}, 0);
    const bool of_macro = in_macro_ && (name == "varargs" || name == "kwargs" || name == "caller");
    if (of_macro || name == "self" || name == "super") fail_at(position, "the variable '{}' is not supported", name);
    return node(position, Name{std::move(name)}, 0);
  }

  ExpressionPtr parse_strings() {
    const Position position = here();
    std::string value;
    while (token().kind == TokenKind::string) value += tokens_[next_++].text;
    return node(position, Literal{Value(Text(value, true))}, 0);
  }

  ExpressionPtr parse_number() {
    const Token& number = tokens_[next_++];
    const char* end = number.text.data() + number.text.size();
    std::int64_t integer = 0;
    double real = 0;
    const bool is_integer = number.kind == TokenKind::integer;
    const std::errc error = is_integer ? std::from_chars(number.text.data(), end, integer).ec
                                       : std::from_chars(number.text.data(), end, real).ec;
    if (error != std::errc{}) fail_at(number.position, "the number '{}' is too large to be supported", number.text);
    return node(number.position, Literal{is_integer ? Value(integer) : Value(real)}, 0);
  }

  ExpressionPtr parse_list() {
    const Position position = here();
    Sequence list;
    ++next_;
    while (!at_symbol("]")) {
      if (!list.items.empty()) expect_symbol(",");
      if (at_symbol("]")) break;
      list.items.push_back(parse_expression());
    }
    expect_symbol("]");
    const int inner = depth(list.items);
    return node(position, std::move(list), inner);
  }

  ExpressionPtr parse_dict() {
    const Position position = here();
    DictDisplay dict;
    int inner = 0;
    ++next_;
    while (!at_symbol("}")) {
      if (!dict.entries.empty()) expect_symbol(",");
      if (at_symbol("}")) break;
      ExpressionPtr key = parse_expression();
      expect_symbol(":");
      ExpressionPtr value = parse_expression();
      inner = std::max({inner, depth(key), depth(value)});
      dict.entries.emplace_back(std::move(key), std::move(value));
    }
    expect_symbol("}");
    return node(position, std::move(dict), inner);
  }

  const std::vector<Token> tokens_;
  std::size_t next_ = 0;
  int nesting_ = 0;
  int loops_ = 0;
  int scopes_ = 0;
  bool in_macro_ = false;
  const Expression* safe_ = nullptr;  // what "safe" was applied to in this output
};

}  // namespace

Block parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    input_error("chat template: expected at most {} bytes, got {}", kMaxSourceBytes, source.size());
  return Parser(tokenize(source)).parse_template();
}

}  // namespace espalier::jinja
