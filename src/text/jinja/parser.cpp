#include "text/jinja/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/expression_parser.h"
#include "text/jinja/lexer.h"
#include "text/jinja/token_stream.h"

namespace espalier::jinja {
namespace {

constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;

// Counts the blocks around us that have variables of their own.
class OpenScope {
 public:
  explicit OpenScope(int& scopes) : scopes_(scopes) { ++scopes_; }
  ~OpenScope() { --scopes_; }
  OpenScope(const OpenScope&) = delete;
  OpenScope& operator=(const OpenScope&) = delete;

 private:
  int& scopes_;
};

template <typename Form>
std::unique_ptr<const Statement> statement(Position position, Form form) {
  auto node = std::make_unique<Statement>();
  node->position = position;
  node->form = std::move(form);
  return node;
}

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block parse_template() { return parse_block({}); }

 private:
  using Ends = std::initializer_list<std::string_view>;

  void expect_block_end() { tokens_.expect(TokenKind::block_end, "'%}'"); }
  void expect_last_tag(std::string_view name) {
    tokens_.expect_name(name);
    expect_block_end();
  }

  // Statements up to "{% name" with one of the names, which is left for the caller to read; without names up to the
  // end of the template.
  Block parse_block(Ends ends) {
    const Nesting nesting(tokens_);
    Block body;
    while (!tokens_.at(TokenKind::end)) {
      const Position position = tokens_.here();
      if (tokens_.at(TokenKind::data)) {
        body.push_back(statement(position, Data{Text(tokens_.take().text, true)}));
      } else if (tokens_.at(TokenKind::output_begin)) {
        tokens_.take();
        body.push_back(statement(position, parse_output()));
      } else {
        tokens_.expect(TokenKind::block_begin, "a statement");
        if (std::any_of(ends.begin(), ends.end(), [this](std::string_view end) { return tokens_.at_name(end); }))
          return body;
        parse_statement(position, body);
      }
    }
    if (ends.size() > 0) tokens_.fail("expected '{{% {} %}}', got the end of the template", *(ends.end() - 1));
    return body;
  }

  // What follows the name and the arguments of a statement with a scope of its own, up to "{% end %}".
  Block parse_body(std::string_view end) {
    expect_block_end();
    const OpenScope scope(scopes_);
    Block body = parse_block({end});
    expect_last_tag(end);
    return body;
  }

  Output parse_output() {
    ExpressionPtr value = expressions_.parse_output();
    tokens_.expect(TokenKind::output_end, "'}}'");
    return Output{std::move(value)};
  }

  void parse_statement(Position position, Block& body) {
    if (!tokens_.at(TokenKind::name)) tokens_.fail("expected the name of a statement, got {}", tokens_.describe());
    const std::string name = tokens_.token().text;
    if (name == "if") return body.push_back(statement(position, parse_if()));
    if (name == "for") return body.push_back(statement(position, parse_for()));
    if (name == "set") return parse_set(position, body);
    if (name == "macro") return body.push_back(statement(position, parse_macro()));
    if (name == "filter") return body.push_back(statement(position, parse_filter_block()));
    if (name == "with") return body.push_back(statement(position, parse_with()));
    if (name == "generation") return body.push_back(statement(position, parse_generation()));
    if (name == "break" || name == "continue") {
      if (loops_ == 0) tokens_.fail("'{}' outside a loop", name);
      tokens_.take();
      expect_block_end();
      if (name == "break") return body.push_back(statement(position, Break{}));
      return body.push_back(statement(position, Continue{}));
    }
    tokens_.fail("the statement '{}' is not supported", name);
  }

  If parse_if() {
    If node;
    tokens_.take();
    while (true) {
      ExpressionPtr test = expressions_.parse_tuple({.conditional = false});
      expect_block_end();
      Block body = parse_block({"elif", "else", "endif"});
      node.branches.emplace_back(std::move(test), std::move(body));
      if (tokens_.accept_name("elif")) continue;
      if (tokens_.accept_name("else")) {
        expect_block_end();
        node.otherwise = parse_block({"endif"});
      }
      expect_last_tag("endif");
      return node;
    }
  }

  For parse_for() {
    For node;
    tokens_.take();
    node.target = parse_target({.stops_at_in = true});
    tokens_.expect_name("in");
    node.iterable = expressions_.parse_tuple({.conditional = false});
    if (tokens_.accept_name("if")) node.condition = expressions_.parse_expression();
    if (tokens_.at_name("recursive")) tokens_.fail("recursive loops are not supported");
    expect_block_end();
    const OpenScope scope(scopes_);
    ++loops_;
    node.body = parse_block({"else", "endfor"});
    --loops_;
    if (tokens_.accept_name("else")) {
      expect_block_end();
      node.otherwise = parse_block({"endfor"});
    }
    expect_last_tag("endfor");
    return node;
  }

  void parse_set(Position position, Block& body) {
    tokens_.take();
    Target target = parse_target({.namespaces = true});
    if (tokens_.accept_symbol("=")) {
      ExpressionPtr value = expressions_.parse_tuple();
      expect_block_end();
      return body.push_back(statement(position, Set{std::move(target), std::move(value)}));
    }
    SetBlock node;
    node.target = std::move(target);
    while (tokens_.accept_symbol("|")) node.filters.push_back(expressions_.parse_filter(nullptr));
    node.body = parse_body("endset");
    body.push_back(statement(position, std::move(node)));
  }

  FilterBlock parse_filter_block() {
    FilterBlock node;
    tokens_.take();
    do node.filters.push_back(expressions_.parse_filter(nullptr));
    while (tokens_.accept_symbol("|"));
    node.body = parse_body("endfilter");
    return node;
  }

  With parse_with() {
    With node;
    tokens_.take();
    while (!tokens_.at(TokenKind::block_end)) {
      if (!node.variables.empty()) tokens_.expect_symbol(",");
      Target target = parse_target({});
      tokens_.expect_symbol("=");
      node.variables.emplace_back(std::move(target), expressions_.parse_expression());
    }
    node.body = parse_body("endwith");
    return node;
  }

  // transformers marks the assistant's words with this one; the text is that of the body.
  With parse_generation() {
    With node;
    tokens_.take();
    const int loops = std::exchange(loops_, 0);
    node.body = parse_body("endgeneration");
    loops_ = loops;
    return node;
  }

  // A macro sees the variables of the place where it stands. At the top those live as long as the rendering.
  MacroStatement parse_macro() {
    if (scopes_ > 0) tokens_.fail("a macro inside another block than 'if' is not supported");
    MacroStatement node;
    tokens_.take();
    node.name = tokens_.take_name();
    parse_parameters(node);
    expressions_.set_in_macro(true);
    node.body = parse_body("endmacro");
    expressions_.set_in_macro(false);
    return node;
  }

  void parse_parameters(MacroStatement& node) {
    tokens_.expect_symbol("(");
    while (!tokens_.at_symbol(")")) {
      if (!node.parameters.empty()) tokens_.expect_symbol(",");
      std::string name = tokens_.take_name();
      ExpressionPtr fallback = tokens_.accept_symbol("=") ? expressions_.parse_expression() : nullptr;
      if (!fallback && !node.parameters.empty() && node.parameters.back().second)
        tokens_.fail("parameter '{}' without default follows one with a default", name);
      for (const auto& parameter : node.parameters)
        if (parameter.first == name) tokens_.fail("parameter '{}' is named twice", name);
      node.parameters.emplace_back(std::move(name), std::move(fallback));
    }
    tokens_.expect_symbol(")");
  }

  struct TargetOptions {
    bool namespaces = false;
    bool stops_at_in = false;
  };

  Target parse_target(TargetOptions options) {
    Target target = parse_single_target(options);
    if (!tokens_.at_symbol(",")) return target;
    Target tuple;
    tuple.position = target.position;
    tuple.is_tuple = true;
    tuple.parts.push_back(std::move(target));
    while (tokens_.accept_symbol(",")) {
      if (tokens_.at_symbol("=") || (options.stops_at_in && tokens_.at_name("in"))) break;
      tuple.parts.push_back(parse_single_target(options));
    }
    return tuple;
  }

  Target parse_single_target(TargetOptions options) {
    const Nesting nesting(tokens_);
    Target target;
    target.position = tokens_.here();
    if (tokens_.accept_symbol("(")) {
      target = parse_target({});
      tokens_.expect_symbol(")");
      return target;
    }
    target.name = tokens_.take_name();
    constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none", "True", "False", "None"};
    if (std::find(kConstants.begin(), kConstants.end(), target.name) != kConstants.end())
      fail_at(target.position, "cannot assign to '{}'", target.name);
    if (options.namespaces && tokens_.accept_symbol(".")) target.attribute = tokens_.take_name();
    return target;
  }

  TokenStream tokens_;
  ExpressionParser expressions_{tokens_};
  int loops_ = 0;
  int scopes_ = 0;
};

}  // namespace

Block parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    input_error("chat template: expected at most {} bytes, got {}", kMaxSourceBytes, source.size());
  return StatementParser(tokenize(source)).parse_template();
}

}  // namespace espalier::jinja
