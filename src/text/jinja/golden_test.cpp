// Replays tests/data/templates/golden.jsonl, what Python's jinja2 made of the same templates (see
// train/fixtures/make_templates.py): the text byte for byte, which bytes of it are the user's, and every refusal.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "text/chat_template.h"
#include "text/jinja/json.h"
#include "text/jinja/template.h"

namespace espalier {
namespace {

using nlohmann::ordered_json;

const std::filesystem::path kTemplates = std::filesystem::path(ESPALIER_TEST_DATA) / "templates";

std::vector<ordered_json> golden_lines() {
  std::vector<ordered_json> lines;
  std::ifstream file(kTemplates / "golden.jsonl");
  for (std::string line; std::getline(file, line);) lines.push_back(ordered_json::parse(line));
  return lines;
}

// The pieces, or the message of the InputError.
using Outcome = std::variant<std::vector<TextPiece>, std::string>;

std::string source_of(const ordered_json& record) {
  if (record.contains("source")) return record["source"];
  return read_text_file(kTemplates / record["file"].get<std::string>());
}

Outcome render_conversation(const ordered_json& record, const std::string& date) {
  std::vector<ChatMessage> messages;
  for (const auto& message : record["messages"]) messages.push_back({.role = message[0], .content = message[1]});
  ChatTemplateOptions options{.bos_token = record["bos"], .eos_token = record["eos"]};
  options.date_iso = date;
  const ordered_json settings = record.value("options", ordered_json::object());
  options.add_generation_prompt = settings.value("add_generation_prompt", true);
  if (settings.contains("variables")) options.variables_json = settings["variables"].dump();
  return ChatTemplate(source_of(record)).render(messages, options);
}

Outcome render_context(const ordered_json& record, const ordered_json& shared, const std::string& date) {
  jinja::Guard guard{jinja::Limits{}};
  jinja::Context context;
  context.now = jinja::parse_date(date);
  const ordered_json& variables = record.contains("context") ? record["context"] : shared;
  for (const auto& [name, value] : variables.items()) {
    const bool trusted = name == "bos_token" || name == "eos_token";
    context.variables.emplace_back(
        name, trusted ? jinja::Value(jinja::Text(value.get<std::string>(), true)) : jinja::from_json(guard, value));
  }
  return jinja::Template(source_of(record)).render(context, guard).pieces();
}

Outcome replay(const ordered_json& record, const ordered_json& shared, const std::string& date) {
  try {
    return record.contains("messages") ? render_conversation(record, date) : render_context(record, shared, date);
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string joined(const std::vector<TextPiece>& pieces, std::optional<bool> allow_special) {
  std::string text;
  for (const TextPiece& piece : pieces)
    if (!allow_special || piece.allow_special == *allow_special) text += piece.text;
  return text;
}

std::string name_of(const ordered_json& record) {
  ordered_json shown = record;
  shown.erase("text");
  return shown.dump();
}

class Golden : public testing::Test {
 protected:
  // Runs `verify(record, outcome)` on every record for which `wanted` holds; there must be at least `minimum`.
  template <typename Wanted, typename Verify>
  void for_each(std::size_t minimum, Wanted wanted, Verify verify) {
    const std::vector<ordered_json> lines = golden_lines();
    ASSERT_FALSE(lines.empty());
    const std::string date = lines[0]["date"];
    std::size_t seen = 0;
    for (std::size_t i = 1; i < lines.size(); ++i) {
      if (!wanted(lines[i])) continue;
      ++seen;
      verify(lines[i], replay(lines[i], lines[0]["shared"], date));
    }
    EXPECT_GE(seen, minimum);
  }
};

TEST_F(Golden, EveryTextEqualsThatOfJinja2) {
  for_each(
      3500, [](const ordered_json& record) { return record.contains("text"); },
      [](const ordered_json& record, const Outcome& outcome) {
        const auto* pieces = std::get_if<std::vector<TextPiece>>(&outcome);
        if (pieces == nullptr)
          ADD_FAILURE() << name_of(record) << "\nrefused: " << std::get<std::string>(outcome);
        else
          EXPECT_EQ(joined(*pieces, std::nullopt), record["text"].get<std::string>()) << name_of(record);
      });
}

TEST_F(Golden, WhatJinja2RefusesIsRefusedWithAPosition) {
  for_each(
      500, [](const ordered_json& record) { return record.contains("raises"); },
      [](const ordered_json& record, const Outcome& outcome) {
        const auto* pieces = std::get_if<std::vector<TextPiece>>(&outcome);
        if (pieces != nullptr)
          ADD_FAILURE() << name_of(record) << "\nrendered: " << joined(*pieces, std::nullopt);
        else
          EXPECT_TRUE(std::get<std::string>(outcome).starts_with("chat template, line ")) << name_of(record);
      });
}

TEST_F(Golden, WhatIsNotSupportedIsRefusedAndNeverOtherText) {
  for_each(
      30, [](const ordered_json& record) { return record.contains("unsupported"); },
      [](const ordered_json& record, const Outcome& outcome) {
        const auto* message = std::get_if<std::string>(&outcome);
        ASSERT_NE(message, nullptr) << name_of(record);
        EXPECT_NE(message->find("supported"), std::string::npos) << name_of(record) << "\n" << *message;
      });
}

TEST_F(Golden, OnlyTheUsersCharactersAreWithoutControlTokens) {
  for_each(
      2000, [](const ordered_json& record) { return record.contains("user"); },
      [](const ordered_json& record, const Outcome& outcome) {
        const auto* pieces = std::get_if<std::vector<TextPiece>>(&outcome);
        ASSERT_NE(pieces, nullptr) << name_of(record);
        EXPECT_EQ(joined(*pieces, false), record["user"].get<std::string>()) << name_of(record);
      });
}

TEST_F(Golden, PiecesAreNeitherEmptyNorOfTheSameKindAsTheirNeighbour) {
  for_each(
      500, [](const ordered_json& record) { return record.contains("messages") && record.contains("text"); },
      [](const ordered_json& record, const Outcome& outcome) {
        const auto* pieces = std::get_if<std::vector<TextPiece>>(&outcome);
        ASSERT_NE(pieces, nullptr) << name_of(record);
        for (const TextPiece& piece : *pieces) EXPECT_FALSE(piece.text.empty()) << name_of(record);
        for (std::size_t i = 1; i < pieces->size(); ++i)
          EXPECT_NE((*pieces)[i].allow_special, (*pieces)[i - 1].allow_special) << name_of(record);
      });
}

}  // namespace
}  // namespace espalier
