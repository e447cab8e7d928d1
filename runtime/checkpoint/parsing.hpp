// Reads what the files of a checkpoint say: first one of them, which may name others, then all.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/bytes/part.hpp"
#include "runtime/checkpoint/formats.hpp"
#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// The steps are taken in this order. `sources` gets the files that named() tells of before
// finish().
class Parsing {
 public:
  // All three must outlive this.
  Parsing(const Sources& sources, const OpenOptions& options, OpenStats& stats)
      : sources_(sources), options_(options), stats_(stats) {}

  // Tells the format of the first files. `leading`: see GivenFiles.
  Result<void> identify(std::size_t leading);
  // nullptr: each file has a format of its own.
  const FormatRow* row() const noexcept { return row_; }
  format::Input& first() noexcept { return inputs_.front(); }

  Result<void> read_first();
  // nullptr: the sources are all files.
  const NamedFiles* named() const noexcept { return named_ ? &*named_ : nullptr; }

  Result<std::unique_ptr<ParsedFiles>> finish() &&;

 private:
  Result<void> parse_first();
  Result<void> check_is_alone() const;
  Result<format::Parsed> parse_all();

  const Sources& sources_;
  const OpenOptions& options_;
  OpenStats& stats_;
  std::unique_ptr<ParsedFiles> made_ = std::make_unique<ParsedFiles>();
  std::optional<bytes::Part> member_;  // see SourceFile
  std::vector<format::Input> inputs_;  // of the leading files
  const FormatRow* row_ = nullptr;
  std::optional<NamedFiles> named_;
};

}  // namespace weightmap
