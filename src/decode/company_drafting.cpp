#include "decode/company_drafting.h"

#include <algorithm>
#include <bit>

namespace espalier {
namespace {

// Who finds out for others costs the time of all of them.
constexpr double kScoutShare = Patience::kProbeShare / 2, kHopelessShare = kScoutShare / 2;

}  // namespace

std::size_t company_size(std::int64_t answers) {
  const auto size =
      static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(answers, 1) - 1)));
  return std::min(size, kCompanySizes - 1);
}

// Who is alone drafts unless not even good guesses would pay: patience knows sooner than he would remember.
void CompanyDrafting::decide(std::int64_t answers, DraftWay way, const Prospects& prospects) {
  size_ = company_size(answers);
  way_ = way;
  prospects_ = prospects;
  Decision& decision = own();
  const double least = decision.pays ? kLeastGain : kGainToBegin;
  decision.pays = answers <= 1 ? prospects.hope > 1 : prospects.gain >= least;
}

// Where it may soon pay, drafters that are ready stay so.
Hearing CompanyDrafting::hearing() const {
  if (own().pays) return Hearing::everybody;
  return prospects_.gain > 1 ? Hearing::as_before : Hearing::scout;
}

void CompanyDrafting::settle_scout(const DraftOutcome& outcome) {
  settle(size().scout, outcome, prospects_.hope < kLeastGain ? kHopelessShare : kScoutShare);
}

// As one of them who has his share of the tokens, and waits as long as all.
void CompanyDrafting::settle(Patience& patience, const DraftOutcome& outcome, double probe_share) {
  const double tokens = 1 + static_cast<double>(outcome.accepted) / static_cast<double>(outcome.answers);
  patience.settle(tokens, outcome.plain_seconds + outcome.seconds, outcome.plain_seconds, probe_share);
}

}  // namespace espalier
