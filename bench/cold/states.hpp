// The states of a file that samples begin in, and whether it is in one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/cold/raw_file.hpp"
#include "bench/cold/results.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli::bench {

// Why the file cannot be brought into a state, as a sentence; empty: it is in that state.
using WhyNot = std::string;

// A file that engines read, or all files of a checkpoint, seen from outside: it brings the page
// cache into a state and looks at it, and never reads through a mapping that samples do not expect.
class WatchedFile {
 public:
  // `path` may be a folder or an index of shards.
  static Result<WatchedFile> open(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  std::uint64_t bytes() const noexcept;  // of all files

  // Brings the file into the state, unless it is in it already, and proves it.
  WhyNot prepare(Scenario scenario);
  // Lets go of what kept the file in a state, so that others can follow.
  void release() noexcept { held_.clear(); }

  // Of the files, in the page cache.
  Result<std::uint64_t> cached_bytes() const;
  // Of a sample of what is cached, the part in pieces of 2 MiB, 0 to 1; nullopt if not known.
  std::optional<double> huge_part() const;

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const noexcept;
  };
  using Mapping = std::unique_ptr<std::byte, Unmap>;

  WatchedFile(std::string path, Checkpoint checkpoint, std::vector<RawFile> files) noexcept
      : path_(std::move(path)), checkpoint_(std::move(checkpoint)), files_(std::move(files)) {}
  WhyNot make_cold();
  WhyNot make_warm();
  WhyNot make_poisoned();
  bool is_cached() const;
  WhyNot hold(const RawFile& file);
  void read_ahead() const noexcept;

  std::string path_;
  Checkpoint checkpoint_;       // looked at with residency(), never read through
  std::vector<RawFile> files_;  // none of them empty
  std::vector<Mapping> held_;   // keep what is in the page cache there
};

}  // namespace weightmap::cli::bench
