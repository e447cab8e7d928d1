#include "tools/run/process_tree.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "mmap/pages/process_maps.hpp"

namespace weightmap::cli::start {
namespace {

// Fields of /proc/PID/stat behind the name, from proc(5): 4 is ppid, 12 majflt, 13 cmajflt, 42
// delayacct_blkio_ticks.
constexpr std::size_t first_field = 3;
constexpr std::size_t parent_field = 4, faults_field = 12, children_field = 13, delay_field = 42;

std::vector<std::string> stat_fields(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(text.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

std::uint64_t field(const std::vector<std::string>& fields, std::size_t number) {
  const std::size_t index = number - first_field;
  return index < fields.size() ? std::strtoull(fields[index].c_str(), nullptr, 10) : 0;
}

pid_t parent_of(pid_t process) {
  return static_cast<pid_t>(field(stat_fields(process), parent_field));
}

std::uint64_t bytes_read_by(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/io");
  std::uint64_t bytes = 0;
  for (std::string word; file >> word;)
    if (word == "read_bytes:" && file >> bytes) return bytes;
  return 0;
}

bool counts_delays() {
  std::ifstream setting("/proc/sys/kernel/task_delayacct");
  int is_on = 0;
  return setting >> is_on && is_on != 0;
}

}  // namespace

ProcessTree::ProcessTree(pid_t root)
    : root_(root), handle_(static_cast<int>(::syscall(SYS_pidfd_open, root, 0))), members_{root} {}

bool ProcessTree::wait_for_end(int milliseconds) const noexcept {
  if (handle_.get() < 0) {
    ::poll(nullptr, 0, milliseconds);
    return ::kill(root_, 0) != 0 && errno == ESRCH;
  }
  pollfd ended{handle_.get(), POLLIN, 0};
  return ::poll(&ended, 1, milliseconds) > 0;
}

void ProcessTree::update() {
  strangers_.clear();
  for (const std::int64_t number : mmap::process_numbers()) contains(static_cast<pid_t>(number));
}

bool ProcessTree::contains(pid_t process) {
  if (process == ::getpid()) return false;  // a child of the command where that is an init process
  std::vector<pid_t> line;
  bool is_member = false;
  for (pid_t at = process; at > 1 || at == root_; at = parent_of(at)) {
    is_member = members_.contains(at);
    if (is_member || strangers_.contains(at)) break;
    line.push_back(at);
  }
  (is_member ? members_ : strangers_).insert(line.begin(), line.end());
  return is_member;
}

ProcessCounts ProcessTree::counts() const {
  ProcessCounts counts;
  std::uint64_t ticks = 0;
  for (const pid_t process : members_) {
    const std::vector<std::string> fields = stat_fields(process);
    counts.major_faults += field(fields, faults_field) + field(fields, children_field);
    counts.read_bytes += bytes_read_by(process);
    ticks += field(fields, delay_field);
  }
  if (counts_delays())
    counts.disk_wait = static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return counts;
}

}  // namespace weightmap::cli::start
