#include "tools/run/plan_store.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/uuid/name_generator_sha1.hpp>
#include <boost/uuid/uuid_io.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "tools/support/files.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::start {
namespace {

namespace fs = std::filesystem;

// Each changes which code a start reads.
constexpr std::array code_variables = {"CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD",
                                       "PYTHONHOME",   "PYTHONPATH",      "VIRTUAL_ENV"};

void add(std::string& text, std::string_view part) {
  text += std::to_string(part.size()) + ":";
  text += part;
}

// Returns the arguments up to the first that is no option, or up to the one behind -m or -c.
std::span<const std::string> until_script(std::span<const std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const bool names_code = argument == "-m" || argument == "-c";
    if (names_code || !argument.starts_with('-'))
      return arguments.first(std::min(arguments.size(), i + (names_code ? 2 : 1)));
  }
  return {};
}

bool is_interpreter(const fs::path& program) {
  const std::string name = program.filename().string();
  for (const std::string_view known : {"python", "pypy", "bash", "sh", "perl", "ruby", "node"})
    if (name.starts_with(known)) return true;
  return false;
}

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::string hash_of(const std::string& text) {
  const boost::uuids::name_generator_sha1 hash{boost::uuids::ns::oid()};
  return boost::uuids::to_string(hash(text));
}

Result<fs::path> plan_folder() {
  const std::string given = variable("WEIGHTMAP_START_DIR");
  if (!given.empty()) return given;
  fs::path cache = variable("XDG_CACHE_HOME");
  if (cache.empty() && !variable("HOME").empty()) cache = fs::path(variable("HOME")) / ".cache";
  if (cache.empty())
    return failure(ErrorCode::not_found,
                   "neither WEIGHTMAP_START_DIR nor XDG_CACHE_HOME nor HOME is set, so there is "
                   "no place for plans of starts");
  return cache / "weightmap" / "starts";
}

constexpr int lock_patience = 2000, lock_step = 5;  // milliseconds

std::filesystem::path mark_of(const std::filesystem::path& plan) {
  return plan.native() + ".learning";
}

// 0: nothing tells.
pid_t command_in(int file) {
  std::array<char, 16> text{};
  if (::pread(file, text.data(), text.size() - 1, 0) <= 0) return 0;
  return static_cast<pid_t>(std::atoi(text.data()));
}

bool has_ended(pid_t command) { return command > 0 && ::kill(command, 0) != 0 && errno == ESRCH; }

// For this user alone.
Result<void> make_plan_folder(const fs::path& path) {
  std::error_code error;
  if (fs::create_directories(path.parent_path(), error))
    fs::permissions(path.parent_path(), fs::perms::owner_all, error);
  if (error)
    return failure(ErrorCode::io, "cannot make the folder " +
                                      printable(path.parent_path().native()) + ": " +
                                      error.message());
  return {};
}

}  // namespace

std::string start_key(const fs::path& program, std::span<const std::string> command, KeyOf parts) {
  std::string text;
  add(text, program.native());
  if (const Result<Generation> version = generation_at(program))
    add(text, std::to_string(version->size) + " " + std::to_string(version->mtime_ns));
  const bool has_all = parts == KeyOf::all_words;
  if (has_all || is_interpreter(program)) {
    const std::span<const std::string> arguments = command.subspan(1);
    for (const std::string& argument : has_all ? arguments : until_script(arguments))
      add(text, argument);
    std::error_code ignored;
    add(text, fs::current_path(ignored).native());  // to which a script's path may be relative
  }
  for (const char* const name : code_variables) add(text, variable(name));
  return hash_of(text);
}

Result<fs::path> plan_path(const std::string& key) {
  TRY_ASSIGN(const fs::path folder, plan_folder());
  return folder / (key + ".json");
}

Result<StartPlan> load_plan(const fs::path& path) {
  Result<os::File> file = os::File::open_foreign(path);
  if (!file) {
    if (file.error().os_error == ENOENT) file.error().code = ErrorCode::not_found;
    return tl::unexpected<Error>(file.error());
  }
  struct stat status {};
  if (::fstat(file->descriptor(), &status) != 0 || (status.st_mode & 022) != 0 ||
      (status.st_uid != ::geteuid() && status.st_uid != 0))
    return failure(ErrorCode::invalid_argument,
                   "others may write to this plan of a start, so it is not used");
  if (file->size() > max_plan_bytes)
    return failure(ErrorCode::limit_exceeded,
                   "a plan of a start has at most " + std::to_string(max_plan_bytes) +
                       " bytes, this has " + std::to_string(file->size()));
  std::string text(file->size(), '\0');
  TRY(file->read(0, std::as_writable_bytes(std::span(text))));
  return parse_plan(text);
}

Result<void> save_plan(const StartPlan& plan, const fs::path& path) {
  TRY(make_plan_folder(path));
  return replace_file(path, to_text(describe(plan)) + "\n", 0644);
}

LearningMark::LearningMark(const std::filesystem::path& plan, pid_t command)
    : path_(mark_of(plan)) {
  if (!make_plan_folder(plan)) return;
  Descriptor file(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return;
  const std::string id = std::to_string(command) + "\n";
  if (::ftruncate(file.get(), 0) == 0 &&
      ::pwrite(file.get(), id.data(), id.size(), 0) == static_cast<ssize_t>(id.size()))
    file_ = std::move(file);
}

LearningMark::~LearningMark() {
  if (file_.get() >= 0) ::unlink(path_.c_str());
}

void wait_until_learned(const std::filesystem::path& plan) {
  const Descriptor file(
      ::open(mark_of(plan).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  for (int waited = 0; file.get() >= 0 && waited < lock_patience; waited += lock_step) {
    if (::flock(file.get(), LOCK_SH | LOCK_NB) == 0 || !has_ended(command_in(file.get()))) return;
    ::poll(nullptr, 0, lock_step);
  }
}

}  // namespace weightmap::cli::start
