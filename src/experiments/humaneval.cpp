#include "experiments/humaneval.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/json_field.h"
#include "base/json_text.h"
#include "base/mapped_file.h"

namespace espalier {
namespace {

constexpr std::string_view kFence = "```";

// What both programs have: messages are lines of JSON, in which a container carries the name of its type.
constexpr std::string_view kChannelCode = R"py(
def open_channel():
    import collections.abc, decimal, fractions, json, os, sys
    CHANNEL, LONGEST = 3, 1 << 24
    received = bytearray()
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)

    def pack(value):
        if value is None or isinstance(value, bool):
            return value
        for kind, plain in ((int, int.__int__), (float, float.__float__), (str, str.__str__)):
            if isinstance(value, kind):
                return plain(value)
        for kind in (list, tuple, frozenset):
            if isinstance(value, kind):
                return {kind.__name__: [pack(item) for item in value]}
        if isinstance(value, dict):
            return {"dict": [[pack(key), pack(item)] for key, item in value.items()]}
        if isinstance(value, collections.abc.Set):
            return {"set": [pack(item) for item in value]}
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": list(value)}
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, (fractions.Fraction, decimal.Decimal)):
            return {type(value).__name__: str(value)}
        raise TypeError("expected a plain value, got " + type(value).__name__)

    def unpack(value):
        if not isinstance(value, dict):
            return value
        (name, items), = value.items()
        if name == "dict":
            return {unpack(key): unpack(item) for key, item in items}
        if name in ("list", "tuple", "set", "frozenset"):
            kind = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[name]
            return kind(unpack(item) for item in items)
        if name == "complex":
            return complex(*items)
        return {"bytes": bytes, "Fraction": fractions.Fraction, "Decimal": decimal.Decimal}[name](items)

    def send(message):
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(CHANNEL, data):]

    def receive():
        while b"\n" not in received:
            part = os.read(CHANNEL, 1 << 16)
            if not part or len(received) > LONGEST:
                raise EOFError("the other program has gone, or says too much")
            received.extend(part)
        line, _, rest = bytes(received).partition(b"\n")
        received[:] = rest
        return json.loads(line)

    return pack, unpack, send, receive
)py";

constexpr std::string_view kJudge = R"py(
def judge():
    import builtins
    pack, unpack, send, receive = open_channel()

    def candidate(*arguments, **named):
        send([pack(arguments), pack(named)])
        answer = receive()
        if "raised" not in answer:
            return unpack(answer["returned"])
        name, words = answer["raised"]
        kind = getattr(builtins, name, None)
        known = isinstance(kind, type) and issubclass(kind, Exception)
        raise (kind if known else RuntimeError)(words)

    names = {"__name__": "judge"}
    try:
        exec(PROMPT, names)
    except SyntaxError:
        exec(PROMPT + "    pass\n", names)
    names[ENTRY_POINT] = candidate
    exec(TEST, names)
    receive()
    names["check"](candidate)

judge()
)py";

constexpr std::string_view kCandidate = R"py(
def serve():
    import sys, types
    pack, unpack, send, receive = open_channel()
    ours, module = sys.modules["__main__"], types.ModuleType("__main__")
    sys.modules["__main__"] = module
    exec(compile(ANSWER, "answer.py", "exec"), module.__dict__)
    function = module.__dict__[ENTRY_POINT]
    send("ready")
    while True:
        arguments, named = receive()
        try:
            reply = {"returned": pack(function(*unpack(arguments), **unpack(named)))}
        except Exception as error:
            reply = {"raised": [type(error).__name__, str(error)]}
        send(reply)

serve()
)py";

// JSON's strings are Python's too, as long as nothing but control characters is escaped.
std::string assignment(std::string_view name, const std::string& text) {
  return fmt::format("{} = {}\n", name,
                     nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view without_indent(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : line.substr(first);
}

bool defines(std::string_view code, std::string_view function) {
  const std::string definition = fmt::format("def {}(", function);
  while (!code.empty())
    if (next_line(code).starts_with(definition)) return true;
  return false;
}

std::vector<std::string> fenced_blocks(std::string_view answer) {
  std::vector<std::string> blocks;
  bool inside = false;
  while (!answer.empty()) {
    const std::string_view line = next_line(answer);
    if (without_indent(line).starts_with(kFence)) {
      inside = !inside;
      if (inside) blocks.emplace_back();
    } else if (inside) {
      blocks.back().append(line).push_back('\n');
    }
  }
  return blocks;
}

// Where its first line is not indented, all of it is.
std::string as_body(std::string_view code) {
  std::string_view rest = code;
  while (!rest.empty()) {
    const std::string_view line = next_line(rest);
    if (without_indent(line).empty()) continue;
    if (without_indent(line).size() < line.size()) return std::string(code);
    break;
  }
  std::string body;
  while (!code.empty()) body.append("    ").append(next_line(code)).push_back('\n');
  return body;
}

}  // namespace

std::vector<HumanEvalProblem> read_humaneval(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  std::vector<HumanEvalProblem> problems;
  std::string_view rest = text;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = next_line(rest);
    if (without_indent(line).empty()) continue;
    const std::string where = fmt::format("{}:{}", path.string(), number);
    const nlohmann::json object = parse_json(line, where);
    const JsonField field(object, where);
    if (!field.find("test")) continue;
    problems.push_back({.task_id = field.at("task_id").string(),
                        .prompt = field.at("prompt").string(),
                        .entry_point = field.at("entry_point").string(),
                        .test = field.at("test").string()});
  }
  return problems;
}

std::string code_of_answer(std::string_view answer, std::string_view entry_point) {
  const std::vector<std::string> blocks = fenced_blocks(answer);
  for (const std::string& block : blocks)
    if (defines(block, entry_point)) return block;
  return blocks.empty() ? std::string(answer) : blocks.front();
}

Trial trial_of(const HumanEvalProblem& problem, std::string_view answer) {
  const std::string code = code_of_answer(answer, problem.entry_point);
  const std::string solution = defines(code, problem.entry_point) ? "\n" + code : as_body(code);
  const std::string entry_point = assignment("ENTRY_POINT", problem.entry_point);
  return {.judge = entry_point + assignment("PROMPT", problem.prompt) + assignment("TEST", problem.test) +
                   std::string(kChannelCode) + std::string(kJudge),
          .candidate = entry_point + assignment("ANSWER", problem.prompt + solution) + std::string(kChannelCode) +
                       std::string(kCandidate)};
}

}  // namespace espalier
