#include "eval/rank_run.h"

#include <algorithm>
#include <map>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "decode/step_times.h"
#include "engine/near_tie.h"
#include "eval/summary.h"

namespace espalier {
namespace {

constexpr const char* kShortPrompt = "Hello";

// What is left to be answered of the data.
struct Task {
  std::size_t record = 0;
  std::int64_t before = 0;  // turns of the data before this prompt
};

class Share {
 public:
  Share(const RankRun& run, const std::vector<TurnRecord>& finished, RankFolder& folder)
      : run_(run), setup_(&run.setup), folder_(folder) {
    for (const TurnRecord& turn : finished) finished_.emplace(TurnPlace{turn.record, turn.turn}, &turn);
    std::int64_t before = 0;
    for (std::size_t record = 0; record < run_.data.prompts.size(); ++record) {
      if (run_.place.owns(record) && !is_finished(record)) tasks_.push_back({record, before});
      before += static_cast<std::int64_t>(run_.data.prompts[record].turns.size());
    }
    late_.resize(tasks_.size());
    done_.resize(tasks_.size());
  }

  bool answer() {
    if (tasks_.empty()) return true;
    if (run_.parallel > 1) return answer_in_company();
    warm_up_on(first_prompt());
    const double begin = steady_seconds();
    for (std::size_t task = 0; task < tasks_.size(); ++task)
      if (!answer_prompt(task)) return false;
    if (timed()) speed_.seconds = steady_seconds() - begin - plain_seconds_;
    return true;
  }

  const ShareSpeed& speed() const { return speed_; }

 private:
  // A device that only stands in for another has no speed.
  bool timed() const { return !run_.setup.model.device().is_stand_in(); }
  const EvalPrompt& first_prompt() const { return run_.data.prompts[tasks_.front().record]; }

  bool answer_in_company() {
    EvalSetup setup = run_.setup;
    setup.decoder.parallel = run_.parallel;
    Company company(setup.model, setup.decoder, setup.speculation, setup.compares() || setup.learn);
    setup.company = &company;
    setup_ = &setup;
    company.run(1, [&](int) { warm_up_on(first_prompt()); });
    const double begin = steady_seconds(), plain_before = company.plain_seconds();
    std::size_t next = 0;
    const int conversations = static_cast<int>(std::min(static_cast<std::size_t>(run_.parallel), tasks_.size()));
    try {
      company.run(conversations, [&](int) { converse(next); });
    } catch (...) {
      write_what_is_there();
      throw;
    }
    if (stopped_) write_what_is_there();
    if (timed()) speed_.seconds = steady_seconds() - begin - (company.plain_seconds() - plain_before);
    return !stopped_;
  }

  // One prompt after another, of those that nobody has begun.
  void converse(std::size_t& next) {
    try {
      while (!stopped_ && next < tasks_.size())
        if (!answer_prompt(next++)) stopped_ = true;
    } catch (...) {
      stopped_ = true;
      throw;
    }
  }

  bool is_cancelled() const { return stopped_ || (run_.cancelled && run_.cancelled()); }

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
        warm_up(*setup_, prompt, run_.cancelled);
      } catch (const InputError&) {
        if (!answers_anything()) throw;
      }
    });
  }

  bool answers_anything() const {
    try {
      warm_up(*setup_, {.turns = {kShortPrompt}}, run_.cancelled);
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

  bool answer_prompt(std::size_t task) {
    const auto& [record, before] = tasks_[task];
    const EvalPrompt& prompt = run_.data.prompts[record];
    PromptRunner runner(*setup_, prompt.id, prompt.set, static_cast<std::int64_t>(record));
    for (std::size_t i = 0; i < prompt.turns.size(); ++i) {
      TurnRequest request{.user = prompt.turns[i], .cancelled = [this] { return is_cancelled(); }};
      if (i == 0 && !run_.prompts.empty()) request.prompt = run_.prompts[record];
      request.retimed = before + static_cast<std::int64_t>(i) < run_.retimed_turns;
      if (is_cancelled()) return false;
      const auto turn = placed(prompt, i, [&] { return runner.next(request); });
      if (!turn) return false;
      speed_.tokens += static_cast<std::int64_t>(turn->tokens.size());
      if (const TurnRecord* then = finished(record, i)) {
        check_same_tokens(*turn, *then);
      } else if (task == first_) {
        write(task, *turn, runner.traced());
      } else {
        late_[task].push_back({*turn, runner.traced()});
      }
    }
    plain_seconds_ += runner.plain_seconds();
    end_task(task);
    return true;
  }

  // The turns of the next prompt that is not complete, as far as they are there, follow at once.
  void end_task(std::size_t task) {
    done_[task] = true;
    while (first_ < tasks_.size() && done_[first_]) {
      ++first_;
      if (first_ < tasks_.size()) write_late(first_);
    }
  }

  void write_late(std::size_t task) {
    for (const LateTurn& late : std::exchange(late_[task], {})) write(task, late.turn, late.traced);
  }

  // Nobody goes on with the first: what others have finished is not lost for it.
  void write_what_is_there() {
    for (std::size_t task = first_; task < tasks_.size(); ++task) write_late(task);
  }

  // Trace and dump first: what they have beyond the journal is cut off or told once more, what they lack is lost.
  void write(std::size_t task, const TurnRecord& turn, const std::optional<TracedTurn>& traced) {
    if (std::exchange(writing_, true)) return;  // an earlier one failed: the trace may have what the journal has not
    if (run_.trace != nullptr && !turn.error) run_.trace->add(*traced);
    const std::optional<std::string> complaint = complaint_about(run_.data.prompts[tasks_[task].record], turn, traced);
    folder_.add(turn);
    writing_ = false;
    if (run_.on_turn) run_.on_turn(turn);
    if (complaint && run_.on_complaint) run_.on_complaint(*complaint);
  }

  std::optional<std::string> complaint_about(const EvalPrompt& prompt, const TurnRecord& turn,
                                             const std::optional<TracedTurn>& traced) const {
    if (turn.error) return fmt::format("{}: turn {}: {}", run_.data.place(prompt), turn.turn, *turn.error);
    if (turn.baseline && is_near_tie(turn.baseline->margin)) return std::nullopt;  // the summary counts those
    std::optional<std::string> line = difference_text(turn);
    if (line && setup_->dumper != nullptr)
      *line +=
          "; dump: " +
          setup_->dumper->write(mismatch_dump(*traced, turn.baseline->tokens, turn.baseline->finish_reason)).string();
    return line;
  }

  void check_same_tokens(const TurnRecord& now, const TurnRecord& then) const {
    if (now.tokens == then.tokens) return;
    input_error("{}: prompt {}, turn {}: other tokens than the run had, expected the same",
                folder_.path().parent_path().parent_path().string(), in_quotes(text_of(now.prompt_id)), now.turn);
  }

  // A turn that was finished before those of an earlier prompt.
  struct LateTurn {
    TurnRecord turn;
    std::optional<TracedTurn> traced;
  };

  const RankRun& run_;
  const EvalSetup* setup_;
  RankFolder& folder_;
  std::map<TurnPlace, const TurnRecord*> finished_;
  std::vector<Task> tasks_;  // in the order of the data
  std::size_t first_ = 0;    // of them, that is not complete: its turns are written at once
  std::vector<std::vector<LateTurn>> late_;
  std::vector<bool> done_;
  bool stopped_ = false;  // whoever is in company ends too
  bool writing_ = false;
  ShareSpeed speed_;
  double plain_seconds_ = 0;
};

}  // namespace

bool answer_share(const RankRun& run, const std::vector<TurnRecord>& finished, RankFolder& folder, ShareSpeed* speed) {
  Share share(run, finished, folder);
  const bool done = share.answer();
  if (speed != nullptr) *speed = share.speed();
  return done;
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
