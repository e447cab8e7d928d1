#include "tools/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tools/text.hpp"

namespace weightmap::cli {
namespace {

namespace fs = std::filesystem;

Error system_fault(const std::string& path, const char* what) {
  return {ErrorCode::io, std::string(what) + ": " + std::generic_category().message(errno),
          Error::no_offset, printable(path)};
}

}  // namespace

OutputFile::OutputFile(std::string path, std::string temporary, int descriptor) noexcept
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<OutputFile> OutputFile::create(const std::string& path, const std::string& input) {
  std::error_code ignored;
  if (fs::equivalent(path, input, ignored))
    return tl::unexpected<Error>({ErrorCode::invalid_argument,
                                  "would replace the checkpoint that is being read",
                                  Error::no_offset, printable(path)});
  const bool direct = fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
  const std::string temporary =
      direct ? "" : path + ".weightmap-" + std::to_string(::getpid()) + ".tmp";
  const int flags = O_WRONLY | O_CLOEXEC | (direct ? 0 : O_CREAT | O_EXCL);
  const int descriptor = ::open(direct ? path.c_str() : temporary.c_str(), flags, 0666);
  if (descriptor < 0) return tl::unexpected<Error>(system_fault(path, "cannot be written"));
  return OutputFile(path, temporary, descriptor);
}

Error OutputFile::fault(const char* what) const { return system_fault(path_, what); }

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  // Linux writes at most 2 GiB at a time anyway.
  constexpr std::size_t most = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), most));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return tl::unexpected<Error>(fault("cannot be written"));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> OutputFile::commit() {
  if (::close(std::exchange(descriptor_, -1)) != 0)
    return tl::unexpected<Error>(fault("cannot be written"));
  if (temporary_.empty()) return {};
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return tl::unexpected<Error>(fault("cannot be put in place"));
  temporary_.clear();
  return {};
}

}  // namespace weightmap::cli
