// A file that replaces another one's takes over its owner, group and permissions, and widens none.
#include <doctest/doctest.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>

#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/write/publish_file.hpp"
#include "tests/mmap/bus_child.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/new_file.hpp"

using namespace weightmap;
namespace fs = std::filesystem;

namespace {

constexpr uid_t user = 65534;
constexpr gid_t team = 1234;
constexpr uid_t colleague = 4321;

struct Case {
  mode_t old;
  bool is_member;  // user, of team
  gid_t group;     // afterwards
  mode_t mode;
};
constexpr Case cases[] = {
    {0660, true, team, 0660},   {02664, true, team, 02664}, {04755, true, team, 0755},
    {0660, false, user, 0600},  {0664, false, user, 0604},  {0604, false, user, 0600},
    {02775, false, user, 0705},
};

Result<void> replace(const fs::path& target) {
  TRY_ASSIGN(NewFile file, NewFile::create(target));
  return file.commit();
}

Result<void> publish(const fs::path& target, bool copy) {
  const fs::path fresh = target.parent_path() / "next.pt";
  const std::string content = "new";
  TRY_ASSIGN(NewFile file, NewFile::create(fresh));
  TRY(file.write(std::as_bytes(std::span(content))));
  TRY(file.commit());
  TRY_ASSIGN(const os::File opened, os::File::open(fresh, false));
  TRY(os::publish_file(opened, fresh, target, {copy}));
  return {};
}

}  // namespace

TEST_CASE("who may not give files away keeps the group, or gives nobody more rights") {
  if (::geteuid() != 0) {
    MESSAGE("SKIPPED: only root can make files of other users");
    return;
  }
  const test::TemporaryFolder folder;
  const fs::path target = folder.path() / "model.pt";
  REQUIRE(::chown(folder.path().c_str(), user, user) == 0);
  for (const char* const way : {"new file", "rename", "copy"})
    for (const Case& given : cases) {
      CAPTURE(std::string(way));
      CAPTURE(given.old);
      CAPTURE(given.is_member);
      fs::remove(target);
      folder.write("model.pt", std::string_view("old"));
      REQUIRE(::chown(target.c_str(), colleague, team) == 0);
      REQUIRE(::chmod(target.c_str(), given.old) == 0);
      CHECK(test::in_child([&] {
              const gid_t groups[] = {team};
              if (::setgroups(given.is_member ? 1 : 0, groups) != 0 || ::setgid(user) != 0 ||
                  ::setuid(user) != 0)
                return 1;
              const std::string_view chosen = way;
              const Result<void> done =
                  chosen == "new file" ? replace(target) : publish(target, chosen == "copy");
              return done ? 0 : 2;
            }) == "exit 0");
      struct stat now {};
      REQUIRE(::stat(target.c_str(), &now) == 0);
      CHECK(now.st_uid == user);
      CHECK(now.st_gid == given.group);
      CHECK((now.st_mode & 07777) == given.mode);
    }
}
