// A temporary name is ".NAME.weightmap-", 16 hexadecimal digits and ".tmp". The file is locked
// during the lifetime of its process, if possible even before it has that name. So a process that
// gets the lock knows that the file is abandoned.
#include "weightmap/new_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/directory.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/uninterrupted.hpp"
#include "runtime/system/write/replace.hpp"
#include "runtime/system/write/write_all.hpp"

namespace weightmap {
namespace {

using os::UniqueFd;

constexpr std::string_view mark = ".weightmap-";
constexpr std::string_view ending = ".tmp";
constexpr std::size_t digits = 16;
constexpr std::size_t longest_beginning = 200;  // of a name of at most 255 bytes

std::string beginning_of(const std::string& name) {
  return "." + name.substr(0, longest_beginning) + std::string(mark);
}

// The name must be unpredictable, since other users may write to the directory.
std::string temporary_name(const std::string& name) {
  std::uint64_t number = 0;
  // Such short requests are never cut. std::random_device would need a C library of 2022.
  [[maybe_unused]] const ssize_t size = ::getrandom(&number, sizeof number, 0);
  std::array<char, digits> text;
  const char* const end = std::to_chars(text.data(), text.data() + digits, number, 16).ptr;
  const auto length = static_cast<std::size_t>(end - text.data());
  return beginning_of(name) + std::string(digits - length, '0').append(text.data(), length) +
         std::string(ending);
}

// Removes files that killed processes have left behind; failures are ignored.
void remove_abandoned(int directory, const std::string& name) {
  const std::string beginning = beginning_of(name);
  const Result<std::vector<std::string>> names = os::names_in(directory, beginning);
  if (!names) return;
  for (const std::string& found : *names)
    if (found.size() == beginning.size() + digits + ending.size() && found.ends_with(ending))
      os::remove_unlocked(directory, found);
}

// Follows the rule of fs.protected_symlinks: a link that another user has put into a directory for
// all users, such as /tmp, is not followed.
bool may_follow(const std::filesystem::path& link) noexcept {
  const std::filesystem::path folder = link.has_parent_path() ? link.parent_path() : ".";
  struct stat own {};
  struct stat around {};
  if (::lstat(link.c_str(), &own) != 0 || ::stat(folder.c_str(), &around) != 0) return false;
  const bool is_for_all = (around.st_mode & S_ISVTX) != 0 && (around.st_mode & S_IWOTH) != 0;
  return !is_for_all || own.st_uid == ::geteuid() || own.st_uid == around.st_uid;
}

// Resolves the path, also if its target does not exist yet, which open(2) would create.
Result<std::filesystem::path> follow_links(std::filesystem::path path) {
  constexpr int most_links = 40;  // the kernel's limit
  for (int i = 0; i < most_links; ++i) {
    std::error_code no_link;
    const std::filesystem::path target = std::filesystem::read_symlink(path, no_link);
    if (no_link) return path;
    if (!may_follow(path))
      return tl::unexpected<Error>(os::os_error("follow the symbolic link", EACCES));
    path = path.parent_path() / target;
  }
  return tl::unexpected<Error>(os::os_error("follow the symbolic link", ELOOP));
}

}  // namespace

struct NewFile::State {
  std::string shown;  // the path, escaped, for errors
  UniqueFd directory;
  std::string name;
  UniqueFd file;
  std::string temporary;         // its current temporary name; empty: none
  std::uint64_t written = 0;     // by write() and skip()
  std::uint64_t on_the_way = 0;  // the part for which writeback was started
  bool durable = true;
  std::optional<Result<void>> sync_result = {};

  ~State() { remove_temporary(); }

  tl::unexpected<Error> about(Error error) const {
    error.file = shown;
    return tl::unexpected<Error>(std::move(error));
  }
  Result<void> about(Result<void> result) const {
    if (!result) return about(std::move(result).error());
    return result;
  }

  void remove_temporary() noexcept {
    if (!temporary.empty()) ::unlinkat(directory.get(), temporary.c_str(), 0);
    temporary.clear();
  }

  // Returns the status of the old file, which may be replaced; nullopt if there is none.
  Result<std::optional<struct stat>> look_at_old(const NewFileOptions& options) const {
    struct stat old {};
    if (os::uninterrupted([&] { return ::fstatat(directory.get(), name.c_str(), &old, 0); }) != 0) {
      if (errno == ENOENT) return std::nullopt;
      return os::os_failure("look at the file");
    }
    if (options.kept && options.kept->device == old.st_dev && options.kept->inode == old.st_ino)
      return failure(ErrorCode::invalid_argument,
                     "would replace the checkpoint that is being read");
    if (!S_ISREG(old.st_mode)) return failure(ErrorCode::invalid_argument, "is not a regular file");
    return old;
  }

  UniqueFd open_at(const char* at, int flags, mode_t mode) const {
    return UniqueFd(os::uninterrupted(
        [&] { return ::openat(directory.get(), at, flags | O_RDWR | O_CLOEXEC, mode); }));
  }

  // Creates the file without a name if that is supported and it can be named later.
  Result<void> open_file(mode_t mode) {
    if (::access("/proc/self/fd", X_OK) == 0) file = open_at(".", O_TMPFILE, mode);
    if (file.get() >= 0) {
      os::lock_open_file(file.get());
      return {};
    }
    for (int attempt = 0; attempt < 8; ++attempt) {
      temporary = temporary_name(name);
      file = open_at(temporary.c_str(), O_CREAT | O_EXCL, mode);
      if (file.get() < 0) {
        temporary.clear();
        return os::os_failure("create a file in the directory");
      }
      // Another process may have found it unlocked between the two calls, and removed it.
      os::lock_open_file(file.get());
      if (os::has_name(directory.get(), temporary, file.get())) return {};
    }
    return failure(ErrorCode::io, "other processes remove what is created in the directory");
  }

  Result<void> open(const NewFileOptions& options) {
    durable = options.durable;
    TRY_ASSIGN(const std::optional<struct stat> old, look_at_old(options));
    remove_abandoned(directory.get(), name);
    TRY(open_file(old ? S_IRUSR | S_IWUSR : options.mode));
    // Some file systems do not support permissions.
    if (old) static_cast<void>(os::take_permissions(file.get(), *old));
    return {};
  }

  bool link_to(const std::string& to) const {
    const std::string self = "/proc/self/fd/" + std::to_string(file.get());
    return os::uninterrupted([&] {
             return ::linkat(AT_FDCWD, self.c_str(), directory.get(), to.c_str(),
                             AT_SYMLINK_FOLLOW);
           }) == 0;
  }

  // A file without a name cannot replace another, so it gets a temporary one.
  Result<void> replace() {
    if (temporary.empty()) {
      std::string other = temporary_name(name);
      if (!link_to(other)) return os::os_failure("give the file a name");
      temporary = std::move(other);  // moved, since a failed copy would leave the file behind
    }
    TRY(os::rename_in(directory.get(), temporary, name));
    temporary.clear();
    return {};
  }

  Result<void> take_free_name() {
    if (!temporary.empty()) {
      TRY(os::rename_to_free(directory.get(), temporary, name));
      temporary.clear();
      return {};
    }
    if (link_to(name)) return {};
    if (errno == EEXIST) return os::name_is_taken();
    return os::os_failure("give the file its name");
  }

  // Starts writeback to keep the disk busy, without waiting; fsync() reports errors.
  void start_writing() noexcept {
    constexpr std::uint64_t step = std::uint64_t{8} << 20;
    if (!durable || written - on_the_way < step) return;
    ::sync_file_range(file.get(), static_cast<off_t>(on_the_way),
                      static_cast<off_t>(written - on_the_way), SYNC_FILE_RANGE_WRITE);
    on_the_way = written;
  }

  Result<void> check_end(std::span<const std::byte> end) const {
    struct stat now {};
    if (os::uninterrupted([&] { return ::fstat(file.get(), &now); }) != 0)
      return os::os_failure("look at the file");
    const auto size = static_cast<std::uint64_t>(now.st_size);
    std::uint64_t at = size - end.size();
    if (end.size() > size) return failure(ErrorCode::io, "ends before what was written to it");
    std::array<std::byte, 65536> read;
    while (!end.empty()) {
      const ssize_t count = os::uninterrupted([&] {
        return ::pread(file.get(), read.data(), std::min(read.size(), end.size()),
                       static_cast<off_t>(at));
      });
      if (count < 0) return os::os_failure("read the new file");
      const auto got = static_cast<std::size_t>(count);
      if (got == 0 || !std::equal(read.begin(), read.begin() + count, end.begin()))
        return failure(ErrorCode::io, "holds something else than what was written to it", at);
      end = end.subspan(got);
      at += got;
    }
    return {};
  }

  Result<void> sync() {
    if (!sync_result) {
      sync_result.emplace();
      if (durable) *sync_result = os::sync(file.get());
    }
    return *sync_result;
  }

  Result<void> commit(Existing existing) {
    TRY(sync());
    TRY(existing == Existing::replace ? replace() : take_free_name());
    if (!durable) return {};
    Result<void> synced = os::sync_directory(directory.get());
    if (!synced) synced.error().message.insert(0, "is in place, but: ");
    return synced;
  }
};

NewFile::NewFile(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
NewFile::NewFile(NewFile&&) noexcept = default;
NewFile& NewFile::operator=(NewFile&&) noexcept = default;
NewFile::~NewFile() = default;

Result<NewFile> NewFile::create(const std::filesystem::path& path, const NewFileOptions& options) {
  auto state = std::make_unique<State>();
  state->shown = bytes::escape(path.native(), 4096);
  const auto no_name = [&] {
    return state->about(
        {ErrorCode::invalid_argument, "is not the name of a file", Error::no_offset, {}});
  };
  if (path.native().find('\0') != std::string::npos) return no_name();
  Result<std::filesystem::path> real = options.follows_links ? follow_links(path) : path;
  if (!real) return state->about(std::move(real).error());
  state->name = real->filename().native();
  if (state->name.empty()) return no_name();
  const std::filesystem::path folder = real->has_parent_path() ? real->parent_path() : ".";
  Result<os::UniqueFd> directory = os::open_directory(folder);
  if (!directory) return state->about(std::move(directory).error());
  state->directory = std::move(*directory);
  if (Result<void> ok = state->open(options); !ok) return state->about(std::move(ok).error());
  return NewFile(std::move(state));
}

int NewFile::descriptor() const noexcept { return state_->file.get(); }

Result<void> NewFile::resize(std::uint64_t bytes) {
  return state_->about(os::resize(descriptor(), bytes));
}

Result<void> NewFile::reserve(std::uint64_t bytes) {
  TRY(resize(bytes));
  return state_->about(os::reserve_space(descriptor(), 0, bytes));
}

Result<void> NewFile::write_at(std::uint64_t offset, std::span<const std::byte> content) {
  return state_->about(os::write_at(descriptor(), offset, content));
}

Result<void> NewFile::write(std::span<const std::byte> content) {
  TRY(write_at(state_->written, content));
  state_->written += content.size();
  state_->start_writing();
  return {};
}

Result<void> NewFile::skip(std::uint64_t bytes) {
  std::uint64_t end = 0;
  if (!bytes::checked_add(state_->written, bytes, &end)) end = ~std::uint64_t{0};
  TRY(state_->about(os::check_size_limit(end)));
  state_->written = end;
  return {};
}

Result<void> NewFile::sync() { return state_->about(state_->sync()); }

Result<void> NewFile::check_end(std::span<const std::byte> end) const {
  return state_->about(state_->check_end(end));
}

Result<void> NewFile::commit(Existing existing) { return state_->about(state_->commit(existing)); }

}  // namespace weightmap
