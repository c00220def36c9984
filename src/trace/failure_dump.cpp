#include "trace/failure_dump.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/utc_time.h"
#include "base/whole_file.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kKinds[] = {"error", "violation", "mismatch"};  // in the order of FailureKind
constexpr std::string_view kStages[] = {"prefill", "draft", "verify", "accept", "commit"};

template <typename T>
Json list_json(std::span<const T> values) {
  return Json(std::vector<T>(values.begin(), values.end()));
}

// One row of a table as a list.
template <typename T>
Json rows_json(std::span<const T> table, std::int64_t columns) {
  Json rows = Json::array();
  for (std::size_t at = 0; columns > 0 && at < table.size(); at += static_cast<std::size_t>(columns))
    rows.push_back(list_json(table.subspan(at, static_cast<std::size_t>(columns))));
  return rows;
}

// A mask is long and repeats itself: the visible columns of each row, as [begin, end) pairs.
Json mask_json(const HostTables& tables) {
  if (tables.mask.empty()) return nullptr;
  Json rows = Json::array();
  const auto columns = static_cast<std::size_t>(tables.mask_columns);
  for (std::size_t at = 0; at < tables.mask.size(); at += columns) {
    const auto row = tables.mask.subspan(at, columns);
    Json runs = Json::array();
    for (std::size_t begin = 0; begin < columns; ++begin) {
      if (row[begin] != 0) continue;
      std::size_t end = begin;
      while (end < columns && row[end] == 0) ++end;
      runs.push_back({begin, end});
      begin = end;
    }
    rows.push_back(std::move(runs));
  }
  return {{"columns", columns}, {"visible", std::move(rows)}};
}

Json tables_json(const HostTables& tables, std::int64_t first_row) {
  return {{"rows", tables.rows},
          {"first_row", first_row},
          {"token", list_json(tables.token)},
          {"position", list_json(tables.position)},
          {"slot", list_json(tables.slot)},
          {"sequence", list_json(tables.sequence)},
          {"begin", list_json(tables.begin)},
          {"end", list_json(tables.end)},
          {"ancestor_count", list_json(tables.ancestor_count)},
          {"ancestors", rows_json(tables.ancestors, tables.ancestor_columns)},
          {"blocks", rows_json(tables.blocks, tables.block_columns)},
          {"mask", mask_json(tables)}};
}

Json cache_json(const AnswerFailure& failure) {
  const KvCache& cache = failure.cache;
  const KvCounts& counts = cache.counts();
  return {{"strategy", cache.options().strategy == CacheStrategy::replicate ? "replicate" : "shared"},
          {"reorder", cache.options().reorder == Reorder::full ? "full" : "fast"},
          {"type", name(cache.memory().shape().type)},
          {"layers", cache.memory().shape().layers},
          {"kv_heads", cache.memory().shape().kv_heads},
          {"head_size", cache.memory().shape().head_size},
          {"block_size", cache.block_size()},
          {"free_positions", cache.free_positions()},
          {"committed", failure.committed},
          {"positions", failure.positions},
          {"blocks", list_json(cache.blocks(failure.table))},
          {"branches", counts.branches},
          {"commits", counts.commits},
          {"rollbacks", counts.rollbacks},
          {"bytes_branched", counts.bytes_branched},
          {"bytes_committed", counts.bytes_committed}};
}

Json mismatch_json(const Mismatch& mismatch) {
  return {{"token", mismatch.token}, {"speculative", mismatch.speculative}, {"plain", mismatch.plain}};
}

Json dump_json(const FailureDump& dump, const RecordOrigin& origin) {
  Json object = record_head("dump", origin);
  object["failure"] = name(dump.kind);
  object["error"] = dump.error;
  object["stage"] = dump.stage;
  object["prompt_id"] = json_of(dump.prompt_id);
  object["turn"] = dump.turn;
  object["round"] = dump.round;
  object["prompt"] = dump.prompt;
  object["answered"] = dump.answered;
  object["tree"] = dump.tree ? json_of(*dump.tree) : Json();
  object["drawn"] = dump.drawn;
  object["draw"] = json_of(dump.draw);
  object["attention"] = name(dump.form.attention);
  object["mask"] = name(dump.form.mask);
  object["mismatch"] = dump.mismatch ? mismatch_json(*dump.mismatch) : Json();
  object["tables"] = Json::parse(dump.tables);
  object["cache"] = Json::parse(dump.cache);
  return object;
}

std::optional<Mismatch> mismatch_from(const JsonField& field) {
  if (field.is_null()) return std::nullopt;
  return Mismatch{.token = count_from(field.at("token")),
                  .speculative = tokens_from(field.at("speculative")),
                  .plain = tokens_from(field.at("plain"))};
}

void check_dump(const FailureDump& dump, std::string_view where) {
  const bool in_a_round = dump.stage != "prefill", has_tree = in_a_round && dump.stage != "draft";
  if (dump.prompt.empty()) input_error("{}: expected a prompt, got an empty one", where);
  if (dump.answered.empty() == in_a_round)
    input_error("{}: answered: {} tokens in stage {}, expected {}", where, dump.answered.size(), dump.stage,
                in_a_round ? "one or more" : "none");
  if (in_a_round && static_cast<std::int64_t>(dump.answered.size()) >= dump.draw.max_tokens)
    input_error("{}: answered: {} tokens, expected less than the {} that may be drawn", where, dump.answered.size(),
                dump.draw.max_tokens);
  if (dump.tree.has_value() != has_tree)
    input_error("{}: tree: expected {} in stage {}", where, has_tree ? "one" : "none", dump.stage);
  if (dump.tree && (*dump.tree)[0].token != dump.answered.back())
    input_error("{}: expected a tree below the last token answered, got one below {}", where, (*dump.tree)[0].token);
  if (dump.mismatch.has_value() != (dump.kind == FailureKind::mismatch))
    input_error("{}: expected two answers in a mismatch and nowhere else", where);
}

FailureDump dump_from(const JsonField& record) {
  FailureDump dump;
  dump.kind = static_cast<FailureKind>(record.at("failure").one_of(kKinds));
  dump.error = record.at("error").string();
  dump.stage = kStages[record.at("stage").one_of(kStages)];
  dump.prompt_id = prompt_id_from(record.at("prompt_id"));
  dump.turn = count_from(record.at("turn"), 1);
  dump.round = count_from(record.at("round"));
  dump.prompt = tokens_from(record.at("prompt"));
  dump.answered = tokens_from(record.at("answered"));
  if (const JsonField tree = record.at("tree"); !tree.is_null()) dump.tree = tree_from(tree);
  dump.drawn = tokens_from(record.at("drawn"));
  dump.draw = draw_options_from(record.at("draw"));
  dump.form = form_from(record);
  dump.mismatch = mismatch_from(record.at("mismatch"));
  dump.tables = one_line(record.at("tables").json());
  dump.cache = one_line(record.at("cache").json());
  check_dump(dump, record.where());
  return dump;
}

// Several failures of one process may fall into one second.
std::filesystem::path free_name(const std::filesystem::path& folder) {
  const std::string stem = fmt::format("espalier-dump-{}-{}", utc_text(UtcForm::file_name), getpid());
  std::filesystem::path path = folder / (stem + ".json");
  for (int i = 2; std::filesystem::exists(std::filesystem::symlink_status(path)); ++i)
    path = folder / fmt::format("{}-{}.json", stem, i);
  return path;
}

std::string text_of_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception of an unknown kind";
  }
}

FailureKind kind_of_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::logic_error&) {
    return FailureKind::violation;
  } catch (...) {
    return FailureKind::error;
  }
}

std::string shown_token(std::span<const std::int32_t> tokens, std::size_t index, std::string_view finish) {
  return index < tokens.size() ? std::to_string(tokens[index]) : fmt::format("the end ({})", finish);
}

}  // namespace

std::string_view name(FailureKind kind) {
  return kKinds[static_cast<std::size_t>(kind)];
}

FailureDump dump_of(const AnswerFailure& failure, std::exception_ptr error) {
  FailureDump dump;
  dump.kind = kind_of_error(error);
  dump.error = text_of_error(error);
  dump.stage = name(failure.stage);
  dump.round = failure.round;
  dump.prompt.assign(failure.prompt.begin(), failure.prompt.end());
  dump.answered.assign(failure.answered.begin(), failure.answered.end());
  if (failure.tree != nullptr) dump.tree = *failure.tree;
  dump.drawn.assign(failure.drawn.begin(), failure.drawn.end());
  dump.draw = DrawOptions::of(failure.options);
  dump.form = failure.form;
  if (failure.tables != nullptr) dump.tables = one_line(tables_json(*failure.tables, failure.first_row));
  dump.cache = one_line(cache_json(failure));
  return dump;
}

FailureDump mismatch_dump(const TracedTurn& turn, std::span<const std::int32_t> plain, std::string_view plain_finish) {
  const auto at = static_cast<std::size_t>(
      std::mismatch(turn.tokens.begin(), turn.tokens.end(), plain.begin(), plain.end()).first - turn.tokens.begin());
  check(at < std::max(turn.tokens.size(), plain.size()) || turn.finish_reason != plain_finish,
        "mismatch_dump: both answers are the same");
  FailureDump dump{.kind = FailureKind::mismatch, .stage = "prefill", .prompt_id = turn.prompt_id, .turn = turn.turn};
  dump.error = fmt::format("token {} differs: {} with speculation, {} without", at,
                           shown_token(turn.tokens, at, turn.finish_reason), shown_token(plain, at, plain_finish));
  dump.prompt = turn.prompt;
  dump.draw = turn.draw;
  // Where one answer ends and the other goes on, the last round is to blame.
  const bool in_rounds = !turn.rounds.empty() && at > 0;
  std::size_t begin = 0, end = std::min<std::size_t>(1, turn.tokens.size());
  if (in_rounds) {
    const std::size_t index = turn.round_of_token(at).value_or(turn.rounds.size() - 1);
    const TracedRound& round = turn.rounds[index];
    begin = static_cast<std::size_t>(round.prefix) + 1 - turn.prompt.size();
    end = begin + round.visits.size();
    dump.stage = "verify";
    dump.round = round.number;
    dump.tree = round.tree;
    dump.form = round.form;
  }
  dump.answered.assign(turn.tokens.begin(), turn.tokens.begin() + static_cast<std::ptrdiff_t>(begin));
  dump.drawn.assign(turn.tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                    turn.tokens.begin() + static_cast<std::ptrdiff_t>(end));
  const auto rest = plain.subspan(std::min(begin, plain.size()));
  const auto shown = rest.first(std::min(rest.size(), std::max<std::size_t>(end - begin, at + 1 - begin)));
  dump.mismatch = {static_cast<std::int64_t>(at), dump.drawn, {shown.begin(), shown.end()}};
  return dump;
}

std::filesystem::path write_failure_dump(const FailureDump& dump, const RecordOrigin& origin,
                                         const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) device_error("{}: cannot create the directory: {}", folder.string(), error.message());
  const std::filesystem::path path = free_name(folder);
  write_whole_file(path, one_line(dump_json(dump, origin)) + "\n");
  return path;
}

bool is_failure_dump(const std::filesystem::path& path) {
  const MappedFile file(path);
  return !file.bytes().empty() && static_cast<char>(file.bytes().front()) == '{';
}

ReadDump failure_dump_from(std::string_view text, std::string_view where) {
  const nlohmann::json object = parse_json(text, where);
  const JsonField record(object, where);
  RecordOrigin origin = record_origin_from(record, "dump");
  return {.dump = dump_from(record), .origin = std::move(origin)};
}

ReadDump read_failure_dump(const std::filesystem::path& path) {
  return failure_dump_from(read_text_file(path), path.string());
}

}  // namespace espalier
