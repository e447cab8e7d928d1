// What files lie on: mount tables and settings of a made-up machine, and this one's.
#include "runtime/system/file/mount.hpp"

#include <doctest/doctest.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>

#include "runtime/system/file/file_system_extras.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"

using namespace weightmap;
namespace fs = std::filesystem;

namespace {

struct Machine {
  test::TemporaryFolder folder;

  fs::path write(const std::string& name, const std::string& text) const {
    const fs::path path = folder.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }
  fs::path setting(const std::string& device) const {
    return os::read_ahead_setting({"any", device, "any"}, folder.path());
  }
};

}  // namespace

TEST_CASE_FIXTURE(Machine, "a mount is found by its number, with and without optional fields") {
  write("proc/self/mountinfo",
        "22 1 259:1 / / rw,relatime - ext4 /dev/root rw\n"
        "7 22 0:45 / /mnt/a\\040b rw shared:1 master:2 - nfs4 host:/x rw,vers=4.2\n"
        "8 22 0:46 /\n"
        "x\n"
        "9 22 0:47 / /s rw - fuse.sshfs me@host: rw\n");
  const auto type = [this](std::uint64_t id) {
    const auto mount = os::find_mount(id, folder.path());
    return mount ? mount->file_system + " " + mount->number + " " + mount->device : "";
  };
  CHECK(type(22) == "ext4 259:1 /dev/root");
  CHECK(type(7) == "nfs4 0:45 host:/x");
  CHECK(type(8) == "");
  CHECK(type(9) == "fuse.sshfs 0:47 me@host:");
  CHECK(type(1) == "");
}

TEST_CASE_FIXTURE(Machine,
                  "the file systems of a device are found, of an overlay its layers', too") {
  write("proc/self/mountinfo",
        "22 1 259:1 / / rw,relatime - ext4 /dev/root rw\n"
        "x\n"
        "9 22 0:47 / /s rw - fuse.sshfs me@host: rw\n"
        "10 9 0:48 / /s/n rw - nfs4 host:/x rw\n"
        "11 22 0:49 / /o rw - overlay o rw,lowerdir=/s/a:/s/n/b:/sn:c,upperdir=/u,workdir=/w\n"
        "12 22 0:50 / /v rw - xfs /dev/x rw\n"
        "13 22 0:51 / /v rw - virtiofs x rw\n"
        "14 22 0:52 / /p rw - overlay o rw,lowerdir=/v\n");
  const auto found = [this](const char* device) {
    return os::file_systems_of(device, folder.path());
  };
  using Names = std::vector<std::string>;
  CHECK(found("259:1") == Names{"ext4"});
  CHECK(found("0:47") == Names{"fuse.sshfs"});
  CHECK(found("0:49") == Names{"overlay", "ext4", "fuse.sshfs", "nfs4", "ext4", ""});
  CHECK(found("0:52") == Names{"overlay", "virtiofs"});
  CHECK(found("0:53").empty());
}

TEST_CASE_FIXTURE(Machine, "a mount table is read, and what is escaped in its paths") {
  const fs::path table = write("table",
                               "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
                               "no mount\n"
                               "36 35 0:42 /a /mnt\\040b\\134 rw master:1 - tmpfs - size=1\n"
                               "37 35 0:43 / /cut rw master:1\n");
  const std::vector<os::Mount> mounts = os::read_mounts(table);
  REQUIRE(mounts.size() == 2);
  CHECK(mounts[0].place == "/");
  CHECK(mounts[1].id == 36);
  CHECK(mounts[1].number == "0:42");
  CHECK(mounts[1].place == "/mnt b\\");
  CHECK(mounts[1].file_system == "tmpfs");
  CHECK(mounts[1].options == "size=1");
  CHECK(os::read_mounts(folder.path() / "none").empty());
}

TEST_CASE_FIXTURE(Machine, "the layers of overlays are known down to one whose path is unclear") {
  write("proc/self/mountinfo",
        "22 1 259:1 / / rw,relatime - ext4 /dev/root rw,lowerdir=/no\n"
        "30 1 0:45 / /m rw - overlay overlay rw,lowerdir=/b:/c,upperdir=/a,workdir=/w\n"
        "31 1 0:46 / /n rw - overlay x ro,lowerdir+=/d,lowerdir+=/e,datadir+=/f\n"
        "32 1 0:47 / /o rw - overlay x rw,lowerdir=/g:h:/i,upperdir=/j\n"
        "33 1 0:48 / /p rw - overlay x rw,lowerdir=/k,upperdir=/l\\040m\n");
  const std::vector<os::Overlay> found = os::overlays(folder.path());
  REQUIRE(found.size() == 4);
  CHECK(found[0].number == "0:45");
  CHECK(found[0].layers == std::vector<fs::path>{"/a", "/b", "/c"});
  CHECK(found[1].layers == std::vector<fs::path>{"/d", "/e"});
  CHECK(found[2].layers == std::vector<fs::path>{"/j", "/g", "h", "/i"});
  CHECK(found[3].number == "0:48");
  CHECK(found[3].layers.empty());
}

TEST_CASE_FIXTURE(Machine, "without a mount table nothing is known") {
  CHECK(os::overlays(folder.path()).empty());
  CHECK(!os::find_mount(22, folder.path()));
}

TEST_CASE_FIXTURE(Machine,
                  "the read-ahead is that of a disk, of a partition's disk, or of a mount") {
  write("sys/dev/block/8:0/queue/read_ahead_kb", "128\n");
  write("sys/devices/sda/queue/read_ahead_kb", "256\n");
  fs::create_directories(folder.path() / "sys/devices/sda/sda1");
  fs::create_directory_symlink(folder.path() / "sys/devices/sda/sda1",
                               folder.path() / "sys/dev/block/8:1");
  write("sys/class/bdi/0:45/read_ahead_kb", "512\n");
  CHECK(setting("8:0") == folder.path() / "sys/dev/block/8:0/queue/read_ahead_kb");
  CHECK(fs::canonical(setting("8:1")) ==
        fs::canonical(folder.path() / "sys/devices/sda/queue/read_ahead_kb"));
  CHECK(setting("0:45") == folder.path() / "sys/class/bdi/0:45/read_ahead_kb");
  CHECK(setting("0:46") == "");
}

TEST_CASE("a file's own mount is one of the table, or not known") {
  const test::TemporaryFolder folder;
  const os::File file = os::File::open(folder.write("file", "content"), false).value();
  if (const auto mount = os::mount_of(file)) CHECK(!mount->file_system.empty());
  if (const auto extents = os::extents_of(file)) CHECK(*extents <= 1);
}
