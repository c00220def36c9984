// Text with its provenance. A chat template's own words may contain control tokens (<|im_start|>); what a user typed
// may not, whatever it spells. Pieces are tokenised as one text: a control token is recognised only where every byte
// of it comes from pieces that allow it, ordinary tokens may span pieces.
#pragma once

#include <string>

namespace espalier {

struct TextPiece {
  std::string text;
  bool allow_special = false;
};

}  // namespace espalier
