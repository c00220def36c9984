#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/assets.h"
#include "report/markup.h"

namespace espalier {
namespace {

// Nothing is loaded but the files of turns beside the page.
constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'self' file:">
<meta name="viewport" content="width=device-width, initial-scale=1">
)";

std::string html_paragraphs(const std::vector<std::string>& lines, std::string_view kind) {
  std::string html;
  for (const std::string& line : lines) html += fmt::format("<p class=\"{}\">{}</p>\n", kind, markup_text(line));
  return html;
}

std::string file_links(std::string_view folder, std::string_view id, std::initializer_list<std::string_view> endings) {
  std::string html = "<p class=\"files\">";
  for (const std::string_view ending : endings)
    html += fmt::format("<a href=\"{}/{}.{}\">{}</a>", folder, id, ending, ending);
  return html + "</p>\n";
}

std::string lossless_html(const Losslessness& lossless) {
  const char* kind = !lossless.holds() ? "failed" : lossless.compared == 0 ? "unknown" : "holds";
  const char* sign = !lossless.holds() ? "FAILED: " : lossless.compared == 0 ? "" : "\u2714 ";
  return fmt::format("<p class=\"lossless {}\" id=\"lossless\">{}{}</p>\n", kind, sign,
                     markup_text(losslessness_text(lossless))) +
         html_paragraphs(lossless.failures, "failed");
}

std::string navigation(const Page& page) {
  std::string html = "<nav aria-label=\"sections\"><ul>";
  const auto add = [&](std::string_view id, std::string_view title) {
    html += fmt::format("<li><a href=\"#{}\">{}</a></li>", id, markup_text(title));
  };
  for (const ReportSection& section : page.sections) add(section.id, section.title);
  add("turns-title", "Turns and trees");
  add("configuration-title", "Configuration");
  return html + "</ul></nav>\n";
}

std::string table_html(const Table& table) {
  const std::string inner = to_html(table) + file_links("tables", table.id, {"csv", "json"});
  if (!table.folded) return inner;
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", markup_text(table.caption), inner);
}

std::string section_html(const ReportSection& section) {
  std::string html = fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n", section.id, markup_text(section.title));
  html += html_paragraphs(section.failures, "failed") + html_paragraphs(section.words, "soft");
  for (const Table& table : section.tables)
    if (!table.folded) html += table_html(table);
  if (!section.charts.empty()) html += "<div class=\"charts\">\n";
  for (const Chart& chart : section.charts)
    html += fmt::format("<figure id=\"{}\">{}{}</figure>\n", chart.id, chart_svg(chart),
                        file_links("figures", chart.id, {"svg", "csv", "json"}));
  if (!section.charts.empty()) html += "</div>\n";
  for (const Table& table : section.tables)
    if (table.folded) html += table_html(table);
  return html + "</section>\n";
}

// Where the trees are that the page has no room for.
std::string trees_beside(const std::vector<PageTurn>& turns) {
  const auto beside = std::ranges::count_if(turns, [](const PageTurn& t) { return t.traced && t.embedded.empty(); });
  if (beside == 0) return "";
  return fmt::format(
      "<p class=\"soft\">The trees of {} of {} turns lie in the folder turns beside this page: move them together, or "
      "they "
      "cannot be opened.</p>\n",
      beside, turns.size());
}

std::string turns_html(const Page& page) {
  std::string html =
      "<section>\n<h2 id=\"turns-title\">Turns and trees</h2>\n"
      "<p class=\"soft\">The number of a turn opens its rounds and their trees.</p>\n";
  html += trees_beside(page.marks) +
          "<noscript><p class=\"soft\">Sorting, filtering and the trees need JavaScript; the list does "
          "not.</p></noscript>\n"
          "<div id=\"turn-view\" hidden></div>\n<div class=\"scroll\"><table id=\"turns\">";
  html += headings_html(page.turns) + "<tbody>\n";
  for (std::size_t i = 0; i < page.turns.rows.size(); ++i)
    html += fmt::format("<tr data-turn=\"{}\"{}{}>{}</tr>\n", i + 1, page.marks[i].traced ? " data-traced" : "",
                        page.marks[i].wrong ? " class=\"differs\"" : "", cells_html(page.turns.rows[i]));
  return html + "</tbody></table></div>\n" + file_links("tables", page.turns.id, {"csv", "json"}) + "</section>\n";
}

std::string configuration_html(const Page& page) {
  std::string html = "<section>\n<h2 id=\"configuration-title\">Configuration</h2>\n" + table_html(page.configuration);
  for (const auto& [label, manifest] : page.manifests)
    html += fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", markup_text(label),
                        markup_text(manifest));
  return html + "</section>\n";
}

std::string embedded_turns(const Page& page) {
  std::string html;
  for (std::size_t i = 0; i < page.marks.size(); ++i)
    if (!page.marks[i].embedded.empty())
      html += fmt::format("<script type=\"application/json\" id=\"turn-data-{}\">{}</script>\n", i + 1,
                          page.marks[i].embedded);
  return html;
}

}  // namespace

std::string page_html(const Page& page) {
  std::string html = std::string(kHead);
  html += fmt::format("<title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n<main>\n", markup_text(page.title),
                      kPageStyle, kChartStyle);
  html += lossless_html(page.lossless);
  html += fmt::format("<h1>{}</h1>\n", markup_text(page.title));
  html += html_paragraphs(page.failures, "failed") + html_paragraphs(page.words, "soft") + navigation(page);
  for (const ReportSection& section : page.sections) html += section_html(section);
  html += turns_html(page) + configuration_html(page) + "</main>\n" + embedded_turns(page);
  return html + fmt::format("<script>\n{}</script>\n</body>\n</html>\n", kPageScript);
}

}  // namespace espalier
