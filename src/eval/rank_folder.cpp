#include "eval/rank_folder.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/temporary_file.h"
#include "base/whole_file.h"
#include "eval/process_life.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path made(const std::filesystem::path& path, bool resume) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (!std::filesystem::create_directory(path, error) && !error && !resume)
    input_error("{}: exists already, expected a new directory, or --resume", path.string());
  if (error) device_error("{}: cannot create the directory: {}", path.string(), error.message());
  return path;
}

}  // namespace

std::string rank_folder_name(int rank) {
  return fmt::format("{:04}", rank);
}

std::optional<int> rank_of_folder(std::string_view name) {
  int rank = 0;
  std::from_chars(name.data(), name.data() + name.size(), rank);
  return name == rank_folder_name(rank) ? std::optional(rank) : std::nullopt;
}

RankFolder::RankFolder(const std::filesystem::path& path, const RankPlace& place, bool resume)
    : RankFolder(path, place, resume, Json::object()) {}

RankFolder::RankFolder(const std::filesystem::path& path, const RankPlace& place, bool resume, const Json& facts)
    : path_(made(path, resume)), journal_(path_ / kJournalName) {
  remove_leftovers(path_);
  Json life = {{"rank", place.rank}, {"world", place.world}, {"process", this_process()}};
  life.update(facts);
  life["ended"] = false;
  life["failure"] = nullptr;
  write(life);
}

void RankFolder::show_life() const {
  std::error_code ignored;  // the next sign may get through
  std::filesystem::last_write_time(path_ / kLifeName, std::filesystem::file_time_type::clock::now(), ignored);
}

void RankFolder::end() {
  end(Json::object());
}

void RankFolder::end(const Json& facts) {
  Json life = Json::parse(life_);
  life.update(facts);
  life["ended"] = true;
  write(life);
}

void RankFolder::fail(const std::string& reason) {
  end({{"failure", reason}});
}

void RankFolder::write(const Json& life) {
  life_ = life.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  write_whole_file(path_ / kLifeName, life_);
}

}  // namespace espalier
