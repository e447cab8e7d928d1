// One checkpoint, in one file or in many, that is measured, with what its samples need.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/cold/engines.hpp"
#include "bench/cold/results.hpp"
#include "bench/cold/states.hpp"
#include "bench/cold/temporary_folder.hpp"

namespace weightmap::cli::bench {

class BenchFile {
 public:
  // Reads all of the file once, for its checksum. `named` is the tensor that comes first; empty:
  // the usual one. Fails as Checkpoint::open() does, and with invalid_argument if no tensor can be
  // measured, or not that one.
  static Result<BenchFile> open(const std::string& path, const std::string& named);

  // Path, tensors and sizes; no series.
  const FileResults& description() const noexcept { return description_; }
  std::uint64_t checksum() const noexcept { return checksum_; }  // of the tensors that are read

  // A file with the JSON list of names in this order.
  std::string order_file(Order order) const;

  // Why an engine that takes this format cannot read the checkpoint, nor a conversion of it, as a
  // sentence; empty: it can.
  WhyNot why_not(Reads reads) const;

  // Whether it is one file of torch, of which engines for safetensors need a conversion.
  bool is_torch_file() const noexcept;
  // Writes the tensors as safetensors beside the file; this object's end removes them. Why not, as
  // a sentence; empty if it worked. Fails with io only if interrupted().
  Result<WhyNot> convert();

  // The file that engines read: the conversion, if there is one that they take.
  WatchedFile& watched(Reads reads) noexcept {
    return reads == Reads::safetensors && safetensors_ ? *safetensors_ : checkpoint_;
  }
  void release() noexcept;

 private:
  BenchFile(FileResults description, std::string format, std::size_t files, std::uint64_t checksum,
            TemporaryFolder orders, WatchedFile checkpoint) noexcept;

  FileResults description_;
  std::string format_;  // as CheckpointInfo has it
  std::size_t files_;
  std::uint64_t checksum_;
  TemporaryFolder orders_;
  std::optional<TemporaryFolder> converted_;
  WatchedFile checkpoint_;
  std::optional<WatchedFile> safetensors_;
};

}  // namespace weightmap::cli::bench
