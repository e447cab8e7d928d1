// One version of the checkpoint that is served.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "examples/serving/embedding.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/generation.hpp"

namespace serving {

// Immutable, so threads may share it.
class Model {
 public:
  // Maps the file, guarded against its loss, and finds the embedding. Without the name of one it is
  // the first matrix of real numbers in the file. Fails if the file is no checkpoint or has no such
  // tensor.
  static weightmap::Result<std::shared_ptr<const Model>> open(const std::filesystem::path& path,
                                                              const std::string& tensor);

  const weightmap::Checkpoint& checkpoint() const noexcept { return checkpoint_; }
  const Embedding& embedding() const noexcept { return embedding_; }
  const weightmap::Generation& generation() const noexcept { return checkpoint_.generation(); }
  // Whether its file still has the name it was opened by. One system call.
  bool is_current() const noexcept { return checkpoint_.is_current(); }
  // false: the file was cut short or written to while it was mapped. What was read from it since
  // this was last asked may be wrong.
  bool is_whole() const noexcept;

 private:
  Model(weightmap::Checkpoint checkpoint, const Embedding& embedding) noexcept
      : checkpoint_(std::move(checkpoint)), embedding_(embedding) {}

  weightmap::Checkpoint checkpoint_;
  Embedding embedding_;  // of checkpoint_
};

}  // namespace serving
