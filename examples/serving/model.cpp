#include "examples/serving/model.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace serving {
namespace {

using weightmap::Checkpoint;
using weightmap::Error;
using weightmap::ErrorCode;
using weightmap::failure;
using weightmap::Generation;
using weightmap::NamedTensor;
using weightmap::Result;

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

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

Result<Generation> generation_of(const std::filesystem::path& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    const int reason = errno;
    return tl::unexpected<Error>(
        {ErrorCode::io, std::system_category().message(reason), Error::no_offset, path, reason});
  }
  return Generation{.device = status.st_dev,
                    .inode = status.st_ino,
                    .size = static_cast<std::uint64_t>(status.st_size),
                    .mtime_ns = nanoseconds(status.st_mtim),
                    .ctime_ns = nanoseconds(status.st_ctim)};
}

Result<std::shared_ptr<const Model>> Model::open(const std::filesystem::path& path,
                                                 const std::string& tensor) {
  // Before the file is opened: if it is replaced in between, the model looks older than it is, and
  // is opened once more.
  const auto generation = generation_of(path);
  if (!generation) return tl::unexpected<Error>(generation.error());
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  auto embedding = find_embedding(*checkpoint, tensor);
  if (!embedding) {
    Error error = embedding.error();
    if (error.file.empty()) error.file = path;
    return tl::unexpected<Error>(std::move(error));
  }
  return std::shared_ptr<const Model>(new Model(std::move(*checkpoint), *embedding, *generation));
}

}  // namespace serving
