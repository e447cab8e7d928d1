#include "tools/bench/cold/plain_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "runtime/base/try.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

constexpr std::size_t block = std::size_t{8} << 20;
constexpr std::size_t huge_page = std::size_t{2} << 20;

bool read_part(int file, std::span<std::byte> memory, std::size_t from, std::size_t end) noexcept {
  while (from < end) {
    const ssize_t got =
        ::pread(file, memory.data() + from, std::min(block, end - from), static_cast<off_t>(from));
    if (got <= 0) return false;
    from += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

Error system_error(const std::string& path, const char* what) {
  const int error = errno;
  return {ErrorCode::io, std::string(what) + ": " + std::generic_category().message(error),
          Error::no_offset, printable(path), error};
}

Result<RawFile> RawFile::open(const std::string& path, int flags) {
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  struct stat facts {};
  if (descriptor.get() < 0 || ::fstat(descriptor.get(), &facts) != 0)
    return tl::unexpected<Error>(system_error(path, "cannot be opened"));
  return RawFile(std::move(descriptor), static_cast<std::uint64_t>(facts.st_size));
}

Result<std::vector<RawFile>> open_sources(const Checkpoint& checkpoint, int flags) {
  std::vector<RawFile> files;
  for (std::size_t i = 0; i < checkpoint.source_count(); ++i) {
    if (checkpoint.source(i).is_copy) break;  // memory, behind all files
    TRY_ASSIGN(RawFile file, RawFile::open(checkpoint.source(i).path.string(), flags));
    files.push_back(std::move(file));
  }
  return files;
}

Result<CopiedFile> CopiedFile::read(const std::string& path) {
  TRY_ASSIGN(const RawFile file, RawFile::open(path));
  const std::size_t size = file.bytes();
  if (size == 0) return CopiedFile({});
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return tl::unexpected<Error>(system_error(path, "cannot be copied"));
  CopiedFile copy({static_cast<std::byte*>(memory), size});
  ::madvise(memory, size, MADV_HUGEPAGE);
  const std::size_t half = size / 2 / huge_page * huge_page;
  bool good = false;
  std::thread other([&] { good = read_part(file.descriptor(), copy.memory_, half, size); });
  const bool mine = read_part(file.descriptor(), copy.memory_, 0, half);
  other.join();
  if (!mine || !good) return tl::unexpected<Error>(system_error(path, "a read failed"));
  return copy;
}

CopiedFile::CopiedFile(CopiedFile&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}

CopiedFile::~CopiedFile() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

Result<TemporaryFolder> TemporaryFolder::create(const std::filesystem::path& parent) {
  std::string name = (parent / ".weightmap-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    return tl::unexpected<Error>(system_error(parent.string(), "cannot make a folder"));
  return TemporaryFolder(name);
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace weightmap::cli::bench
