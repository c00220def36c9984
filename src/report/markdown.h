// The tables of a report as Markdown, to be pasted into a page of a repository or a message. A pure function of what
// the page shows; charts, turns and manifests are left to the page.
#pragma once

#include <string>

#include "report/page.h"

namespace espalier {

std::string to_markdown(const Table& table);
std::string page_markdown(const Page& page);

}  // namespace espalier
