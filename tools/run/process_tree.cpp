#include "tools/run/process_tree.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "mmap/pages/process_maps.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::cli::start {
namespace {

// Fields of /proc/PID/stat behind the name, from proc(5): 4 is ppid, 10 minflt, 12 majflt, 14
// utime, 15 stime, 42 delayacct_blkio_ticks. What children have that were waited for stands behind
// the faults, and two behind the times.
constexpr std::size_t first_field = 3;
constexpr std::size_t parent_field = 4, minor_field = 10, major_field = 12, user_field = 14,
                      system_field = 15, delay_field = 42;

std::vector<std::string> stat_fields(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::ostringstream content;
  content << file.rdbuf();  // which is empty for a process that ends now; an iterator would throw
  const std::string text = content.str();
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

struct ReadBytes {
  std::uint64_t called = 0, from_disk = 0;
};

ReadBytes bytes_read_by(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/io");
  ReadBytes bytes;
  std::string name;
  for (std::uint64_t value = 0; file >> name >> value;) {
    if (name == "rchar:") bytes.called = value;
    if (name == "read_bytes:") bytes.from_disk = value;
  }
  return bytes;
}

struct ResidentBytes {
  std::uint64_t anonymous = 0, file = 0;
};

ResidentBytes resident_bytes_of(pid_t process) {
  std::ifstream statm("/proc/" + std::to_string(process) + "/statm");
  std::uint64_t all = 0, resident = 0, of_files = 0;
  if (!(statm >> all >> resident >> of_files) || of_files > resident) return {};
  return {(resident - of_files) * os::page_bytes(), of_files * os::page_bytes()};
}

double seconds_of(std::uint64_t ticks) {
  return static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
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
  const std::vector<std::int64_t> numbers = mmap::process_numbers();
  std::erase_if(strangers_, [&numbers](pid_t stranger) {
    return !std::binary_search(numbers.begin(), numbers.end(), stranger);
  });
  for (const std::int64_t number : numbers) contains(static_cast<pid_t>(number));
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
  std::uint64_t user = 0, system = 0, delay = 0;
  for (const pid_t process : members_) {
    const std::vector<std::string> fields = stat_fields(process);
    counts.major_faults += field(fields, major_field) + field(fields, major_field + 1);
    counts.minor_faults += field(fields, minor_field) + field(fields, minor_field + 1);
    user += field(fields, user_field) + field(fields, user_field + 2);
    system += field(fields, system_field) + field(fields, system_field + 2);
    delay += field(fields, delay_field);
    const ReadBytes read = bytes_read_by(process);
    counts.called_bytes += read.called;
    counts.read_bytes += read.from_disk;
    const ResidentBytes resident = resident_bytes_of(process);
    counts.anonymous_bytes += resident.anonymous;
    counts.file_bytes += resident.file;
  }
  counts.user_seconds = seconds_of(user);
  counts.system_seconds = seconds_of(system);
  if (counts_delays()) counts.disk_wait = seconds_of(delay);
  return counts;
}

std::uint64_t mapped_bytes_of(pid_t process) {
  std::ifstream statm("/proc/" + std::to_string(process) + "/statm");
  std::uint64_t pages = 0;
  return statm >> pages ? pages * os::page_bytes() : 0;
}

std::uint64_t disk_bytes_of(pid_t process) { return bytes_read_by(process).from_disk; }

}  // namespace weightmap::cli::start
