#include "examples/serving/model.hpp"

#include <utility>

namespace serving {
namespace {

using weightmap::Checkpoint;
using weightmap::CheckpointState;
using weightmap::Error;
using weightmap::ErrorCode;
using weightmap::failure;
using weightmap::NamedTensor;
using weightmap::Result;

Result<Embedding> first_embedding(const Checkpoint& checkpoint) {
  for (const NamedTensor& tensor : checkpoint.tensors())
    if (auto embedding = Embedding::of(tensor)) return embedding;
  return failure(ErrorCode::invalid_argument, "there is no matrix of real numbers");
}

Result<Embedding> find_embedding(const Checkpoint& checkpoint, const std::string& name) {
  if (name.empty()) return first_embedding(checkpoint);
  return checkpoint.get(name).and_then(Embedding::of);
}

}  // namespace

Result<std::shared_ptr<const Model>> Model::open(const std::filesystem::path& path,
                                                 const std::string& tensor) {
  weightmap::OpenOptions options;
  options.protection = weightmap::Protection::guard;
  auto checkpoint = Checkpoint::open(path, options);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  auto embedding = find_embedding(*checkpoint, tensor);
  if (!embedding) {
    Error error = embedding.error();
    if (error.file.empty()) error.file = path;
    return tl::unexpected<Error>(std::move(error));
  }
  return std::shared_ptr<const Model>(new Model(std::move(*checkpoint), *embedding));
}

bool Model::is_whole() const noexcept {
  const CheckpointState state = checkpoint_.state();
  return state != CheckpointState::lost && state != CheckpointState::modified;
}

}  // namespace serving
