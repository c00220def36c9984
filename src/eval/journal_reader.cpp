#include "eval/journal_reader.h"

#include "eval/rank_folder.h"
#include "eval/turn_journal.h"

namespace espalier {

const std::set<TurnPlace>& JournalReader::look() {
  for (const int rank : run_.ranks()) {
    const std::filesystem::path journal = run_.rank_path(rank) / kJournalName;
    const FileState state = state_of(journal);  // before it is read: what comes meanwhile is read next time
    if (state == states_[rank]) continue;
    for (const TurnRecord& turn : read_journal(journal)) turns_.emplace(turn.record, turn.turn);
    states_[rank] = state;
  }
  return turns_;
}

}  // namespace espalier
