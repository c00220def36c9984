#include "selftest/test_results.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

namespace espalier {
namespace {

using Report = nlohmann::json;  // of GoogleTest

constexpr std::string_view kReport = "the report of a test program";

const Report& member(const Report& object, const char* name, Report::value_t type) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (found == object.end() || found->type() != type) input_error("{}: no {} where it was expected", kReport, name);
  return *found;
}

std::string message_of(const Report& test) {
  std::string message;
  for (const Report& failure : test.value("failures", Report::array()))
    message += (message.empty() ? "" : "\n") + member(failure, "failure", Report::value_t::string).get<std::string>();
  return message;
}

// Numbers that a test has recorded, with blanks between; none where it has recorded nothing by this name.
std::vector<double> recorded(const Report& test, const char* name) {
  std::vector<double> numbers;
  if (!test.contains(name)) return numbers;
  const auto& text = member(test, name, Report::value_t::string).get_ref<const std::string&>();
  const char *at = text.data(), *const end = at + text.size();
  while (at != end) {
    double number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) input_error("{}: {} is '{}', expected numbers", kReport, name, text);
    numbers.push_back(number);
    at = next != end && *next == ' ' ? next + 1 : next;
  }
  return numbers;
}

void add_answers(const Report& test, TestResults& results) {
  for (const double count : recorded(test, "answers_equal")) results.answers_equal += static_cast<int>(count);
  std::ranges::copy(recorded(test, "near_tie_margins"), std::back_inserter(results.near_tie_margins));
}

void add_test(const Report& test, TestResults& results) {
  const auto text = [&](const char* name) {
    return member(test, name, Report::value_t::string).get_ref<const std::string&>();
  };
  if (text("status") != "RUN") return;  // left out by a filter, or switched off in the source
  ++results.tests;
  if (text("result") == "SKIPPED") ++results.skipped;
  add_answers(test, results);
  if (test.contains("failures")) results.failed.push_back({text("classname") + "." + text("name"), message_of(test)});
}

}  // namespace

TestResults read_test_results(std::string_view json) {
  TestResults results;
  const Report report = parse_json(json, kReport);
  for (const Report& suite : member(report, "testsuites", Report::value_t::array))
    for (const Report& test : member(suite, "testsuite", Report::value_t::array)) add_test(test, results);
  return results;
}

void TestOutput::read(std::string_view piece) {
  rest_ += piece;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1)
    read_line(std::string_view(rest_).substr(begin, end - begin));
  rest_.erase(0, begin);
}

void TestOutput::read_line(std::string_view line) {
  constexpr std::string_view kAll = "[==========] Running ", kBegin = "[ RUN      ] ";
  if (line.starts_with(kAll)) {
    std::from_chars(line.data() + kAll.size(), line.data() + line.size(), tests_);
  } else if (line.starts_with(kBegin)) {
    running_ = line.substr(kBegin.size());
  } else if (!running_.empty() && line.starts_with("[") && line.find("] " + running_) != line.npos) {
    running_.clear();
    ++ended_;
  }
}

double TestOutput::share() const {
  return tests_ == 0 ? 0 : static_cast<double>(std::min(ended_, tests_)) / tests_;
}

}  // namespace espalier
