// What the tests of the readers share: a file in memory, and what a reader says about it (library
// espalier_format_testing).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

// A copy of exactly the file's size on the heap, so that the address sanitizer sees a read past its end.
std::vector<std::byte> file_of(std::string_view bytes);

// The message of the InputError that opening throws, "" when the file opens.
std::string complaint(const std::function<void()>& open);

// Tensor data nobody looks at.
std::string zeros(std::size_t count);

}  // namespace espalier
