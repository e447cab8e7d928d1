#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_file.hpp"
#include "tools/snapshot/ability.hpp"
#include "tools/snapshot/criu.hpp"
#include "tools/snapshot/gate.hpp"
#include "tools/snapshot/image_files.hpp"
#include "tools/snapshot/manifest.hpp"
#include "tools/snapshot/meeting_point.hpp"
#include "tools/snapshot/surroundings.hpp"

namespace weightmap::cli::snapshot {
namespace {

const std::string good =
    R"({"kind":"weightmap snapshot","version":3,"key":"k","command":["a","b"],)"
    R"("meeting_point":"/d/here","criu":"4.2.1",)"
    R"("made_ns":5,"machine":{"kernel":"6.1","processor":"P, features 0"},"root":1000,)"
    R"("here":true,"stdout_pipe":7,"stderr_pipe":8,"environment":{"A":"00ff"},"new_variables":["PORT"],)"
    R"("listeners":[{"address":"127.0.0.1","port":80,"shared":true}],"socket_files":["/tmp/a/s"],)"
    R"("keeps_connections":true,)"
    R"("image":[{"name":"core-1000.img","size":3,"xxh3":18446744073709551615}],)"
    R"("files":[{"path":"/lib/a.so","size":9,"mtime_ns":-7,"ctime_ns":8}],)"
    R"("links":[{"path":"/m/current","target":"/m/v1"}]})";

std::string message(const std::string& text) {
  const Result<Manifest> manifest = parse_manifest(text);
  return manifest ? "accepted" : manifest.error().message;
}

std::string with(const std::string& what, const std::string& instead) {
  std::string text = good;
  text.replace(text.find(what), what.size(), instead);
  return message(text);
}

TEST_CASE("a manifest is written and read as the same JSON") {
  const Result<Manifest> manifest = parse_manifest(good);
  REQUIRE(manifest);
  CHECK(manifest->command == std::vector<std::string>{"a", "b"});
  CHECK(manifest->root == 1000);
  CHECK(manifest->is_made_here);
  CHECK(manifest->keeps_connections);
  CHECK(manifest->pipes == std::array<std::uint64_t, 2>{7, 8});
  CHECK(manifest->listeners == std::vector<Address>{{"127.0.0.1", 80, true}});
  CHECK(manifest->socket_files == std::vector<std::string>{"/tmp/a/s"});
  CHECK(manifest->new_variables == std::vector<std::string>{"PORT"});
  CHECK(manifest->image == std::vector<ImageFile>{{"core-1000.img", 3, ~std::uint64_t{0}}});
  CHECK(manifest->files == std::vector<UsedFile>{{"/lib/a.so", 9, -7, 8}});
  CHECK(manifest->links == std::vector<NamedLink>{{"/m/current", "/m/v1"}});
  CHECK(manifest->image_bytes() == 3);
  CHECK(to_text(describe(*manifest)) == good);
}

TEST_CASE("a manifest is refused, and the field is named") {
  const std::string begin = "the manifest of a snapshot: ";
  CHECK(message("{") == begin + "is no JSON");
  CHECK(message("{}") == begin + "\"kind\" is not \"weightmap snapshot\"");
  CHECK(with("\"version\":3", "\"version\":1") ==
        "the manifest of a snapshot has version 1, expected 3");
  CHECK(with("\"k\"", "1") == begin + "key is 1, no text");
  CHECK(with("[\"a\",\"b\"]", "{}") == begin + "command is {}, no list");
  CHECK(with("\"b\"", "2") == begin + "command[1] is 2, no text");
  CHECK(with("\"/d/here\"", "7") == begin + "meeting_point is 7, no text");
  CHECK(with("\"4.2.1\"", "null") == begin + "criu is null, no text");
  CHECK(with(":5,", ":\"5\",") == begin + "made_ns is \"5\", no number");
  CHECK(with("\"6.1\"", "6") == begin + "machine.kernel is 6, no text");
  CHECK(with("\"P, features 0\"", "0") == begin + "machine.processor is 0, no text");
  CHECK(with("\"root\":1000", "\"root\":1") == begin + "root is 1, no process of a command");
  CHECK(with("\"root\":1000", "\"root\":2147483648") ==
        begin + "root is 2147483648, no process of a command");
  CHECK(with(":7,\"stderr", ":-7,\"stderr") == begin + "stdout_pipe is -7, no number");
  CHECK(with(":8,\"env", ":[],\"env") == begin + "stderr_pipe is [], no number");
  CHECK(with("{\"A\":\"00ff\"}", "[]") == begin + "environment is [], no object");
  CHECK(with("\"00ff\"", "0") == begin + "environment.A is 0, no text");
  CHECK(with("\"127.0.0.1\"", "1") == begin + "listeners[0].address is 1, no text");
  CHECK(with(":80", ":65536") == begin + "listeners[0].port is 65536, no port");
  CHECK(with("\"/tmp/a/s\"", "3") == begin + "socket_files[0] is 3, no text");
  CHECK(with("\"PORT\"", "4") == begin + "new_variables[0] is 4, no text");
  CHECK(with("core-1000.img", "../core.img") ==
        begin + "image[0].name is \"../core.img\", no name of a file");
  CHECK(with("core-1000.img", "..") == begin + "image[0].name is \"..\", no name of a file");
  CHECK(with("\"size\":3,", "\"size\":-3,") == begin + "image[0].size is -3, no number");
  CHECK(with(":18446744073709551615", ":18446744073709551616") ==
        begin + "image[0].xxh3 is 1.8446744073709552e+19, no number");
  CHECK(with("\"/lib/a.so\"", "7") == begin + "files[0].path is 7, no text");
  CHECK(with(":9,", ":1.5,") == begin + "files[0].size is 1.5, no number");
  CHECK(with(":-7,", ":true,") == begin + "files[0].mtime_ns is true, no number");
  CHECK(with("\"/m/current\"", "7") == begin + "links[0].path is 7, no text");
  CHECK(with("\"/m/v1\"", "7") == begin + "links[0].target is 7, no text");
  CHECK(with("\"ctime_ns\":8", "\"c\":8") == begin + "files[0].ctime_ns is null, no number");
}

TEST_CASE("an environment is compared but for what sessions set") {
  const char* const first[] = {"TOKEN=a", "SHLVL=1", "SSH_CLIENT=x", "_=/bin/a", nullptr};
  const char* const same[] = {"SHLVL=2", "TOKEN=a", "INVOCATION_ID=7", nullptr};
  const char* const other[] = {"TOKEN=b", nullptr};
  const char* const more[] = {"TOKEN=a", "NEW\x1b=", nullptr};
  const char* const none[] = {nullptr};
  const HashedEnvironment then = hashed_environment(first, {});
  CHECK(then.size() == 1);
  CHECK(then.at("TOKEN") == hexadecimal(checksum_of("=a")));
  CHECK(first_difference(then, hashed_environment(same, {})) == "");
  CHECK(first_difference(then, hashed_environment(other, {})) ==
        "the environment has another TOKEN");
  CHECK(first_difference(then, hashed_environment(more, {})) ==
        "the environment has NEW\\x1B, and had none");
  CHECK(first_difference(then, hashed_environment(none, {})) ==
        "the environment has no TOKEN, and had one");
}

TEST_CASE("a variable that the command reads afterwards does not count") {
  const char* const first[] = {"TOKEN=a", "PORT=1", nullptr};
  const char* const same[] = {"TOKEN=a", "PORT=2", nullptr};
  const char* const none[] = {"TOKEN=a", nullptr};
  const char* const other[] = {"TOKEN=b", "PORT=1", nullptr};
  const HashedEnvironment then = hashed_environment(first, {"PORT", "UNSET"});
  const auto difference = [&then](const char* const* now) {
    return first_difference(then, hashed_environment(now, {"PORT", "UNSET"}));
  };
  CHECK(then.size() == 1);
  CHECK(difference(same) == "");
  CHECK(difference(none) == "");
  CHECK(difference(other) == "the environment has another TOKEN");
}

TEST_CASE("links that words and variables name are known by where they lead") {
  namespace fs = std::filesystem;
  const test::TemporaryFolder temporary;
  const fs::path folder = fs::canonical(temporary.path());
  for (const char* const name : {"v1", "v2"}) fs::create_directory(folder / name);
  std::ofstream(folder / "v1/model") << "x";
  fs::create_directory_symlink("v1", folder / "current");
  const std::string direct = folder / "v1/model", current = folder / "current/model";
  const std::string variable = "MODEL=" + (folder / "current").native();
  const char* const environment[] = {"A=", "B=none", variable.c_str(), "LONG", nullptr};
  const char* const nothing[] = {nullptr};
  CHECK(named_links({direct, "--model=" + current, folder / "none"}, environment) ==
        std::vector<NamedLink>{{current, direct}, {folder / "current", folder / "v1"}});
  const std::vector<NamedLink> links = named_links({folder / "current"}, nothing);
  CHECK(first_moved(links) == "");
  fs::remove(folder / "current");
  CHECK(first_moved(links) == (folder / "current").native() + " is gone");
  fs::create_directory_symlink("v2", folder / "current");
  CHECK(first_moved(links) == (folder / "current").native() + " leads to " +
                                  (folder / "v2").native() + ", and led to " +
                                  (folder / "v1").native());
}

TEST_CASE("a call names variables, each with a zero byte behind it") {
  const test::TemporaryFolder folder;
  const auto names = [&folder](std::string_view text) {
    std::ofstream(folder.path() / "called", std::ios::binary) << text;
    return new_variables_of(folder.path() / "called");
  };
  CHECK(names("").value().empty());
  CHECK(names(std::string_view("A\0BC\0", 5)).value() == std::vector<std::string>{"A", "BC"});
  CHECK(
      names("A").error().message ==
      "the call of the command names no variables in 1 bytes, at most 1048576 are read, and a zero "
      "byte ends each name");
  CHECK_FALSE(names(std::string(1048577, '\0')));
  CHECK_FALSE(new_variables_of(folder.path() / "none"));
}

TEST_CASE("files of an image are made private") {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "pages") << "x";
  std::filesystem::permissions(folder.path() / "pages", std::filesystem::perms(0644));
  CHECK(make_private(folder.path()));
  CHECK(std::filesystem::status(folder.path() / "pages").permissions() ==
        std::filesystem::perms(0600));
  CHECK(make_private(folder.path() / "none").error().message ==
        (folder.path() / "none").native() + ": No such file or directory");
}

TEST_CASE("a permission that is missing is named") {
  const auto missing = [](const char* capabilities, const char* filter) {
    return missing_permission(std::string("Name:\tx\nCapEff:\t") + capabilities + "\nSeccomp:\t" +
                              filter + "\n");
  };
  CHECK(missing("000001ffffffffff", "0") == "");
  CHECK(missing("0000000002201000", "0") == "");
  CHECK(missing("0000000002001000", "0").starts_with("the capability CAP_SYS_ADMIN is missing"));
  CHECK(missing("0000000002200000", "0").starts_with("the capability CAP_NET_ADMIN is missing"));
  CHECK(missing("0000000000201000", "0").starts_with("the capability CAP_SYS_TIME is missing"));
  CHECK(missing("0000000002201000", "2").starts_with("a seccomp filter keeps criu from dumping"));
  CHECK(missing_permission("").starts_with("the capability CAP_SYS_ADMIN is missing"));
}

// Lines of Linux 6.18 on a little-endian machine.
TEST_CASE("sockets are read from the kernel's tables") {
  const Socket listening = parse_socket_line(
      "   0: 0100007F:1FBB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "
      "41291 1 000000001234 100 0 0 10 0");
  CHECK(listening.state == Socket::listening);
  CHECK(to_string(listening.local) == "127.0.0.1:8123");
  CHECK(listening.inode == 41291);
  const Socket six = parse_socket_line(
      "   1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A "
      "00000000:00000000 00:00000000 00000000     0        0 7 1 0 100 0 0 10 0");
  CHECK(to_string(six.local) == "[::1]:8080");
  CHECK(parse_socket_line("  sl  local_address rem_address   st").inode == 0);
  CHECK(parse_socket_line("   0: 0100:1FBB 0000:0000 0A 0:0 0:0 0 0 0 41291").inode == 0);
  const auto connected = [](const char* ends) {
    return parse_socket_line("   2: " + std::string(ends) +
                             " 01 00000000:00000000 00:00000000 00000000 0 0 9 1 0");
  };
  const Socket one = connected("0100007F:0001 0100007F:0002"),
               its_end = connected("0100007F:0002 0100007F:0001"),
               outside = connected("0100007F:0003 0100007F:0001");
  CHECK(have_inner_connection({listening, one, its_end}));
  CHECK_FALSE(have_inner_connection({listening, one, outside}));
  CHECK(listeners_among({one, listening}) == std::vector<Address>{{"127.0.0.1", 8123, false}});
}

TEST_CASE("a line of the kernel's table of UNIX sockets") {
  const std::string line = "0000000000000000: 00000002 00000000 00010000 0001 01 886033";
  const NamedSocket named = parse_named_socket_line(line + " /tmp/a b");
  CHECK(named.path == "/tmp/a b");
  CHECK(named.inode == 886033);
  CHECK(parse_named_socket_line(line).path.empty());
  CHECK(parse_named_socket_line(line).inode == 886033);
  CHECK(parse_named_socket_line("Num       RefCount Protocol Flags    Type St Inode Path").inode ==
        0);
}

TEST_CASE("a log of criu tells the first error that matters") {
  const test::TemporaryFolder folder;
  const std::filesystem::path log = folder.path() / "log";
  std::ofstream(log)
      << "(00.000001) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: x\n"
         "(00.000002) pie: 1000: Error (criu/pie/restorer.c:1): a\x1b thing\n"
         "(00.000003) Error (criu/cr-restore.c:2): Restoring FAILED.\n";
  CHECK(first_error_in(log) == "a\\x1B thing");
  CHECK(first_error_in("/proc/none") == "");
}

TEST_CASE("files of an image are compared with their checksums") {
  const test::TemporaryFolder folder;
  const auto write = [&](const std::string& text) {
    std::ofstream(folder.path() / "pages") << text;
  };
  std::ofstream(folder.path() / "empty");
  write(std::string(5'000'000, 'x'));
  const Result<std::vector<ImageFile>> files = checksum_files(folder.path());
  REQUIRE(files);
  REQUIRE(files->size() == 2);
  CHECK((*files)[1].size == 5'000'000);
  CHECK(verify_files(folder.path(), *files));
  const auto refusal = [&] {
    const Result<void> whole = verify_files(folder.path(), *files);
    return whole ? std::string("accepted") : whole.error().message;
  };
  write(std::string(4'999'999, 'x') + "y");
  CHECK(refusal().starts_with("its checksum is "));
  write("short");
  CHECK(refusal() == "has 5 bytes, expected 5000000");
  write(std::string(5'000'000, 'x'));
  using std::filesystem::perms;
  for (const perms others : {perms::group_write, perms::others_write}) {
    std::filesystem::permissions(folder.path() / "pages", perms::owner_all | others);
    CHECK(refusal() == "others may write to it, so it is not used");
  }
  std::filesystem::permissions(folder.path() / "pages", perms::owner_all);
  if (::geteuid() == 0) {
    REQUIRE(::chown((folder.path() / "pages").c_str(), 7, 7) == 0);
    CHECK(refusal() == "belongs to user 7, not to user 0, so it is not used");
  }
  std::filesystem::remove(folder.path() / "pages");
  CHECK(refusal() == "cannot look at the file: No such file or directory");
}

// Runs the script of a gate as criu does at this moment. Returns the child's id.
pid_t run_at(const Gate& gate, const char* moment) {
  const pid_t made = ::fork();
  if (made != 0) return made;
  ::setenv("CRTOOLS_SCRIPT_ACTION", moment, 1);
  ::execl(gate.script().c_str(), gate.script().c_str(), nullptr);
  ::_exit(127);
}

int status_of(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_CASE("a gate holds what is restored until it is open, and at no other moment") {
  const test::TemporaryFolder folder;
  const Result<Gate> earlier = Gate::create(folder.path());
  REQUIRE(earlier);
  earlier->open();
  const Result<Gate> gate = Gate::create(folder.path());
  REQUIRE(gate);
  const int fifo = ::open((folder.path() / "gate").c_str(), O_RDONLY | O_NONBLOCK);
  const auto is_open = [fifo] {
    char line = 0;
    return ::read(fifo, &line, 1) == 1;
  };
  CHECK_FALSE(is_open());
  for (const char* const moment : {"pre-restore", "network-unlock", "pre-resume", "post-resume"})
    CHECK(status_of(run_at(*gate, moment)) == 0);
  // The script takes the line, so it does not end without one.
  gate->open();
  CHECK(status_of(run_at(*gate, "post-restore")) == 0);
  CHECK_FALSE(is_open());
  gate->open();
  CHECK(is_open());
  ::close(fifo);
}

TEST_CASE("a gate that cannot be made") {
  const Result<Gate> gate = Gate::create("/proc/none");
  REQUIRE_FALSE(gate);
  CHECK(gate.error().message == "/proc/none/wait-for-gate: No such file or directory");
}

}  // namespace
}  // namespace weightmap::cli::snapshot
