// What a loss of power at any moment of a save may leave, as far as can be told from the order of
// its system calls. They are recorded and replayed in a model of a disk that keeps no promise but
// these: what fsync() was told of is there; of names, those that the directory had when it was
// synced, and any number of the changes since, in their order; of content that was not synced,
// anything or nothing.
//
// The rule that follows, and is asserted: content that the target's name may lead to was synced
// before it got any name from which it could come there, and was not touched since.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/services/write/watched_calls.hpp"
#include "tests/services/write/ways_to_save.hpp"
#include "tests/support/failures.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using test::Answer;
using test::Folder;
using test::read_file;
using test::SystemCall;
using test::Way;

using Inode = ino_t;

struct Content {
  std::string now;
  std::string synced;  // what the disk surely has
  bool is_synced() const { return now == synced; }
};

using Names = std::map<std::string, Inode>;

// A folder on such a disk.
struct Disk {
  std::map<Inode, Content> files;
  Names names;                                       // as the folder was synced
  std::vector<std::function<void(Names&)>> changes;  // since

  // After as many of the changes.
  Names names_after(std::size_t count) const {
    Names changed = names;
    for (std::size_t i = 0; i < count; ++i) changes[i](changed);
    return changed;
  }
  Names names_now() const { return names_after(changes.size()); }
  void sync_names() {
    names = names_now();
    changes.clear();
  }
};

Inode inode_of(const fs::path& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_ino;
}

// Calls that change neither content nor names, or only what the disk may do anyway.
bool changes_nothing(int number) {
  switch (number) {
    case SYS_close:
    case SYS_newfstatat:
    case SYS_fstat:
#ifdef SYS_access
    case SYS_access:
#endif
    case SYS_faccessat:
    case SYS_fcntl:
    case SYS_getdents64:
    case SYS_getrandom:
    case SYS_lseek:
    case SYS_prlimit64:
    case SYS_pread64:
    case SYS_fchown:
    case SYS_fchmod:
    case SYS_sync_file_range:
      return true;
    default:
      return false;
  }
}

// Follows the calls of a process that saves into the folder.
class Recorder {
 public:
  Recorder(const Folder& folder, Disk& disk) : folder_(folder), disk_(disk) {}

  void note(const SystemCall& call) {
    note_created();
    switch (call.number) {
      case SYS_openat:
        return note_open(call);
      case SYS_ftruncate:
        return content_of(call).now.resize(call.arguments[1]);
      case SYS_fallocate:
        return note_fallocate(call);
      case SYS_pwrite64:
        return note_write(call);
      case SYS_fsync:
        return note_sync(call);
      case SYS_linkat:
        return note_link(call);
      case SYS_renameat:
      case SYS_renameat2:
        return change([from = call.text_at(1), to = call.text_at(3)](Names& names) {
          names[to] = names.at(from);
          names.erase(from);
        });
      case SYS_unlinkat:
        return change([name = call.text_at(1)](Names& names) { names.erase(name); });
      default:
        CHECK_MESSAGE(changes_nothing(call.number), "system call " << call.number);
    }
  }

 private:
  Content& content_of(const SystemCall& call) { return disk_.files[inode_of(call.open_file())]; }
  void change(std::function<void(Names&)> made) { disk_.changes.push_back(std::move(made)); }

  // A file gets its name when it is opened, and its inode is known at the next call.
  void note_open(const SystemCall& call) {
    CHECK((call.arguments[2] & O_TRUNC) == 0);
    if ((call.arguments[2] & O_CREAT) != 0) created_ = call.text_at(1);
  }
  void note_created() {
    if (created_.empty()) return;
    change([name = created_, inode = inode_of(folder_.folder.path() / created_)](Names& names) {
      names[name] = inode;
    });
    created_.clear();
  }
  void note_fallocate(const SystemCall& call) {
    const std::uint64_t end = call.arguments[2] + call.arguments[3];
    Content& content = content_of(call);
    if (content.now.size() < end) content.now.resize(end);
  }
  void note_write(const SystemCall& call) {
    const std::string bytes = call.bytes_at(1, call.arguments[2]);
    REQUIRE(bytes.size() == call.arguments[2]);
    Content& content = content_of(call);
    const std::uint64_t end = call.arguments[3] + bytes.size();
    if (content.now.size() < end) content.now.resize(end);
    content.now.replace(call.arguments[3], bytes.size(), bytes);
  }
  void note_sync(const SystemCall& call) {
    if (fs::is_directory(call.open_file())) return disk_.sync_names();
    Content& content = content_of(call);
    content.synced = content.now;
  }
  // Of an open file by its name in /proc, or of another name.
  void note_link(const SystemCall& call) {
    const std::string from = call.text_at(1);
    const std::string self = "/proc/self/";
    const Inode inode =
        from.starts_with(self)
            ? inode_of("/proc/" + std::to_string(call.process) + "/" + from.substr(self.size()))
            : disk_.names_now().at(from);
    change([inode, to = call.text_at(3)](Names& names) { names[to] = inode; });
  }

  const Folder& folder_;
  Disk& disk_;
  std::string created_;
};

// In every state of the names that the disk may be in.
void check_target(const Disk& disk, const std::optional<std::string>& old,
                  const std::string& made) {
  for (std::size_t count = 0; count <= disk.changes.size(); ++count) {
    const Names names = disk.names_after(count);
    const auto target = names.find("model.pt");
    if (target == names.end()) {
      CHECK_FALSE(old);
      continue;
    }
    const Content& content = disk.files.at(target->second);
    CHECK(content.is_synced());
    CHECK((content.now == made || content.now == old));
  }
}

TEST_SUITE("power loss") {
  TEST_CASE("at each moment of a save the name leads to what was synced: the old file or the new") {
    const test::TemporaryFolder elsewhere;
    const fs::path plain = elsewhere.path() / "model.pt";
    for (const Way& way : test::ways) {
      INFO(way.name);
      REQUIRE_OK(save(plain, way));
      const std::string made = read_file(plain);
      const std::optional<std::string> old =
          way.replaces ? std::optional<std::string>("the old file") : std::nullopt;
      const Folder folder;
      folder.begin_with(old);
      Disk disk;
      if (old) {
        disk.files[inode_of(folder.path)] = {*old, *old};
        disk.names["model.pt"] = inode_of(folder.path);
      }
      Recorder recorder(folder, disk);
      std::size_t changes = 0;
      const int status = test::watch_calls([&] { return save(folder.path, way) ? 0 : 1; },
                                           [&](const SystemCall& call) {
                                             if (way.refuses(call)) return Answer::fail(EOPNOTSUPP);
                                             recorder.note(call);
                                             check_target(disk, old, made);
                                             ++changes;
                                             return Answer::make_it();
                                           });
      if (status == -1) return;
      CHECK(status == 0);
      CHECK(changes > 10);
      // And when the save has answered, nothing is left to be lost.
      CHECK(disk.changes.empty());
      REQUIRE(disk.names.size() == 1);
      CHECK(disk.files.at(disk.names.at("model.pt")).synced == made);
    }
  }
}

}  // namespace
}  // namespace weightmap
