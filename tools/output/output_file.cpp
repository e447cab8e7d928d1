#include "tools/output/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> system_fault(const std::string& path) {
  return tl::unexpected<Error>({ErrorCode::io,
                                "cannot be written: " + std::generic_category().message(errno),
                                Error::no_offset, printable(path), errno});
}

// True for a device or a pipe.
bool is_written_in_place(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
}

}  // namespace

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      device_(std::exchange(other.device_, -1)) {}

OutputFile::~OutputFile() {
  if (device_ >= 0) ::close(device_);
}

Result<OutputFile> OutputFile::create(const std::string& path, const std::string& input) {
  OutputFile output(path);
  if (is_written_in_place(path)) {
    output.device_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (output.device_ < 0) return system_fault(path);
    return output;
  }
  NewFileOptions options;
  if (const Result<Generation> kept = generation_at(input)) options.kept = *kept;
  TRY_ASSIGN(output.file_, NewFile::create(path, options));
  return output;
}

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  if (file_) return file_->write(bytes);
  // Linux writes at most 2 GiB at a time.
  constexpr std::size_t most = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t written = ::write(device_, bytes.data(), std::min(bytes.size(), most));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_fault(path_);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> OutputFile::commit() {
  if (file_) return file_->commit();
  if (::close(std::exchange(device_, -1)) != 0) return system_fault(path_);
  return {};
}

}  // namespace weightmap::cli
