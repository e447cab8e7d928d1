// The version of a remote file, and what finding it out reads of it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// How much of a file is read before it is known how much is needed.
struct FirstReads {
  std::size_t head = 0;
  std::size_t tail = 0;
};

// Those of a file of this name. `is_sibling`: many files are opened at once, so less is read of
// each.
FirstReads first_reads(const std::string& name, bool is_sibling = false);

// What identify() tells of a file.
struct Identified {
  RemoteVersion version;
  std::vector<std::byte> head;  // of the file, all of it if it is short
  std::vector<std::byte> tail;
};

// Whether both ends of a file are asked for at once, which is fastest; or the tail once the head
// has come, so that no byte of a short file comes twice.
enum class Ends : bool { together, in_turn };

// Finds out the version of a file, once for each source. Errors name the source.
Result<Identified> identify(RangeSource& source, FirstReads first, Ends ends = Ends::together);

// Fails if the store has another version of this file by now. `name`: of the file, in its folder.
Result<void> check_version(RangeSource& source, const RemoteVersion& version,
                           const std::string& name);

// The error with the source's name.
tl::unexpected<Error> about_source(const RangeSource& source, Error error);

// Reads parts of a file into their memory, in pieces several of which can be on their way at a
// time.
Result<void> read_parts(RangeSource& source, std::vector<RangeRequest> parts);

}  // namespace weightmap
