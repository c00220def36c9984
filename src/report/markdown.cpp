#include "report/markdown.h"

#include <fmt/format.h>

#include "report/markup.h"

namespace espalier {
namespace {

std::string cell_markdown(const Cell& cell) {
  std::string text = markdown_text(shown(cell));
  if (cell.interval)
    text += fmt::format(" [{:.{}f}, {:.{}f}]", cell.interval->low, cell.decimals, cell.interval->high, cell.decimals);
  return cell.paper && !text.empty() ? fmt::format("*{}*", text) : text;
}

std::string markdown_paragraphs(const std::vector<std::string>& lines, std::string_view sign) {
  std::string markdown;
  for (const std::string& line : lines) markdown += fmt::format("{}{}{}\n\n", sign, markdown_text(line), sign);
  return markdown;
}

std::string section_markdown(const ReportSection& section) {
  std::string markdown = fmt::format("## {}\n\n", markdown_text(section.title));
  markdown += markdown_paragraphs(section.failures, "**") + markdown_paragraphs(section.words, "");
  for (const Table& table : section.tables)
    if (!table.folded) markdown += to_markdown(table) + "\n";
  return markdown;
}

}  // namespace

std::string to_markdown(const Table& table) {
  std::string markdown = table.caption.empty() ? "" : markdown_text(table.caption) + "\n\n";
  std::string rule = "|";
  markdown += "|";
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    markdown += fmt::format(" {} |", markdown_text(table.columns[i]));
    rule += has_number(table, i) ? "---:|" : "---|";
  }
  markdown += "\n" + rule + "\n";
  for (const auto& row : table.rows) {
    markdown += "|";
    for (const Cell& cell : row) markdown += fmt::format(" {} |", cell_markdown(cell));
    markdown += "\n";
  }
  return markdown;
}

std::string page_markdown(const Page& page) {
  std::string markdown =
      fmt::format("# {}\n\n{}**{}**\n\n", markdown_text(page.title), page.lossless.holds() ? "" : "**FAILED:** ",
                  markdown_text(losslessness_text(page.lossless)));
  markdown += markdown_paragraphs(page.lossless.failures, "**") + markdown_paragraphs(page.failures, "**") +
              markdown_paragraphs(page.words, "");
  for (const ReportSection& section : page.sections) markdown += section_markdown(section);
  return markdown;
}

}  // namespace espalier
