// A checkpoint under measurement, in one file or many, with the data of its samples.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/cold/engines.hpp"
#include "tools/bench/cold/plain_files.hpp"
#include "tools/bench/cold/results.hpp"
#include "tools/bench/cold/states.hpp"
#include "weightmap/checkpoint_info.hpp"

namespace weightmap::cli::bench {

class BenchFile {
 public:
  // Reads the whole file once, for its checksum. `named` is the tensor to read first; empty: the
  // default. Fails as Checkpoint::open() does, and with invalid_argument if no tensor, or not that
  // one, can be measured.
  static Result<BenchFile> open(const std::string& path, const std::string& named);

  // Path, tensors and sizes; no series.
  const FileResults& description() const noexcept { return description_; }
  std::uint64_t checksum() const noexcept { return checksum_; }  // of the measured tensors

  // Returns a file with the JSON list of names in this order.
  std::string order_file(Order order) const;

  // Returns why an engine for this format can read neither the checkpoint nor a conversion, as a
  // sentence; empty: it can.
  WhyNot why_not(Reads reads) const;

  // True for a single torch file, which engines for safetensors need converted.
  bool is_torch_file() const noexcept;
  // Writes the tensors as safetensors beside the file; the destructor removes them. Returns the
  // reason for a failure as a sentence; empty on success. Fails with io only if interrupted().
  Result<WhyNot> convert();

  // Returns the file that engines read: the conversion if it exists and fits them.
  WatchedFile& watched(Reads reads) noexcept {
    return reads == Reads::safetensors && safetensors_ ? *safetensors_ : checkpoint_;
  }
  void release() noexcept;

 private:
  BenchFile(FileResults description, Format format, std::size_t files, std::uint64_t checksum,
            TemporaryFolder orders, WatchedFile checkpoint) noexcept;

  FileResults description_;
  Format format_;
  std::size_t files_;
  std::uint64_t checksum_;
  TemporaryFolder orders_;
  std::optional<TemporaryFolder> converted_;
  WatchedFile checkpoint_;
  std::optional<WatchedFile> safetensors_;
};

}  // namespace weightmap::cli::bench
