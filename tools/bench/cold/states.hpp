// Puts a file into the initial states of samples, and verifies them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/bench/cold/plain_files.hpp"
#include "tools/bench/cold/results.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli::bench {

// The reason why the file cannot be put into a state, as a sentence; empty: it is in that state.
using WhyNot = std::string;

// A file, or all files of a checkpoint, observed from outside: sets and inspects the state of the
// page cache, and never reads through a mapping that samples do not expect.
class WatchedFile {
 public:
  // `path` may be a folder or an index of shards.
  static Result<WatchedFile> open(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  std::uint64_t bytes() const noexcept;  // of all files

  // Puts the file into the state, unless it is in it already, and verifies it.
  WhyNot prepare(Scenario scenario);
  // Releases the mappings that kept the file in a state, so that another can follow.
  void release() noexcept { held_.clear(); }

  // Returns the bytes of the files in the page cache.
  Result<std::uint64_t> cached_bytes() const;
  // Returns the part in pages of 2 MiB, 0 to 1, of sampled cached pages; nullopt if unknown.
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
  Checkpoint checkpoint_;       // inspected with residency(), never read through
  std::vector<RawFile> files_;  // none of them empty
  std::vector<Mapping> held_;   // keep the cached pages in the page cache
};

}  // namespace weightmap::cli::bench
