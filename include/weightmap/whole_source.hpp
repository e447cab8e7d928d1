// A remote file that can be read by one request for all of it: of a server that knows no ranges.
#pragma once

#include <cstddef>
#include <span>

#include "weightmap/export.hpp"
#include "weightmap/range_source.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// What WholeSource::read_whole() hands the file to. An error ends it, and is returned.
class WEIGHTMAP_API WholeReader {
 public:
  virtual ~WholeReader() = default;
  // Before the first byte. Called once more if the answer broke off: then all of it comes again.
  virtual Result<void> begins(const RemoteVersion& version) = 0;
  // The bytes that come next.
  virtual Result<void> take(std::span<const std::byte> bytes) = 0;
};

// A RangeSource may be one, too; fetch() looks for it by dynamic_cast.
class WEIGHTMAP_API WholeSource {
 public:
  virtual ~WholeSource() = default;
  // True once identify() has failed since the server answers with the whole file.
  virtual bool has_no_ranges() const noexcept = 0;
  // Asks for all of the file. Fails with not_found if the server has none to give, with unsupported
  // if what it sends is a web page, compressed, or of unknown length, else as RangeSource::read().
  virtual Result<void> read_whole(WholeReader& reader) = 0;
};

}  // namespace weightmap
