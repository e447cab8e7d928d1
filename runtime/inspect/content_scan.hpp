// Finds the pickles in any content: a file, a record of an archive, a member of a tar, and what is
// compressed within them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/bytes/byte_source.hpp"
#include "runtime/bytes/part.hpp"
#include "runtime/inspect/pickle_collector.hpp"
#include "runtime/zip/inflate.hpp"
#include "weightmap/globals.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

using bytes::Part;

// What content may be by its first bytes.
enum class Look : std::uint8_t { nothing, pickle, zip, tar, gzip, objects };
Look look_of(std::span<const std::byte> head) noexcept;

struct Content {
  const bytes::ByteSource& bytes;
  std::uint64_t base = 0;       // its offset in the file, or that of what it was inflated from
  std::string name = {};        // of the record or member, with those around it; empty for a file
  int nesting = 0;              // the number of archives that it lies in
  bool is_torchscript = false;  // it is a record of TorchScript

  std::string inner(std::string_view record) const {
    return name.empty() ? std::string(record) : name + "/" + std::string(record);
  }
};

class ContentScan {
 public:
  ContentScan(const OpenOptions& options, FileGlobals& into)
      : options_(options),
        into_(into),
        collector_(options, into),
        bytes_left_(options.limits.pickle_bytes),
        heads_left_(options.limits.copied_bytes) {}

  // Scans what the first bytes say that it is. What stops the scan becomes a fault.
  void look_into(const Content& content);

  // These fail if the content is no archive of that kind.
  Result<void> scan_zip(const Content& content);
  Result<void> scan_tar(const Content& content);
  // Inflates it, unless its first bytes tell that nothing of ours is in it.
  Result<void> scan_gzip(const Content& content);
  // An array of numpy (.npy) that may be one of objects: a pickle behind the header.
  Result<void> scan_objects(const Content& content);
  // Scans pickles from the first byte on: the stream of torch before 1.6, or bare ones. Returns
  // false if there is none; a file that `is_surely` one counts, whatever is wrong with it.
  Result<bool> scan_pickles(const Content& content, bool is_surely);
  bool is_legacy() const noexcept { return is_legacy_; }  // of the last one

 private:
  class Archive;
  void add_fault(const Content& content, Error error);
  Result<bool> add_pickles(const Content& content, std::uint64_t length);
  void drop_storages(std::size_t before);
  // What compressed content is by its first bytes; nullopt if only inflating all of it tells.
  std::optional<Look> look_inside(const bytes::ByteSource& compressed, zip::Wrapping wrapping);

  const OpenOptions& options_;
  FileGlobals& into_;
  PickleCollector collector_;
  std::uint64_t bytes_left_;  // for pickles that are read, and for what is inflated
  std::uint64_t heads_left_;  // for first bytes that are inflated
  bool is_legacy_ = false;
};

bool is_named_as_pickle(std::string_view name);
bool is_named_as_code(std::string_view name);

}  // namespace weightmap
