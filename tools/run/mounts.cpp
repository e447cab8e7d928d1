#include "tools/run/mounts.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>

namespace weightmap::cli::start {
namespace {

constexpr std::array<std::string_view, 22> made_up = {
    "autofs",     "binfmt_misc", "bpf",      "cgroup",  "cgroup2",   "configfs",
    "debugfs",    "devpts",      "efivarfs", "fusectl", "hugetlbfs", "mqueue",
    "nfsd",       "nsfs",        "proc",     "pstore",  "resctrl",   "rpc_pipefs",
    "securityfs", "selinuxfs",   "sysfs",    "tracefs"};

bool is_octal(std::string_view digits) {
  return digits.size() == 3 && digits.find_first_not_of("01234567") == std::string_view::npos;
}

// The kernel writes a space as "\040".
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && is_octal(text.substr(i + 1, 3))) {
      plain += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 3)), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw"
Mount parse_mount(const std::string& line) {
  Mount mount;
  std::istringstream words(line);
  std::string parent, root, word;
  if (!(words >> mount.id >> parent >> mount.device >> root >> mount.place)) return {};
  while (words >> word && word != "-") {
  }
  if (!(words >> mount.type)) return {};
  mount.place = unescaped(mount.place);
  return mount;
}

}  // namespace

std::vector<Mount> parse_mounts(std::string_view text) {
  std::vector<Mount> mounts;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);)
    if (Mount mount = parse_mount(line); mount.id != 0) mounts.push_back(std::move(mount));
  return mounts;
}

std::vector<Mount> mounts_with_files(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/mountinfo");
  std::ostringstream text;
  text << file.rdbuf();  // which is empty for a process that ends now; an iterator would throw
  std::vector<Mount> mounts = parse_mounts(text.str());
  std::erase_if(mounts, [](const Mount& mount) {
    return std::find(made_up.begin(), made_up.end(), mount.type) != made_up.end();
  });
  return mounts;
}

}  // namespace weightmap::cli::start
