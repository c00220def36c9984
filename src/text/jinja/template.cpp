#include "text/jinja/template.h"

#include <algorithm>
#include <deque>

#include "text/jinja/methods.h"
#include "text/jinja/parser.h"

namespace espalier::jinja {
namespace {

// jinja2's sandbox has the same bound.
constexpr std::int64_t kMaxRange = 100'000;

struct Scope {
  const Scope* parent = nullptr;
  std::vector<std::pair<std::string, Value>> variables;
};

const Value* find_variable(const std::vector<std::pair<std::string, Value>>& variables, std::string_view name) {
  for (const auto& variable : variables)
    if (variable.first == name) return &variable.second;
  return nullptr;
}

void set_variable(std::vector<std::pair<std::string, Value>>& variables, std::string_view name, Value value) {
  for (auto& variable : variables) {
    if (variable.first != name) continue;
    variable.second = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

enum class Flow { onward, break_loop, continue_loop };

// One rendering: walks the tree, owns what the template creates.
class Rendering {
 public:
  Rendering(const Context& context, Guard& guard) : context_(context), guard_(guard) {}

  Text run(const Block& body) {
    TextBuilder output(guard_);
    execute(body, root_, output);
    return output.take();
  }

 private:
  // --- statements

  Flow execute(const Block& block, Scope& scope, TextBuilder& output) {
    const Level level(guard_);
    for (const auto& statement : block) {
      guard_.at(statement->position);
      guard_.spend_steps(1);
      const Flow flow = std::visit([&](const auto& form) { return perform(form, scope, output); }, statement->form);
      if (flow != Flow::onward) return flow;
    }
    return Flow::onward;
  }

  Flow perform(const Data& data, Scope&, TextBuilder& output) {
    output.append(data.text);
    return Flow::onward;
  }

  Flow perform(const Output& statement, Scope& scope, TextBuilder& output) {
    const Value value = evaluate(*statement.value, scope);
    guard_.at(statement.value->position);
    output.append(to_text(guard_, value));
    return Flow::onward;
  }

  Flow perform(const If& statement, Scope& scope, TextBuilder& output) {
    for (const auto& [test, body] : statement.branches)
      if (truth(evaluate(*test, scope))) return execute(body, scope, output);
    return execute(statement.otherwise, scope, output);
  }

  Flow perform(const For& statement, Scope& scope, TextBuilder& output) {
    const Value iterable = evaluate(*statement.iterable, scope);
    guard_.at(statement.iterable->position);
    std::vector<Value> items = iterate(guard_, iterable);
    if (statement.condition) items = keep_matching(statement, std::move(items), scope);
    if (items.empty()) {
      Scope inner{.parent = &scope, .variables = {}};
      return execute(statement.otherwise, inner, output);
    }
    if (iterable.iterator()) iterable.iterator()->busy = true;
    const Flow flow = run_loop(statement, std::move(items), scope, output);
    if (iterable.iterator() && flow == Flow::onward) iterable.iterator()->busy = false;
    return Flow::onward;
  }

  // jinja2 asks the condition just before each round; asking for all of them first gives the same answers unless the
  // body can change them, which only namespaces allow.
  std::vector<Value> keep_matching(const For& statement, std::vector<Value> items, Scope& scope) {
    std::vector<Value> kept;
    reads_namespace_ = false;
    for (Value& item : items) {
      Scope inner{.parent = &scope, .variables = {}};
      assign(statement.target, item, inner);
      if (truth(evaluate(*statement.condition, inner))) kept.push_back(std::move(item));
    }
    guard_.at(statement.condition->position);
    if (reads_namespace_) guard_.fail("a loop condition that reads a namespace is not supported");
    return kept;
  }

  // break_loop when the loop was left early.
  Flow run_loop(const For& statement, std::vector<Value> items, Scope& scope, TextBuilder& output) {
    const Value list = make_list(guard_, std::move(items));
    const auto shared = *list.get<std::shared_ptr<const List>>();
    for (std::size_t i = 0; i < shared->items.size(); ++i) {
      guard_.at(statement.target.position);
      guard_.spend_steps(1);
      Scope inner{.parent = &scope, .variables = {}};
      inner.variables.emplace_back("loop", make_loop(guard_, Loop{.items = shared, .index = i}));
      assign(statement.target, shared->items[i], inner);
      if (execute(statement.body, inner, output) == Flow::break_loop) return Flow::break_loop;
    }
    return Flow::onward;
  }

  Flow perform(const Set& statement, Scope& scope, TextBuilder&) {
    const Value value = evaluate(*statement.value, scope);
    assign(statement.target, value, scope);
    return Flow::onward;
  }

  Flow perform(const SetBlock& statement, Scope& scope, TextBuilder&) {
    TextBuilder captured(guard_);
    const Flow flow = execute_captured(statement.body, statement.filters, scope, captured);
    if (flow == Flow::onward) assign(statement.target, Value(captured.take()), scope);
    return flow;
  }

  Flow perform(const FilterBlock& statement, Scope& scope, TextBuilder& output) {
    return execute_captured(statement.body, statement.filters, scope, output);
  }

  // The body in its own scope, its text passed through the filters.
  Flow execute_captured(const Block& body, const std::vector<ExpressionPtr>& filters, Scope& scope,
                        TextBuilder& output) {
    Scope inner{.parent = &scope, .variables = {}};
    TextBuilder captured(guard_);
    const Flow flow = execute(body, inner, captured);
    if (flow != Flow::onward) return flow;
    Value value(captured.take());
    for (const ExpressionPtr& filter : filters)
      value = apply_filter(std::get<Filtered>(filter->form), filter->position, value, scope);
    output.append(to_text(guard_, value));
    return Flow::onward;
  }

  Flow perform(const With& statement, Scope& scope, TextBuilder& output) {
    Scope inner{.parent = &scope, .variables = {}};
    for (const auto& [target, value] : statement.variables) assign(target, evaluate(*value, scope), inner);
    return execute(statement.body, inner, output);
  }

  Flow perform(const MacroStatement& statement, Scope& scope, TextBuilder&) {
    set_variable(scope.variables, statement.name, Value(Value::Form(Macro{&statement})));
    return Flow::onward;
  }

  Flow perform(const Break&, Scope&, TextBuilder&) { return Flow::break_loop; }
  Flow perform(const Continue&, Scope&, TextBuilder&) { return Flow::continue_loop; }

  void assign(const Target& target, const Value& value, Scope& scope) {
    guard_.at(target.position);
    if (target.is_tuple) return assign_parts(target, value, scope);
    if (!target.attribute) return set_variable(scope.variables, target.name, value);
    const Value object = look_up(target.name, scope);
    const auto* space = object.get<Namespace*>();
    if (space == nullptr) guard_.fail("cannot assign an attribute of a {}, only of a namespace", type_name(object));
    set_attribute(**space, *target.attribute, value);
  }

  void assign_parts(const Target& target, const Value& value, Scope& scope) {
    const std::vector<Value> items = iterate(guard_, value);
    if (items.size() != target.parts.size())
      guard_.fail("expected {} values to unpack, got {}", target.parts.size(), items.size());
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
  }

  void set_attribute(Namespace& space, std::string_view name, Value value) {
    // As in transformers: such names could reach Python's internals there.
    if (name.starts_with('_')) guard_.fail("a namespace cannot have an attribute '{}'", name);
    guard_.spend_steps(space.attributes.size() / 8 + 1);
    set_variable(space.attributes, name, std::move(value));
  }

  // --- names

  Value look_up(const std::string& name, const Scope& scope) {
    for (const Scope* level = &scope; level != nullptr; level = level->parent)
      if (const Value* value = find_variable(level->variables, name)) return *value;
    if (const Value* value = find_variable(context_.variables, name)) return *value;
    return look_up_global(name);
  }

  Value look_up_global(const std::string& name) const {
    if (name == "range") return Value(Value::Form(Function::range));
    if (name == "dict") return Value(Value::Form(Function::dict));
    if (name == "namespace") return Value(Value::Form(Function::namespace_));
    if (name == "raise_exception") return Value(Value::Form(Function::raise_exception));
    if (name == "strftime_now" && context_.now) return Value(Value::Form(Function::strftime_now));
    if (name == "cycler" || name == "joiner" || name == "lipsum") guard_.fail("'{}' is not supported", name);
    return Value::undefined(fmt::format("'{}' is undefined", name));
  }

  // --- expressions

  Value evaluate(const Expression& expression, const Scope& scope) {
    const Level level(guard_);
    guard_.at(expression.position);
    guard_.spend_steps(1);
    return std::visit([&](const auto& form) { return value_of(form, expression.position, scope); }, expression.form);
  }

  Value value_of(const Literal& literal, Position, const Scope&) { return literal.value; }
  Value value_of(const Name& name, Position, const Scope& scope) { return look_up(name.name, scope); }

  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions, const Scope& scope) {
    std::vector<Value> values;
    values.reserve(expressions.size());
    for (const ExpressionPtr& expression : expressions) values.push_back(evaluate(*expression, scope));
    return values;
  }

  Value value_of(const Sequence& sequence, Position position, const Scope& scope) {
    std::vector<Value> items = evaluate_all(sequence.items, scope);
    guard_.at(position);
    return make_list(guard_, std::move(items), sequence.kind);
  }

  Value value_of(const DictDisplay& dict, Position position, const Scope& scope) {
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [key, value] : dict.entries) {
      Value evaluated = evaluate(*key, scope);
      entries.emplace_back(std::move(evaluated), evaluate(*value, scope));
    }
    guard_.at(position);
    return make_dict(guard_, std::move(entries));
  }

  Value value_of(const Unary& unary, Position position, const Scope& scope) {
    const Value operand = evaluate(*unary.operand, scope);
    guard_.at(position);
    switch (unary.operation) {
      case UnaryOperator::negate: return negate(guard_, operand);
      case UnaryOperator::plus: return unary_plus(guard_, operand);
      case UnaryOperator::logical_not: break;
    }
    return !truth(operand);
  }

  Value value_of(const Binary& binary, Position position, const Scope& scope) {
    const Value left = evaluate(*binary.left, scope);
    const Value right = evaluate(*binary.right, scope);
    guard_.at(position);
    return arithmetic(guard_, binary.operation, left, right);
  }

  Value value_of(const Logical& logical, Position, const Scope& scope) {
    const Value left = evaluate(*logical.left, scope);
    return truth(left) == logical.is_and ? evaluate(*logical.right, scope) : left;
  }

  Value value_of(const Comparison& comparison, Position position, const Scope& scope) {
    Value left = evaluate(*comparison.first, scope);
    for (const auto& [relation, operand] : comparison.rest) {
      Value right = evaluate(*operand, scope);
      guard_.at(position);
      if (!holds(relation, left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  bool holds(Relation relation, const Value& a, const Value& b) {
    switch (relation) {
      case Relation::equal: return equal(guard_, a, b);
      case Relation::not_equal: return !equal(guard_, a, b);
      case Relation::less: return compare(guard_, a, b) < 0;
      case Relation::less_equal: return compare(guard_, a, b) <= 0;
      case Relation::greater: return compare(guard_, a, b) > 0;
      case Relation::greater_equal: return compare(guard_, a, b) >= 0;
      case Relation::in: return contains(guard_, b, a);
      case Relation::not_in: break;
    }
    return !contains(guard_, b, a);
  }

  Value value_of(const Concatenation& concatenation, Position position, const Scope& scope) {
    const std::vector<Value> parts = evaluate_all(concatenation.parts, scope);
    guard_.at(position);
    TextBuilder builder(guard_);
    for (const Value& part : parts) builder.append(to_text(guard_, part));
    return Value(builder.take());
  }

  Value value_of(const Conditional& conditional, Position, const Scope& scope) {
    if (truth(evaluate(*conditional.test, scope))) return evaluate(*conditional.then, scope);
    if (conditional.otherwise) return evaluate(*conditional.otherwise, scope);
    return Value::undefined("the condition is false and there is no 'else'");
  }

  Value value_of(const Attribute& attribute, Position position, const Scope& scope) {
    const Value object = evaluate(*attribute.object, scope);
    guard_.at(position);
    if (object.get<Namespace*>()) reads_namespace_ = true;
    return get_attribute(guard_, object, attribute.name);
  }

  Value value_of(const Subscript& subscript, Position position, const Scope& scope) {
    const Value object = evaluate(*subscript.object, scope);
    const Value index = evaluate(*subscript.index, scope);
    guard_.at(position);
    if (object.get<Namespace*>()) reads_namespace_ = true;
    return get_item(guard_, object, index);
  }

  Value value_of(const Slice& slice, Position position, const Scope& scope) {
    const auto bound = [&](const ExpressionPtr& part) { return part ? evaluate(*part, scope) : Value(); };
    const Value object = evaluate(*slice.object, scope);
    const Value begin = bound(slice.begin);
    const Value end = bound(slice.end);
    const Value step = bound(slice.step);
    guard_.at(position);
    return get_slice(guard_, object, begin, end, step);
  }

  CallArguments evaluate_arguments(const Arguments& arguments, const Scope& scope) {
    CallArguments values;
    values.positional = evaluate_all(arguments.positional, scope);
    for (const auto& [name, value] : arguments.named) values.named.emplace_back(name, evaluate(*value, scope));
    return values;
  }

  Value value_of(const Filtered& filtered, Position position, const Scope& scope) {
    return apply_filter(filtered, position, evaluate(*filtered.input, scope), scope);
  }

  Value apply_filter(const Filtered& filtered, Position position, const Value& input, const Scope& scope) {
    const CallArguments arguments = evaluate_arguments(filtered.arguments, scope);
    guard_.at(position);
    return filtered.filter(guard_, input, arguments);
  }

  Value value_of(const Tested& tested, Position position, const Scope& scope) {
    const Value input = evaluate(*tested.input, scope);
    const CallArguments arguments = evaluate_arguments(tested.arguments, scope);
    guard_.at(position);
    return tested.test(guard_, input, arguments);
  }

  // --- calls

  Value value_of(const Call& call, Position position, const Scope& scope) {
    const Value callee = evaluate(*call.callee, scope);
    const CallArguments arguments = evaluate_arguments(call.arguments, scope);
    guard_.at(position);
    if (const Method* method = callee.method()) return call_method(guard_, *method, arguments);
    if (const Function* function = callee.get<Function>()) return call_function(*function, arguments);
    if (const Macro* macro = callee.get<Macro>()) return call_macro(*macro->statement, arguments);
    if (const auto* undefined = callee.get<Undefined>()) guard_.fail("{}", *undefined->explanation);
    guard_.fail("a {} cannot be called", type_name(callee));
  }

  Value call_function(Function function, const CallArguments& arguments) {
    switch (function) {
      case Function::range: return make_range(arguments);
      case Function::dict: return call_dict(arguments);
      case Function::namespace_: return make_namespace(arguments);
      case Function::raise_exception: raise(arguments);
      case Function::strftime_now: break;
    }
    const Bound bound = bind(guard_, "strftime_now", arguments, {"format"}, 1);
    const Text& format = require_text(guard_, "strftime_now", *bound[0]);
    const bool trusted = std::ranges::all_of(format.pieces(), &TextPiece::allow_special);
    return make_text(guard_, Text(format_date(guard_, *context_.now, format.bytes()), trusted));
  }

  [[noreturn]] void raise(const CallArguments& arguments) {
    const Bound bound = bind(guard_, "raise_exception", arguments, {"message"}, 1);
    guard_.fail("the template refuses: {}", to_text(guard_, *bound[0]).bytes());
  }

  Value make_range(const CallArguments& arguments) {
    const Bound bound = bind_positional(guard_, "range", arguments, 1, 3);
    const auto number = [&](std::size_t i) { return require_integer(guard_, "range", *bound[i]); };
    const std::int64_t begin = bound[1] ? number(0) : 0;
    const std::int64_t end = bound[1] ? number(1) : number(0);
    const std::int64_t step = bound[2] ? number(2) : 1;
    if (step == 0) guard_.fail("range() step cannot be zero");
    std::vector<Value> items;
    for (std::int64_t value = begin; step > 0 ? value < end : value > end;) {
      if (items.size() == kMaxRange) guard_.fail("range() of more than {} numbers", kMaxRange);
      items.emplace_back(value);
      if (__builtin_add_overflow(value, step, &value)) break;
    }
    return make_list(guard_, std::move(items), ListKind::range);
  }

  std::vector<std::pair<Value, Value>> dict_entries(std::string_view callee, const CallArguments& arguments) {
    if (arguments.positional.size() > 1) guard_.fail("{}() takes at most one argument without name", callee);
    std::vector<std::pair<Value, Value>> entries;
    if (!arguments.positional.empty() && arguments.positional[0].dict()) {
      entries = arguments.positional[0].dict()->entries;
    } else if (!arguments.positional.empty()) {
      for (const Value& item : iterate(guard_, arguments.positional[0])) {
        std::vector<Value> pair = iterate(guard_, item);
        if (pair.size() != 2) guard_.fail("{}() expects pairs, got {} values", callee, pair.size());
        entries.emplace_back(std::move(pair[0]), std::move(pair[1]));
      }
    }
    for (const auto& [name, value] : arguments.named) entries.emplace_back(Value(Text(name, true)), value);
    guard_.spend_steps(entries.size());
    return entries;
  }

  Value call_dict(const CallArguments& arguments) { return make_dict(guard_, dict_entries("dict", arguments)); }

  Value make_namespace(const CallArguments& arguments) {
    guard_.spend_steps(1);
    Namespace& space = namespaces_.emplace_back();
    for (const auto& [name, value] : dict_entries("namespace", arguments))
      set_attribute(space, require_text(guard_, "namespace", name).bytes(), value);
    return Value(Value::Form(&space));
  }

  // A macro sees its parameters and what the top of the template has set by now.
  Value call_macro(const MacroStatement& macro, const CallArguments& arguments) {
    const Level level(guard_);
    if (arguments.positional.size() > macro.parameters.size())
      guard_.fail("macro '{}' takes at most {} arguments, got {}", macro.name, macro.parameters.size(),
                  arguments.positional.size());
    for (const auto& [name, value] : arguments.named) check_parameter(macro, name, arguments.positional.size());
    Scope scope{.parent = &root_, .variables = {}};
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
      const auto& [name, fallback] = macro.parameters[i];
      set_variable(scope.variables, name, argument_for(name, fallback, i, arguments, scope));
    }
    TextBuilder output(guard_);
    execute(macro.body, scope, output);
    return Value(output.take());
  }

  void check_parameter(const MacroStatement& macro, const std::string& name, std::size_t positional) {
    const auto place = std::find_if(macro.parameters.begin(), macro.parameters.end(),
                                    [&](const auto& parameter) { return parameter.first == name; });
    if (place == macro.parameters.end()) guard_.fail("macro '{}' has no parameter '{}'", macro.name, name);
    if (static_cast<std::size_t>(place - macro.parameters.begin()) < positional)
      guard_.fail("macro '{}' got '{}' twice", macro.name, name);
  }

  Value argument_for(const std::string& name, const ExpressionPtr& fallback, std::size_t place,
                     const CallArguments& arguments, const Scope& scope) {
    if (place < arguments.positional.size()) return arguments.positional[place];
    if (const Value* named = find_variable(arguments.named, name)) return *named;
    if (fallback) return evaluate(*fallback, scope);
    return Value::undefined(fmt::format("parameter '{}' was not provided", name));
  }

  const Context& context_;
  Guard& guard_;
  Scope root_;
  std::deque<Namespace> namespaces_;  // stable addresses: values point to them
  bool reads_namespace_ = false;
};

}  // namespace

Template::Template(std::string_view source) : body_(parse(source)) {}

Text Template::render(const Context& context, Guard& guard) const {
  return Rendering(context, guard).run(body_);
}

}  // namespace espalier::jinja
