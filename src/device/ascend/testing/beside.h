// A card with the fake beside it: every call that the device makes is made on both, one after the other, and where they
// differ it is told at which call. Codes are compared, those of the wait for each operator too, and after each operator
// the elements of its outputs, within tolerances.h. What the card computed is then copied to the fake, so that each
// call is judged by itself and the first one that is told is the first one that differs.
//
// Steps are not captured: they run op by op, as they must to be looked at. Pinned memory and downloads are the card's
// alone. For one device at a time.
#pragma once

#include <functional>
#include <string>

#include "device/ascend/acl.h"

namespace espalier::ascend {

// "call 812, aclnnMm: f32 [2, 64], element 3: the card has 0.5, the fake 0.25, 1e-06 apart is allowed"
using TellDifference = std::function<void(const std::string&)>;

// For LibraryOptions::look: gives the table of a card, or of what stands in for one, to both. The newest fake of the
// build is told to be the card's chip and version.
std::function<void(Api&)> beside_the_fake(TellDifference tell);

}  // namespace espalier::ascend
