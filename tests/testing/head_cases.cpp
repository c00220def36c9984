#include "testing/head_cases.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "format/safetensors.h"
#include "testing/engine.h"

namespace espalier::testing {
namespace {

HeadOptions options_from(const nlohmann::json& json) {
  HeadOptions options;
  if (json.contains("taps")) options.taps = json["taps"].get<std::vector<std::int64_t>>();
  if (json.contains("rope_theta")) options.rope_theta = json["rope_theta"].get<double>();
  if (json.contains("norm_output")) options.norm_output = json["norm_output"].get<bool>();
  return options;
}

template <typename T>
std::vector<T> numbers(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<T>(in), std::istream_iterator<T>()};
}

void take_line(const std::string& line, const std::filesystem::path& folder, HeadCase& head_case) {
  const std::size_t colon = line.find(": ");
  const std::string key = line.substr(0, colon);
  const std::string value = colon == std::string::npos ? "" : line.substr(colon + 2);
  if (key == "teacher") head_case.teacher = data_path(value);
  if (key == "head") head_case.head = value == "." ? folder : folder / value;
  if (key == "option") parse_head_option(value, head_case.options);
  if (key == "refused") head_case.refused = true;
  if (key == "says") head_case.says.push_back(value);
  if (key == "taps") head_case.taps = numbers<std::int64_t>(value);
  if (key == "target_ids") head_case.target_ids = numbers<std::int32_t>(value);
}

// Adds the case if it is of this kind.
void read_case(const std::filesystem::path& folder, HeadKind kind, std::vector<HeadCase>& cases) {
  std::ifstream in(folder / "expected.txt");
  HeadCase head_case{.name = folder.filename().string(), .head = {}, .teacher = {}};
  bool wanted = false;
  for (std::string line; std::getline(in, line);) {
    wanted = wanted || line == "kind: " + std::string(name(kind));
    take_line(line, folder, head_case);
  }
  if (wanted) cases.push_back(std::move(head_case));
}

template <typename T>
std::vector<T> of_both(std::vector<T> second, const std::vector<T>& third) {
  second.insert(second.end(), third.begin(), third.end());
  return second;
}

}  // namespace

std::vector<HeadGolden> head_goldens(HeadKind kind) {
  const std::filesystem::path folder = data_path("heads");
  std::vector<HeadGolden> goldens;
  for (const nlohmann::json& entry : read_json_file(folder / "heads.json")) {
    if (entry["kind"] != name(kind)) continue;
    const auto file = entry["golden"].get<std::string>(), head = entry["head"].get<std::string>();
    const std::string suffix = head.ends_with(".gguf") ? ".gguf" : "";
    goldens.push_back({.name = file.substr(0, file.find('.')) + suffix,
                       .head = folder / head,
                       .teacher = data_path(entry["teacher"].get<std::string>()),
                       .golden = folder / file,
                       .options = options_from(entry["options"]),
                       .window = entry["window"].is_null() ? 0 : entry["window"].get<std::int64_t>()});
  }
  check(!goldens.empty(), "no goldens of kind {}", name(kind));
  return goldens;
}

std::vector<HeadGolden> eagle_goldens() {
  return of_both(head_goldens(HeadKind::eagle2), head_goldens(HeadKind::eagle3));
}

std::vector<HeadCase> eagle_cases() {
  return of_both(head_cases(HeadKind::eagle2), head_cases(HeadKind::eagle3));
}

std::vector<HeadCase> head_cases(HeadKind kind) {
  std::vector<HeadCase> cases;
  for (const char* group : {"refusals", "accepted"})
    for (const auto& entry : std::filesystem::directory_iterator(data_path("heads") / group))
      read_case(entry.path(), kind, cases);
  std::sort(cases.begin(), cases.end(), [](const HeadCase& a, const HeadCase& b) { return a.name < b.name; });
  check(!cases.empty(), "no cases of kind {}", name(kind));
  return cases;
}

std::string test_name(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

}  // namespace espalier::testing
