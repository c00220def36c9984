// The parsed form of a template: statements that write text and expressions that give values. Built by the parser,
// never changed afterwards. Nesting is bounded by the parser, so recursion over these trees is safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct Sequence {
  std::vector<ExpressionPtr> items;
  ListKind kind = ListKind::list;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
enum class UnaryOperator { negate, plus, logical_not };
struct Unary {
  UnaryOperator operation;
  ExpressionPtr operand;
};
struct Binary {
  Arithmetic operation;
  ExpressionPtr left, right;
};
struct Logical {
  bool is_and;
  ExpressionPtr left, right;
};
enum class Relation { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
// a < b < c: each operand is evaluated once, and none after the first relation that does not hold.
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<Relation, ExpressionPtr>> rest;
};
struct Concatenation {  // a ~ b ~ c
  std::vector<ExpressionPtr> parts;
};
struct Conditional {
  ExpressionPtr test, then, otherwise;  // otherwise may be null
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object, index;
};
struct Slice {
  ExpressionPtr object, begin, end, step;  // the last three may be null
};
struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};
struct Call {
  ExpressionPtr callee;
  Arguments arguments;
};
struct Filtered {
  ExpressionPtr input;  // null in a filter or set block, where the body is the input
  Filter filter;
  Arguments arguments;
};
struct Tested {
  ExpressionPtr input;
  Test test;
  Arguments arguments;
};

struct Expression {
  Position position;
  int depth = 1;  // of nesting
  std::variant<Literal, Name, Sequence, DictDisplay, Unary, Binary, Logical, Comparison, Concatenation, Conditional,
               Attribute, Subscript, Slice, Call, Filtered, Tested>
      form;
};

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

// What a value is assigned to: a name, an attribute of a namespace, or several targets that share the elements.
struct Target {
  Position position;
  std::string name;
  std::optional<std::string> attribute;
  std::vector<Target> parts;  // not empty: a tuple, and the name is unused
  bool is_tuple = false;
};

struct Data {
  Text text;
};
struct Output {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable, condition;  // condition may be null
  Block body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  std::vector<ExpressionPtr> filters;  // Filtered, applied in order
  Block body;
};
struct FilterBlock {
  std::vector<ExpressionPtr> filters;
  Block body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Block body;
};
struct MacroStatement {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // the default may be null
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  Position position;
  std::variant<Data, Output, If, For, Set, SetBlock, FilterBlock, With, MacroStatement, Break, Continue> form;
};

}  // namespace espalier::jinja
