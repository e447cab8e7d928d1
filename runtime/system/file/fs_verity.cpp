#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/uninterrupted.hpp"
#include "weightmap/checkpoint_info.hpp"

namespace weightmap {
namespace {

// What linux/fsverity.h has, which older systems lack.
struct EnableArgument {
  std::uint32_t version = 1;
  std::uint32_t algorithm = 1;  // SHA-256
  std::uint32_t block_bytes = 4096;
  std::array<std::uint32_t, 29> none = {};  // no salt, no signature
};
static_assert(sizeof(EnableArgument) == 128);
struct Measurement {
  std::uint16_t algorithm = 0;
  std::uint16_t bytes = 64;  // there is room for; then, of the digest that follows
};
struct MeasuredDigest {
  Measurement of;
  std::array<std::uint8_t, 64> digest = {};
};
constexpr unsigned long enable_verity = _IOW('f', 133, EnableArgument);
constexpr unsigned long measure_verity = _IOWR('f', 134, Measurement);

bool has_none(int error) noexcept { return error == ENOTTY || error == EOPNOTSUPP; }

// The kernel keeps what it measures behind the content, which ext4 takes for a change of that.
void restore_time(const os::File& file) noexcept {
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t time = file.generation().mtime_ns;
  const timespec times[] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                            {.tv_sec = time / second, .tv_nsec = time % second}};
  ::futimens(file.descriptor(), times);
}

Result<void> seal(const os::File& file) {
  EnableArgument argument;
  if (os::uninterrupted([&] { return ::ioctl(file.descriptor(), enable_verity, &argument); }) ==
      0) {
    restore_time(file);
    return {};
  }
  switch (errno) {
    case EEXIST:
      return {};
    case ENOTTY:
    case EOPNOTSUPP:
      return failure(
          ErrorCode::unsupported,
          "cannot be sealed: its file system, or the kernel, has no fs-verity (ext4 has "
          "it after tune2fs -O verity, btrfs and f2fs may, tmpfs and network file systems "
          "do not)");
    case ETXTBSY:
      return failure(ErrorCode::io, "cannot be sealed while somebody has it open for writing");
    default:
      return os::os_failure("seal the file by fs-verity");
  }
}

Result<std::string> measured(const os::File& file) {
  MeasuredDigest found;
  if (os::uninterrupted([&] { return ::ioctl(file.descriptor(), measure_verity, &found); }) != 0) {
    if (errno == ENODATA || has_none(errno)) return std::string();
    return os::os_failure("ask the kernel for the file's measurement");
  }
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = found.of.algorithm == 1 ? "sha256:" : "sha512:";
  for (std::size_t i = 0; i < std::min<std::size_t>(found.of.bytes, found.digest.size()); ++i) {
    text += digits[found.digest[i] >> 4];
    text += digits[found.digest[i] & 15];
  }
  return text;
}

}  // namespace

Result<void> enable_fs_verity(const std::filesystem::path& path) {
  TRY_ASSIGN(const os::File file, about_file(os::File::open(path, false), path));
  return about_file(seal(file), path);
}

Result<std::string> fs_verity_digest(const std::filesystem::path& path) {
  TRY_ASSIGN(const os::File file, about_file(os::File::open(path, false), path));
  return about_file(measured(file), path);
}

}  // namespace weightmap
