// Watches a start and makes a plan of it: which files are opened and mapped, in order, and which of
// their pages are used.
//
// Opened files come from the system where it may be asked (opened_files.hpp). Elsewhere mapped and
// open files are looked for in /proc, a file that is closed at once is missed, and the bytecode of
// Python that is in the page cache at the end counts as used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/run/opened_files.hpp"
#include "tools/run/process_tree.hpp"
#include "tools/run/start_plan.hpp"

namespace weightmap::cli::start {

class StartLearner {
 public:
  // `weights`: files and folders whose large files are left to who reads weights. `opened` watches.
  StartLearner(ProcessTree& processes, std::vector<std::string> weights, OpenedFiles opened);

  // To be called some twenty times a second while the start goes on.
  void look();
  // Grows with each file that is found.
  std::uint64_t activity() const noexcept { return files_.size(); }
  // Ends the watching. Files that changed meanwhile are left out.
  StartPlan plan(std::string key);
  // All regular files that were opened or mapped, weights and what changed meanwhile too.
  std::set<std::string> paths() const;
  // What the processes have written to and closed.
  const std::set<FileNumber>& written() const noexcept { return written_; }
  // Returns a sentence if the command may have opened other files; empty if not.
  std::string unseen() const { return opened_.unseen(processes_.members()); }
  std::int64_t began_ns() const noexcept { return began_ns_; }  // since 1970

 private:
  struct File {
    std::size_t order;
    std::vector<bool> used_pages;  // of what was mapped
  };

  void note(const std::string& path);
  void look_at_mappings(pid_t process, bool with_pages);
  void add_bytecode();
  bool is_for_another_reader(const std::string& path, std::uint64_t size) const;

  ProcessTree& processes_;
  std::vector<std::string> weights_;
  OpenedFiles opened_;
  std::int64_t began_ns_;  // since 1970
  std::map<std::string, File> files_;
  std::set<std::string> opened_paths_;  // of regular files
  std::set<FileNumber> written_;
  unsigned looks_ = 0;
};

}  // namespace weightmap::cli::start
