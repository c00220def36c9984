#include "eval/rank_folder.h"

#include <charconv>

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

RankFolder::RankFolder(const std::filesystem::path& path, const RankPlace& place, bool resume, Json facts)
    : path_(made(path, resume)), journal_(path_ / kJournalName) {
  remove_leftovers(path_);
  life_ = {{"rank", place.rank}, {"world", place.world}, {"process", this_process()}};
  if (facts.is_object()) life_.update(facts);
  life_["ended"] = false;
  life_["failure"] = nullptr;
  write();
}

void RankFolder::show_life() const {
  std::error_code ignored;  // the next sign may get through
  std::filesystem::last_write_time(path_ / kLifeName, std::filesystem::file_time_type::clock::now(), ignored);
}

void RankFolder::end(const Json& facts) {
  life_.update(facts);
  life_["ended"] = true;
  write();
}

void RankFolder::fail(const std::string& reason) {
  life_["failure"] = reason;
  end();
}

void RankFolder::write() const {
  write_whole_file(path_ / kLifeName, life_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace espalier
