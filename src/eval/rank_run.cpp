#include "eval/rank_run.h"

#include <map>
#include <type_traits>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "eval/summary.h"

namespace espalier {
namespace {

constexpr const char* kShortPrompt = "Hello";

class Share {
 public:
  Share(const RankRun& run, const std::vector<TurnRecord>& finished, RankFolder& folder) : run_(run), folder_(folder) {
    for (const TurnRecord& turn : finished) finished_.emplace(TurnPlace{turn.record, turn.turn}, &turn);
  }

  bool answer() {
    bool warm = false;
    std::int64_t before = 0;  // turns of the data before this prompt
    for (std::size_t record = 0; record < run_.data.prompts.size(); ++record) {
      const EvalPrompt& prompt = run_.data.prompts[record];
      if (run_.place.owns(record) && !is_finished(record)) {
        if (!warm) warm_up_on(prompt);
        warm = true;
        if (!answer_prompt(record, before)) return false;
      }
      before += static_cast<std::int64_t>(prompt.turns.size());
    }
    return true;
  }

 private:
  // What is wrong with a turn is told with its place in the data.
  template <typename Function>
  std::invoke_result_t<Function> placed(const EvalPrompt& prompt, std::size_t turn, const Function& function) const {
    try {
      return function();
    } catch (const InputError& error) {
      input_error("{}: turn {}: {}", run_.data.place(prompt), turn + 1, error.what());
    }
  }

  // Where its first prompt cannot be answered, a short one tells whether any can.
  void warm_up_on(const EvalPrompt& prompt) const {
    placed(prompt, 0, [&] {
      try {
        warm_up(run_.setup, prompt, run_.cancelled);
      } catch (const InputError&) {
        if (!answers_anything()) throw;
      }
    });
  }

  bool answers_anything() const {
    try {
      warm_up(run_.setup, {.turns = {kShortPrompt}}, run_.cancelled);
      return true;
    } catch (const InputError&) {
      return false;
    }
  }

  const TurnRecord* finished(std::size_t record, std::size_t turn) const {
    const auto found = finished_.find({static_cast<std::int64_t>(record), static_cast<std::int64_t>(turn + 1)});
    return found == finished_.end() ? nullptr : found->second;
  }

  bool is_finished(std::size_t record) const {
    for (std::size_t turn = 0; turn < run_.data.prompts[record].turns.size(); ++turn)
      if (finished(record, turn) == nullptr) return false;
    return true;
  }

  bool answer_prompt(std::size_t record, std::int64_t before) {
    const EvalPrompt& prompt = run_.data.prompts[record];
    PromptRunner runner(run_.setup, prompt.id, prompt.set, static_cast<std::int64_t>(record));
    for (std::size_t i = 0; i < prompt.turns.size(); ++i) {
      TurnRequest request{.user = prompt.turns[i], .cancelled = run_.cancelled};
      if (i == 0 && !run_.prompts.empty()) request.prompt = run_.prompts[record];
      request.retimed = before + static_cast<std::int64_t>(i) < run_.retimed_turns;
      if (run_.cancelled && run_.cancelled()) return false;
      const auto turn = placed(prompt, i, [&] { return runner.next(request); });
      if (!turn) return false;
      if (const TurnRecord* then = finished(record, i)) {
        check_same_tokens(*turn, *then);
      } else {
        keep(prompt, *turn, runner);
      }
    }
    return true;
  }

  // Trace and dump first: what they have beyond the journal is cut off or told once more, what they lack is lost.
  void keep(const EvalPrompt& prompt, const TurnRecord& turn, const PromptRunner& runner) {
    if (run_.trace != nullptr && !turn.error) run_.trace->add(*runner.traced());
    const std::optional<std::string> complaint = complaint_about(prompt, turn, runner);
    folder_.add(turn);
    if (run_.on_turn) run_.on_turn(turn);
    if (complaint && run_.on_complaint) run_.on_complaint(*complaint);
  }

  std::optional<std::string> complaint_about(const EvalPrompt& prompt, const TurnRecord& turn,
                                             const PromptRunner& runner) const {
    if (turn.error) return fmt::format("{}: turn {}: {}", run_.data.place(prompt), turn.turn, *turn.error);
    std::optional<std::string> line = difference_text(turn);
    if (line && run_.setup.dumper != nullptr)
      *line +=
          "; dump: " +
          run_.setup.dumper->write(mismatch_dump(*runner.traced(), turn.baseline->tokens, turn.baseline->finish_reason))
              .string();
    return line;
  }

  void check_same_tokens(const TurnRecord& now, const TurnRecord& then) const {
    if (now.tokens == then.tokens) return;
    input_error("{}: prompt {}, turn {}: other tokens than the run had, expected the same",
                folder_.path().parent_path().parent_path().string(), in_quotes(text_of(now.prompt_id)), now.turn);
  }

  const RankRun& run_;
  RankFolder& folder_;
  std::map<TurnPlace, const TurnRecord*> finished_;
};

}  // namespace

bool answer_share(const RankRun& run, const std::vector<TurnRecord>& finished, RankFolder& folder) {
  return Share(run, finished, folder).answer();
}

void check_turns(const std::vector<TurnRecord>& turns, const PromptSet& data, const std::filesystem::path& where) {
  for (const TurnRecord& turn : turns) {
    const auto record = static_cast<std::size_t>(turn.record);
    const EvalPrompt* prompt = record < data.prompts.size() ? &data.prompts[record] : nullptr;
    if (prompt == nullptr || prompt->id != turn.prompt_id || prompt->set != turn.set || turn.turn < 1 ||
        turn.turn > static_cast<std::int64_t>(prompt->turns.size()))
      input_error("{}: turn {} of prompt {} is not that of record {} of the data", where.string(), turn.turn,
                  in_quotes(text_of(turn.prompt_id)), turn.record);
  }
}

ShareSize share_of(const RankPlace& place, const PromptSet& data, const std::vector<TurnRecord>& turns) {
  ShareSize size;
  for (std::size_t record = 0; record < data.prompts.size(); ++record)
    if (place.owns(record)) size.turns += static_cast<std::int64_t>(data.prompts[record].turns.size());
  for (const TurnRecord& turn : turns) size.finished += place.owns(static_cast<std::size_t>(turn.record)) ? 1 : 0;
  return size;
}

std::set<int> unfinished_ranks(const std::set<TurnPlace>& turns, const PromptSet& data, int world) {
  std::vector<std::size_t> left;  // turns of each prompt
  for (const EvalPrompt& prompt : data.prompts) left.push_back(prompt.turns.size());
  for (const auto& [record, turn] : turns) --left.at(static_cast<std::size_t>(record));
  std::set<int> ranks;
  for (std::size_t record = 0; record < left.size(); ++record)
    if (left[record] > 0) ranks.insert(static_cast<int>(record % static_cast<std::size_t>(world)));
  return ranks;
}

}  // namespace espalier
