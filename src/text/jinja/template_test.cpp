#include "text/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace espalier::jinja {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// The user's text is `user`, everything else comes from the template. Shown as "template[user]template".
std::string marked(std::string_view source, std::string_view user = "a B") {
  Guard guard{Limits{}};
  Context context;
  context.variables.emplace_back("user", Value(Text(user, false)));
  std::string shown;
  for (const TextPiece& piece : Template(source).render(context, guard).pieces())
    shown += piece.allow_special ? piece.text : "[" + piece.text + "]";
  return shown;
}

std::string render(std::string_view source, const Limits& limits = {}) {
  Guard guard(limits);
  std::string text;
  for (const TextPiece& piece : Template(source).render({}, guard).pieces()) text += piece.text;
  return text;
}

// The message, or "rendered ..." when there is none.
std::string error_of(std::string_view source, const Limits& limits = {}) {
  try {
    return "rendered " + render(source, limits).substr(0, 100);
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string repeated(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

TEST(JinjaProvenance, TheTemplatesOwnTextIsTrustedAndTheUsersIsNot) {
  EXPECT_EQ(marked("<s>{{ user }}</s>"), "<s>[a B]</s>");
  EXPECT_EQ(marked("{{ '<s>' + user + '</s>' }}"), "<s>[a B]</s>");
  EXPECT_EQ(marked("{{ '<s>' ~ user ~ 1 }}"), "<s>[a B]1");
}

TEST(JinjaProvenance, CutsKeepIt) {
  EXPECT_EQ(marked("{% set x = '<' + user + '>' %}{{ x[:2] }}|{{ x[2:] }}|{{ x[::-1] }}|{{ x[0] }}|{{ x[1] }}"),
            "<[a]|[ B]>|>[B a]<|<|[a]");
  EXPECT_EQ(marked("{% set x = ' ' + user + ' ' %}{{ x.strip() }}|{{ x|trim }}|{{ x.lstrip() }}|{{ x.rstrip() }}"),
            "[a B]|[a B]|[a B] | [a B]");
  EXPECT_EQ(marked("{% set x = 'x,' + user %}{{ x.split(',')[0] }}|{{ x.split(',')[-1] }}|{{ x|last }}"),
            "x|[a B]|[B]");
  EXPECT_EQ(marked("{% for c in 'x' + user %}{{ c }}.{% endfor %}"), "x.[a].[ ].[B].");
}

TEST(JinjaProvenance, ReplacedAndJoinedTextKeepsThatOfItsParts) {
  EXPECT_EQ(marked("{{ user.replace('a', '<s>') }}"), "<s>[ B]");
  EXPECT_EQ(marked("{{ '<x>'.replace('x', user) }}"), "<[a B]>");
  EXPECT_EQ(marked("{{ user.join(['<', '>']) }}|{{ '-'.join([user, 'x']) }}|{{ [user, 1]|join(', ') }}"),
            "<[a B]>|[a B]-x|[a B], 1");
  EXPECT_EQ(marked("{{ user * 2 }}|{{ user.split() | join('') }}"), "[a Ba B]|[aB]");
}

TEST(JinjaProvenance, ChangedCaseAndEscapesKeepThatOfTheCharacter) {
  EXPECT_EQ(marked("{{ ('x' + user)|upper }}|{{ ('X' + user).lower() }}|{{ (user + 'x')|title }}"),
            "X[A B]|x[a b]|[A B]x");
  EXPECT_EQ(marked("{{ ('ß' + user)|upper }}", "ß"), "SS[SS]");
  EXPECT_EQ(marked("{{ user|tojson }}|{{ [user] }}|{{ {'k': user}|tojson }}", "\"\n"),
            "\"[\\\"\\n]\"|['[\"\\n]']|{\"k\": \"[\\\"\\n]\"}");
  EXPECT_EQ(marked("{{ user|indent(1) }}", "a\nb"), "[a\n] [b]");
}

TEST(JinjaProvenance, BlocksAndMacrosKeepIt) {
  EXPECT_EQ(marked("{% set x %}<{{ user }}>{% endset %}{{ x }}"), "<[a B]>");
  EXPECT_EQ(marked("{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(user) }}{{ m('x') }}"), "<[a B]><x>");
  EXPECT_EQ(marked("{% filter upper %}x{{ user }}{% endfilter %}"), "X[A B]");
  EXPECT_EQ(marked("{% set ns = namespace(t=user) %}{% set ns.t = ns.t + '!' %}{{ ns.t }}"), "[a B]!");
}

TEST(JinjaProvenance, ADictKeyIsFoundWhoeverWroteIt) {
  EXPECT_EQ(marked("{% set d = {'a B': '<s>'} %}{{ d[user] }}{% for k in d %}{{ k }}{% endfor %}"), "<s>a B");
}

TEST(JinjaErrors, TellLineAndColumn) {
  EXPECT_THAT(error_of("one\ntwo {{ 1 + }}"), StartsWith("chat template, line 2, column 12: expected an expression"));
  EXPECT_THAT(error_of("{% if true %}\n  {% nosuch %}"),
              StartsWith("chat template, line 2, column 6: the statement 'nosuch'"));
  EXPECT_THAT(error_of("é{{ 'é' | nosuch }}"), StartsWith("chat template, line 1, column 11: the filter 'nosuch'"));
  EXPECT_THAT(error_of("\n\n{{ missing.name }}"),
              StartsWith("chat template, line 3, column 11: 'missing' is undefined"));
  EXPECT_THAT(error_of("{{ 1 +\n\n 'a' }}"), StartsWith("chat template, line 1, column 6: cannot add a int and a str"));
  EXPECT_THAT(error_of("{{ raise_exception('no\nway') }}"), HasSubstr("the template refuses: no"));
  EXPECT_THAT(error_of("{% for x in [1] %}"), HasSubstr("expected '{% endfor %}', got the end of the template"));
}

TEST(JinjaErrors, NameTheFilterOrMethodThatWasCalled) {
  for (const std::string name : {"upper", "lower", "capitalize", "title"}) {
    EXPECT_THAT(error_of("{{ 'a'|" + name + "(1) }}"), HasSubstr(": " + name + "() takes"));
    EXPECT_THAT(error_of("{{ 'a'." + name + "(1) }}"), HasSubstr(": " + name + "() takes"));
  }
  for (const std::string name : {"min", "max"})
    EXPECT_THAT(error_of("{{ [1]|" + name + "(1, 2, 3) }}"), HasSubstr(": " + name + "() takes"));
  for (const std::string name : {"strip", "lstrip", "rstrip", "split", "rsplit", "removeprefix", "removesuffix"})
    EXPECT_THAT(error_of("{{ 'a'." + name + "(1) }}"), HasSubstr(": " + name + "() expects a str"));
  for (const std::string name : {"select", "reject", "selectattr", "rejectattr"})
    EXPECT_THAT(error_of("{{ ['a']|" + name + "(1, 2)|list }}"), HasSubstr(": " + name + "() expects a str"));
  for (const std::string name : {"selectattr", "rejectattr"})
    EXPECT_THAT(error_of("{{ ['a']|" + name + "()|list }}"), HasSubstr(": " + name + " misses"));
  EXPECT_THAT(error_of("{{ 'a'.replace('a', 'b', 'c') }}"), HasSubstr(": replace() expects an int"));
}

TEST(JinjaErrors, InvalidUtf8IsRefused) {
  EXPECT_THAT(error_of("ab\xff"), HasSubstr("invalid UTF-8 at byte 2"));
}

TEST(JinjaBounds, NestingOfTheSourceIsBounded) {
  const std::pair<const char*, const char*> brackets[] = {{"(", ")"}, {"[", "]"},      {"{1:", "}"}, {"not ", ""},
                                                          {"-", ""},  {"(1 if ", ")"}, {"x[", "]"},  {"f(", ")"}};
  for (const auto& [open, close] : brackets) {
    const std::string source = "{{ " + repeated(open, 10'000) + "1" + repeated(close, 10'000) + " }}";
    EXPECT_THAT(error_of(source), HasSubstr("nested more than")) << open;
  }
  EXPECT_THAT(error_of(repeated("{% if true %}", 10'000)), HasSubstr("nested more than"));
  EXPECT_THAT(error_of(repeated("{% for x in [1] %}", 10'000)), HasSubstr("nested more than"));
  EXPECT_THAT(error_of("{% set " + repeated("(", 10'000) + "x" + repeated(")", 10'000) + " = 1 %}"),
              HasSubstr("nested more than"));
}

TEST(JinjaBounds, LongChainsAreBoundedToo) {
  for (const char* part : {" + 1", ".x", "[0]", "|list", " is defined", " if 1", " and 1", " ** 1", "()"}) {
    EXPECT_THAT(error_of("{{ 1" + repeated(part, 10'000) + " }}"),
                AllOf(StartsWith("chat template"), HasSubstr("line 1")))
        << part;
  }
  EXPECT_EQ(render("{{ 1" + repeated(" + 1", 90) + " }}"), "91");
  EXPECT_EQ(render("{{ '' " + repeated("~ 'a'", 2000) + " }}"), std::string(2000, 'a'));
}

TEST(JinjaBounds, StepsAreBounded) {
  const std::string_view loops =
      "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}{% "
      "endfor %}";
  EXPECT_THAT(error_of(loops), HasSubstr("steps"));
  EXPECT_THAT(error_of("{{ [0] * 1000000000000 }}"), HasSubstr("steps"));
  EXPECT_THAT(error_of("{{ range(0, 9223372036854775807) }}"), HasSubstr("range() of more than"));
}

TEST(JinjaBounds, TextIsBounded) {
  EXPECT_THAT(error_of("{{ 'x' * 1000000000000 }}"), HasSubstr("bytes of text"));
  EXPECT_THAT(error_of("{% set x = 'x' * 10000000 %}{{ x.replace('x', x) }}"), HasSubstr("bytes of text"));
  EXPECT_THAT(error_of("{% set x = 'x' * 100000 %}{{ x.join(x) }}"), HasSubstr("bytes of text"));
  EXPECT_THAT(
      error_of("{% set ns = namespace(x='x') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
      HasSubstr("bytes of text"));
}

TEST(JinjaBounds, ComparingAndSearchingIsChargedToo) {
  const std::string two =
      "{% set a = 'x' * 4000000 + 'a' %}{% set b = 'x' * 4000000 + 'b' %}{% for i in range(100000) %}";
  EXPECT_THAT(error_of(two + "{% if a == b or a < b %}{% endif %}{% endfor %}"), HasSubstr("bytes of text"));
  EXPECT_THAT(error_of(two + "{% if b in a %}{% endif %}{% endfor %}"), HasSubstr("bytes of text"));
  EXPECT_THAT(error_of("{% set a = 'x' * 4000000 %}{{ (a + 'y').rsplit(a[:2000000] + 'z')|length }}"),
              HasSubstr("bytes of text"));
}

TEST(JinjaBounds, ValuesInsideValuesAreBounded) {
  const std::string_view nest =
      "{% set ns = namespace(x=0) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}";
  EXPECT_THAT(error_of(nest), HasSubstr("values are nested more than"));
  const std::string_view doubled =
      "{% set ns = namespace(x=0) %}{% for i in range(50) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}";
  EXPECT_THAT(error_of(doubled), AnyOf(HasSubstr("steps"), HasSubstr("bytes of text")));
  const std::string_view compared =
      "{% set ns = namespace(x=0, y=0) %}{% for i in range(50) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, "
      "ns.y] %}{% endfor %}{{ ns.x == ns.y }}";
  EXPECT_THAT(error_of(compared), HasSubstr("steps"));
}

TEST(JinjaBounds, MacrosThatCallThemselvesAreBounded) {
  EXPECT_THAT(error_of("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}"), HasSubstr("nested more than"));
  EXPECT_THAT(error_of("{% macro m(x) %}{{ [[[(m(x) + 'x')|upper]]] }}{% endmacro %}{{ m(1) }}"),
              HasSubstr("nested more than"));
}

TEST(JinjaBounds, ANamespaceMayContainItself) {
  EXPECT_EQ(render("{% set ns = namespace(a=1) %}{% set ns.me = ns %}{{ ns.me.me.me.a }}"), "1");
}

TEST(JinjaBounds, ALoopVariableOutlivesItsLoop) {
  EXPECT_EQ(render("{% set ns = namespace() %}{% for x in 'abc' %}{% set ns.l = loop %}{% endfor %}{{ ns.l.index }}"),
            "3");
}

TEST(JinjaScopes, AVariableSetInALoopStaysThere) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}"), "15151");
}

}  // namespace
}  // namespace espalier::jinja
