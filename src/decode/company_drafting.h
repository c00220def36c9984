// Whether a company of answers drafts. They share every step, so it is decided for all of them at once, for each size
// of company and each way of drafting apart: what was won among few says nothing of many, nor rounds that the host
// drives of such as stay on the device. What a company may expect is computed beforehand from what guesses were lately
// worth (guess_worth.h); where that is too little its drafters rest from the prompt on and hear nothing, but for those
// of a scout, one answer that finds out for all, seldom enough to cost next to nothing. Who is alone needs nobody to
// find out for him. docs/budgets.md has the rules. Times are arguments. One thread at a time.
#pragma once

#include <array>
#include <cstdint>

#include "decode/patience.h"

namespace espalier {

enum class DraftWay { lookup, host, resident };  // without a network; with one, driven by the host, or on the device

// Companies of as many answers are of one class: 1, 2, 3 to 4, 5 to 8, ...
inline constexpr std::size_t kCompanySizes = 12;
std::size_t company_size(std::int64_t answers);

// What a level of drafts is taken to cost where nobody has timed one: a share of a step of as many rows.
inline constexpr double kUsualLevelShare = 0.1;

// Who shares the steps to come.
struct DraftCompany {
  int answers = 1;                    // those included whose prompts are read, or will be
  std::int64_t trees = 1;             // of a round of theirs that stays on the device, which may be padded
  DraftWay way = DraftWay::lookup;    // in which most of their rounds would be drafted
  DraftWay round = DraftWay::lookup;  // likewise, this one
};

// What drafting would bring, as tokens per second over those without.
struct Prospects {
  double gain = 1;  // if guesses are worth what they lately were
  double hope = 1;  // if they were good ones
};

// Who hears what is committed.
enum class Hearing { everybody, as_before, scout };

// What the drafts of a round brought, and what they cost.
struct DraftOutcome {
  std::int64_t accepted = 0;
  double seconds = 0;        // beyond those of a plain round,
  double plain_seconds = 0;  // which takes so long
  std::int64_t answers = 1;  // in it
};

class CompanyDrafting {
 public:
  // Drafting has to bring so much; and more, where drafters are to be made ready for it.
  static constexpr double kLeastGain = 1.02, kGainToBegin = 1.05;

  // For the rounds of such a company until this is called again.
  void decide(std::int64_t answers, DraftWay way, const Prospects& prospects);
  Hearing hearing() const;
  // In a pause that is so long that drafters need not be ready.
  bool rests() const { return own().patience.rests(); }

  // Each asked once a round. Whether all draft; of those that do not, whether the scout does, and who has been told
  // what his answer may well say.
  bool drafts() { return own().pays && own().patience.drafts(); }
  bool scouts() { return size().scout.drafts(); }
  bool foretold_draft() { return size().foretold.drafts(); }
  bool foretold_rest() const { return size().foretold.rests(); }

  // Of those that were asked in a round.
  void settle(const DraftOutcome& outcome) { settle(own().patience, outcome, Patience::kProbeShare); }
  void settle_scout(const DraftOutcome& outcome);
  void settle_foretold(const DraftOutcome& outcome) { settle(size().foretold, outcome, Patience::kProbeShare); }
  // More has lately been won than lost by these.
  bool wins() const { return own().patience.wins(); }
  bool scout_wins() const { return size().scout.wins(); }
  bool foretold_wins() const { return size().foretold.wins(); }

 private:
  struct Decision {
    bool pays = false;
    Patience patience = {};
  };
  struct Size {
    std::array<Decision, 3> ways = {};
    Patience scout = {}, foretold = {};
  };

  const Size& size() const { return sizes_[size_]; }
  Size& size() { return sizes_[size_]; }
  const Decision& own() const { return size().ways[static_cast<std::size_t>(way_)]; }
  Decision& own() { return size().ways[static_cast<std::size_t>(way_)]; }
  static void settle(Patience& patience, const DraftOutcome& outcome, double probe_share);

  std::array<Size, kCompanySizes> sizes_ = {};
  // What was decided last.
  std::size_t size_ = 0;
  DraftWay way_ = DraftWay::lookup;
  Prospects prospects_ = {};
};

}  // namespace espalier
