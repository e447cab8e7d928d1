// What is on the disk of a file that is being fetched, for the fetch that goes on after this one.
//
// A text. Each line is a record behind its CRC-32 in eight hexadecimal digits: the first names the
// version of the remote file, each other one a range that is on the disk: "offset length". A line
// that its writer could not finish counts for nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/base/bytes/range_set.hpp"
#include "weightmap/remote.hpp"

namespace weightmap {

// The whole of a new journal. Two files of one version have the same.
std::string first_line(const std::string& source_name, const RemoteVersion& version);
std::string lines_of(std::span<const ByteRange> ranges);

// Returns the ranges of a journal that begins with this line. Empty for any other text: one of
// another version, or damaged, or with ranges that leave a file of `size` bytes.
bytes::RangeSet read_journal(std::string_view text, std::string_view first, std::uint64_t size);

}  // namespace weightmap
