#include "mmap/process/shared_block.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <utility>

#include "mmap/mapping.hpp"
#include "mmap/memory/sealed_memory.hpp"
#include "mmap/os_error.hpp"
#include "mmap/write/write_all.hpp"
#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::os {
namespace {

namespace ipc = boost::interprocess;

tl::unexpected<Error> about(const RuntimeDirectory& directory, const std::string& name,
                            Error error) {
  error.message.insert(0, bytes::quote((directory.path() / name).native(), 4096) + ": ");
  error.file.clear();
  return tl::unexpected<Error>(std::move(error));
}

Result<void> write_parts(NewFile& file, BlockParts parts) {
  for (const auto part : parts) TRY(file.write(part));
  return {};
}

}  // namespace

Result<SharedBlock> SharedBlock::open(const RuntimeDirectory& directory, const std::string& name) {
  std::uint64_t size = 0;
  TRY_ASSIGN(const UniqueFd file, open_own_file(directory, name, O_RDONLY, &size));
  return map(file.get(), size);
}

Result<SharedBlock> SharedBlock::find(const std::string& name) {
  std::uint64_t size = 0;
  TRY_ASSIGN(const UniqueFd file, find_own_file(name, &size));
  return map(file.get(), size);
}

Result<SharedBlock> SharedBlock::of_sealed(int descriptor) {
  if (!is_sealed(descriptor))
    return failure(ErrorCode::invalid_argument,
                   "the descriptor " + std::to_string(descriptor) + " is not sealed memory");
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return os_failure("look at the shared block");
  return map(descriptor, static_cast<std::uint64_t>(status.st_size));
}

// Private, which shares the same pages: before Linux 6.7 what is sealed cannot be mapped otherwise.
Result<SharedBlock> SharedBlock::map(int descriptor, std::uint64_t size) {
  if (size == 0) return failure(ErrorCode::corrupt, "the shared block is empty");
  SharedBlock block;
  try {
    block.region_ = ipc::mapped_region(Mappable(descriptor), ipc::read_private, 0, size);
  } catch (const ipc::interprocess_exception& refusal) {
    return tl::unexpected<Error>(os_error("map the shared block", refusal.get_native_error()));
  }
  return block;
}

Result<void> publish_block(const RuntimeDirectory& directory, const std::string& name,
                           BlockParts parts) {
  // What others could have written is removed: a new file takes over the owner and the permissions
  // of the one that it replaces.
  const Result<UniqueFd> old = open_own_file(directory, name, O_RDONLY);
  if (!old && old.error().os_error != ENOENT) remove_block(directory, name);
  NewFileOptions options;
  options.mode = S_IRUSR | S_IWUSR;
  options.durable = false;
  Result<NewFile> file = NewFile::create_in(directory.descriptor(), name, options);
  if (!file) return about(directory, name, file.error());
  Result<void> written = write_parts(*file, parts);
  if (written) written = file->commit();
  return written ? written : about(directory, name, written.error());
}

Result<UniqueFd> seal_block(BlockParts parts) {
  std::size_t size = 0;
  for (const auto part : parts) size += part.size();
  TRY_ASSIGN(UniqueFd memory, make_memfd(size, "weightmap-catalog"));
  std::uint64_t offset = 0;
  for (const auto part : parts) {
    TRY(write_at(memory.get(), offset, part));
    offset += part.size();
  }
  TRY(seal(memory.get()));
  return memory;
}

void remove_block(const RuntimeDirectory& directory, const std::string& name) noexcept {
  ::unlinkat(directory.descriptor(), name.c_str(), 0);
}

}  // namespace weightmap::os
