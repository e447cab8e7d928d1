// Finds the pickles in any content: a file, a record of an archive, a member of a tar, and what is
// compressed within them; and whether a file has all that its own metadata says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/bytes/part.hpp"
#include "runtime/base/zip/deflate.hpp"
#include "runtime/services/inspect/list_globals.hpp"
#include "runtime/services/inspect/pickle_collector.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

using bytes::Part;

// What content of `size` bytes may be by its first ones. Readers differ, so it may be several.
struct Looks {
  bool pickle = false;
  bool zip = false;
  bool tar = false;
  bool array = false;     // of numpy
  bool deflated = false;  // gzip or zlib
  bool packed = false;    // as joblib inflates it and nothing here does
  bool any() const noexcept { return pickle || zip || tar || array || deflated || packed; }
};
Looks looks_of(std::span<const std::byte> head, std::uint64_t size);
bool is_array(const bytes::ByteSource& content);  // of numpy, as far as can be read

struct Content {
  const bytes::ByteSource& bytes;
  std::uint64_t base = 0;       // its offset in the file, or that of what it was inflated from
  std::string name = {};        // of the record or member, with those around it; empty for a file
  int nesting = 0;              // the number of archives that it lies in
  bool is_torchscript = false;  // it is a record of TorchScript

  std::string inner(std::string_view record) const {
    return name.empty() ? std::string(record) : name + "//" + std::string(record);
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

  // Scans what the first bytes say that it may be, and what lies behind that, as readers that are
  // called again do. What stops the scan becomes a fault.
  void look_into(const Content& content);
  // What lies behind `at`, which was looked at; nothing if that is 0.
  void look_behind(const Content& content, std::uint64_t at);
  // The same as look_into() of what is named as pickles, all of which is in memory.
  void look_into_pickles(const Content& content, std::span<const std::byte> bytes);

  // These fail if the content is no archive of that kind.
  Result<void> scan_zip(const Content& content);
  Result<void> scan_tar(const Content& content);
  // Inflates it, unless its first bytes tell that nothing of ours is in it.
  Result<void> scan_deflated(const Content& content);
  // Scans pickles from the first byte on: the stream of torch before 1.6, or bare ones. Returns
  // false if there is none; a file that `is_surely` one counts, whatever is wrong with it.
  Result<bool> scan_pickles(const Content& content, bool is_surely);
  bool is_legacy() const noexcept { return is_legacy_; }       // of the last ones
  std::uint64_t pickled() const noexcept { return pickled_; }  // the length of the last ones

 private:
  class Archive;
  void add_fault(const Content& content, Error error);
  // What is first in the content; the length of it, or 0 if that is not told.
  std::uint64_t look_at_first(const Content& content, int& archives);
  std::uint64_t look_at_others(const Content& content, const Looks& looks);  // than a pickle
  std::uint64_t length_of_stream(const Content& content);                    // of torch before 1.6
  // The length of an array of numpy (.npy); one of objects is a pickle behind the header.
  Result<std::uint64_t> scan_array(const Content& content);
  Result<PickleCollector::Added> add_pickles(const Content& content, std::uint64_t length);
  void drop_storages(std::size_t before);
  // False if the first bytes tell that nothing in compressed content of `size` is of ours.
  bool may_hold_something(const bytes::ByteSource& compressed, std::uint64_t size,
                          zip::Wrapping wrapping);

  const OpenOptions& options_;
  FileGlobals& into_;
  PickleCollector collector_;
  std::uint64_t bytes_left_;  // for pickles that are read, and for what is inflated
  std::uint64_t heads_left_;  // for first bytes that are inflated
  bool is_legacy_ = false;
  std::uint64_t pickled_ = 0;
};

bool is_named_as_pickle(std::string_view name);
bool is_named_as_code(std::string_view name);

struct Wholeness {
  // That it is damaged, truncated or was never written, or, for a format without pickles, any
  // reason for which an open refuses it. None for a file of no format that is opened.
  std::optional<Error> damage;
  std::uint64_t unread_bytes = 0;  // CheckpointInfo::unread_bytes
  std::uint64_t hole_bytes = 0;    // see hole_bytes()
};

// Parses the metadata of `content`, all of `file` or the part of it from `begin` on, as an open of
// `path` does, and maps nothing. Without a file, holes are not looked for.
Wholeness look_for_damage(const bytes::ByteSource& content, const os::File* file,
                          std::uint64_t begin, const std::filesystem::path& path,
                          const OpenOptions& options);

}  // namespace weightmap
