// How a run or a suite was begun, as its manifest.json or suite.json says: what --resume asks for once more. Believes
// nothing. A value and pure functions, but for the file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace espalier {

struct RunBeginning {
  std::vector<std::string> words = {};  // behind the program's name: "eval", "run", ...
  std::string directory = {};           // in which paths were meant; empty: not known
};

// Throws InputError where there is neither file, or another command wrote it.
RunBeginning read_beginning(const std::filesystem::path& folder);

// What `now`, the command line of a process that resumes `out`, asks for: the words of the beginning, then its own,
// which win. Throws InputError where code of answers ran unconfined and `now` does not say so once more: nobody else's
// record may let code run free.
std::vector<std::string> words_to_resume(const RunBeginning& beginning, const std::vector<std::string>& now,
                                         const std::string& out);

}  // namespace espalier
