#include "selftest/selftest_page.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "report/assets.h"
#include "report/markup.h"
#include "report/report_table.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
)";

std::string value_text(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Rows of what is known of an object; what it has inside goes below its name.
void add_facts(const Json& object, const std::string& prefix, Table& table) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix.empty() ? key : prefix + " " + key;
    if (value.is_object()) {
      add_facts(value, name, table);
    } else if (!value.is_null()) {
      table.add({text_cell(name), text_cell(value_text(value))});
    }
  }
}

std::string section(std::string_view title, const std::string& inner) {
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", markup_text(title), inner);
}

std::string facts_html(const SelftestReport& report) {
  Table table{.id = "facts", .columns = {"", ""}};
  add_facts(Json::parse(report.device), "", table);
  add_facts(Json::parse(report.build), "", table);
  add_facts(Json::parse(report.machine), "machine", table);
  table.add({text_cell("date"), text_cell(report.date)});
  return section("Device, build and machine", to_html(table));
}

std::string parts_html(const SelftestReport& report) {
  Table table{.id = "parts", .columns = {"part", "what it shows", "result", "tests", "failed", "seconds"}};
  std::string answers, failures;
  for (const PartResult& part : report.parts) {
    const TestResults& tests = part.tests;
    table.add({text_cell(part.name), text_cell(part.shows), text_cell(part.held() ? "held" : "FAILED"),
               number_cell(tests.tests - tests.skipped, 0), number_cell(static_cast<double>(tests.failed.size()), 0),
               number_cell(part.seconds, 1)});
    if (tests.compares_answers())
      answers += fmt::format(
          "<p class=\"soft\">{}: {}{}</p>\n", markup_text(part.name), answers_text(tests),
          tests.near_tie_margins.empty() ? "" : fmt::format(": {:.4f}", fmt::join(tests.near_tie_margins, ", ")));
    if (!part.problem.empty())
      failures += fmt::format("<p class=\"failed\">{}: {}</p>\n", markup_text(part.name), markup_text(part.problem));
    for (const FailedTest& test : tests.failed)
      failures += fmt::format("<details><summary class=\"failed\">{}</summary><pre>{}</pre></details>\n",
                              markup_text(test.name), markup_text(test.message));
  }
  for (const std::string& name : report.left_out) table.add({text_cell(name), {}, text_cell("left out"), {}, {}, {}});
  return section("What was judged", to_html(table) + answers + failures);
}

Table step_table(const BenchResult& result) {
  Table table{.id = "steps", .caption = "A step of the model, milliseconds (median)", .columns = {"rows"}};
  for (const std::int64_t context : result.sizes.contexts) table.columns.push_back(fmt::format("context {}", context));
  for (const std::int64_t rows : result.sizes.rows) {
    std::vector<Cell> row = {text_cell(std::to_string(rows))};
    for (const std::int64_t context : result.sizes.contexts) {
      const Figure* const figure = find_figure(result.figures, "step", rows, context);
      row.push_back(figure == nullptr || figure->samples.empty() ? Cell{}
                                                                 : number_cell(1e3 * figure->spread().median, 3));
    }
    table.add(std::move(row));
  }
  return table;
}

Table loop_table(const BenchResult& result) {
  Table table{.id = "loop", .columns = {"whole loop", "tokens a second"}};
  const BenchSizes& sizes = result.sizes;
  const auto add = [&](const std::string& label, const Figure* figure, double tokens) {
    if (figure != nullptr && !figure->samples.empty())
      table.add({text_cell(label), number_cell(tokens / figure->spread().median, 1)});
  };
  add(fmt::format("plain decoding behind {} tokens", sizes.prompt),
      find_figure(result.figures, "plain_decoding", 0, sizes.prompt), 1);
  add(fmt::format("prefill of {}", sizes.prefill), find_figure(result.figures, "prefill", sizes.prefill, 0),
      static_cast<double>(sizes.prefill));
  return table;
}

std::string speed_html(const SelftestSpeed& speed) {
  std::string html;
  if (!speed.problem.empty()) html += fmt::format("<p class=\"failed\">{}</p>\n", markup_text(speed.problem));
  if (!speed.left_out.empty()) html += fmt::format("<p class=\"soft\">{}</p>\n", markup_text(speed.left_out));
  if (const auto& result = speed.result) {
    html +=
        fmt::format("<p class=\"soft\">{}, {} ({}), KV {}, {} samples of each figure</p>\n",
                    markup_text(std::filesystem::path(result->model).filename().string()), markup_text(result->device),
                    markup_text(result->isa), markup_text(result->kv), result->repeats);
    html += to_html(step_table(*result)) + to_html(loop_table(*result));
  }
  return html.empty() ? "" : section("Speed", html);
}

}  // namespace

std::string selftest_page(const SelftestReport& report) {
  const std::string title = "Espalier selftest: " + report.title;
  const bool held = report.held();
  std::string html = std::string(kHead);
  html +=
      fmt::format("<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n", markup_text(title), kPageStyle);
  html += fmt::format("<p class=\"lossless {}\">{}{}</p>\n<h1>{}</h1>\n", held ? "holds" : "failed",
                      held ? "\u2714 " : "", markup_text(verdict_text(report)), markup_text(title));
  html += parts_html(report) + speed_html(report.speed) + facts_html(report);
  const std::string json = selftest_json(report).dump(2, ' ', false, Json::error_handler_t::replace);
  html += section("As JSON", fmt::format("<details><summary>everything on this page, and all samples</summary>\n"
                                         "<pre>{}</pre></details>\n",
                                         markup_text(json)));
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace espalier
