#include "tools/run/learning_mark.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>

#include "tools/run/plan_store.hpp"

namespace weightmap::cli::start {
namespace {

constexpr int patience = 2000, step = 5;  // milliseconds

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

}  // namespace

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
  for (int waited = 0; file.get() >= 0 && waited < patience; waited += step) {
    if (::flock(file.get(), LOCK_SH | LOCK_NB) == 0 || !has_ended(command_in(file.get()))) return;
    ::poll(nullptr, 0, step);
  }
}

}  // namespace weightmap::cli::start
