// What a checkpoint says of its file while that is replaced, written to, truncated and published.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/mmap/bus_child.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/progress.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/without_proc.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using namespace weightmap::test;
namespace fs = std::filesystem;

namespace {

using Bytes = std::vector<std::byte>;

// Two checkpoints that differ, in a folder of the test.
struct Files {
  TemporaryFolder folder;
  fs::path path = copy("views.pt", "model.pt");
  fs::path other = copy("dtypes.pt", "next.pt");

  fs::path copy(const std::string& name, const std::string& as) const {
    fs::copy_file(data / name, folder.path() / as, fs::copy_options::overwrite_existing);
    return folder.path() / as;
  }
};

OpenOptions protected_by(Protection protection) { return {.protection = protection}; }

OpenOptions private_writable(Protection protection) {
  return {.sharing = Sharing::private_, .writable = true, .protection = protection};
}

Bytes mapped_bytes(const Checkpoint& checkpoint) {
  return {checkpoint.mapping().begin(), checkpoint.mapping().end()};
}

// The first tensor that has bytes.
NamedTensor some_tensor(const Checkpoint& checkpoint) {
  for (const NamedTensor& tensor : checkpoint.tensors())
    if (!tensor.view.bytes().empty()) return tensor;
  throw std::runtime_error("no tensor has bytes");
}

// Writes a byte that differs at this offset, at a later time than before.
void overwrite(const fs::path& path, std::uint64_t offset) {
  const fs::file_time_type before = fs::last_write_time(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const char old = static_cast<char>(file.get());
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(old ^ 0x55));
  file.close();
  fs::last_write_time(path, before + std::chrono::seconds(1));
}

std::string text_of(CheckpointState state) { return std::string(to_string(state)); }

}  // namespace

TEST_CASE_FIXTURE(Files, "an untouched file is current, whatever it is renamed from") {
  const Checkpoint checkpoint = opened(path);
  CHECK(checkpoint.source(0).generation.size == fs::file_size(path));
  CHECK(text_of(checkpoint.state()) == "current");
  CHECK(checkpoint.is_current());
  fs::create_hard_link(path, folder.path() / "link.pt");  // which changes the time of change
  CHECK(checkpoint.is_current());
}

TEST_CASE_FIXTURE(Files,
                  "a file that was renamed over is replaced, and what is mapped stays whole") {
  const Checkpoint checkpoint = opened(path);
  const Bytes before = mapped_bytes(checkpoint);
  fs::rename(other, path);
  CHECK(text_of(checkpoint.state()) == "replaced");
  CHECK_FALSE(checkpoint.is_current());
  CHECK(mapped_bytes(checkpoint) == before);
  const Checkpoint next = checkpoint.reopen().value();
  CHECK(next.is_current());
  CHECK(next.find("float8_e4m3fn").has_value() != checkpoint.find("float8_e4m3fn").has_value());
  CHECK(mapped_bytes(checkpoint) == before);
}

TEST_CASE_FIXTURE(Files, "a file that is gone is replaced, and is not opened again") {
  const Checkpoint checkpoint = opened(path);
  fs::remove(path);
  CHECK(text_of(checkpoint.state()) == "replaced");
  CHECK_FAILS(checkpoint.reopen(), ErrorCode::io, "No such file");
}

TEST_CASE_FIXTURE(Files, "a file that was written to in place is modified, by whatever name") {
  const Checkpoint checkpoint = opened(path);
  overwrite(path, some_tensor(checkpoint).file_offset);
  CHECK(text_of(checkpoint.state()) == "modified");
  CHECK_FALSE(checkpoint.is_current());
  fs::remove(path);
  CHECK(text_of(checkpoint.state()) == "modified");
}

TEST_CASE_FIXTURE(Files, "a path is remembered from the working directory of the open") {
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const Checkpoint checkpoint = opened("model.pt");
  fs::current_path(before);
  CHECK(checkpoint.is_current());
  CHECK(checkpoint.reopen().has_value());
}

TEST_CASE_FIXTURE(Files, "a file that is opened again keeps the name that it was opened by") {
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  std::vector<std::string> lines;
  OpenOptions options;
  options.log = [&](std::string_view line) { lines.emplace_back(line); };
  const Checkpoint checkpoint = opened("model.pt", options);
  fs::current_path(before);
  const Checkpoint again = checkpoint.reopen().value();
  REQUIRE(lines.size() == 2);
  CHECK(lines[1].starts_with("model.pt: opened: "));
  fs::remove(path);
  for (const Checkpoint* old : {&checkpoint, &again}) {
    CHECK_FAILS_IN(old->reopen(), ErrorCode::io, "No such file", "model.pt");
  }
  std::ofstream(path) << "no checkpoint";
  CHECK_FAILS_IN(checkpoint.reopen(), ErrorCode::not_a_checkpoint, "", "model.pt");
}

TEST_CASE_FIXTURE(Files, "what was opened by descriptor is not opened again") {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const Checkpoint checkpoint = Checkpoint::open_descriptor(descriptor).value();
  CHECK_FAILS_IN(checkpoint.reopen(), ErrorCode::invalid_argument,
                 "was opened by descriptor and has no path to open again",
                 "descriptor " + std::to_string(descriptor));
  ::close(descriptor);
}

TEST_CASE_FIXTURE(Files, "is opened again with the options of the first time") {
  const Checkpoint checkpoint = opened(path, private_writable(Protection::guard));
  const Checkpoint again = checkpoint.reopen().value();
  CHECK(again.info().writable);
  CHECK(again.info().sharing == Sharing::private_);
  CHECK(again.info().protection == Protection::guard);
}

// --- The guard -----------------------------------------------------------------------------------

TEST_CASE_FIXTURE(Files, "a guarded file that was cut is modified, and lost once it was read") {
  const Checkpoint checkpoint = opened(path, protected_by(Protection::guard));
  CHECK(guard_is_active());
  const Checkpoint neighbour = opened(other, protected_by(Protection::guard));
  const NamedTensor tensor = some_tensor(checkpoint);
  fs::resize_file(path, 0);
  CHECK(text_of(checkpoint.state()) == "modified");
  Bytes zeros(tensor.view.bytes().size());
  const Bytes copy(tensor.view.bytes().begin(), tensor.view.bytes().end());
  CHECK(copy == zeros);
  CHECK(text_of(checkpoint.state()) == "lost");
  CHECK_FALSE(checkpoint.is_current());
  CHECK(text_of(neighbour.state()) == "current");
  fs::rename(other, path);
  CHECK(text_of(checkpoint.state()) == "lost");
  CHECK(checkpoint.reopen().value().is_current());
}

TEST_CASE_FIXTURE(Files, "the guard tells an event loop that a file was lost, once") {
  const int event = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  REQUIRE(event != -1);
  std::uint64_t count = 0;
  {
    OpenOptions options = protected_by(Protection::guard);
    options.loss_event = event;
    const Checkpoint checkpoint = opened(path, options);
    const TensorView base = checkpoint.find("base").value();
    fs::resize_file(path, 0);
    CHECK(::read(event, &count, sizeof count) == -1);  // nobody has read what is gone
    CHECK(base.bytes().front() == std::byte{0});
    CHECK(base.bytes().back() == std::byte{0});
    CHECK(checkpoint.state() == CheckpointState::lost);
    CHECK(::read(event, &count, sizeof count) == sizeof count);
    CHECK(count == 1);
  }
  // A descriptor that takes nothing does no harm.
  copy("views.pt", "model.pt");
  OpenOptions options = protected_by(Protection::guard);
  options.loss_event = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const Checkpoint checkpoint = opened(path, options);
  fs::resize_file(path, 0);
  errno = 7;
  CHECK(checkpoint.find("base")->bytes().front() == std::byte{0});
  CHECK(errno == 7);
  ::close(options.loss_event);
  ::close(event);
}

TEST_CASE_FIXTURE(Files, "memory that is copied on write is guarded, too") {
  const Checkpoint checkpoint = opened(path, protected_by(Protection::guard));
  const std::span<std::byte> memory = Backing(checkpoint).copy_on_write().value();
  fs::resize_file(path, 0);
  memory[0] = std::byte{1};
  CHECK(text_of(checkpoint.state()) == "lost");
}

TEST_CASE_FIXTURE(Files, "what warms a file that was lost reports it") {
  const Checkpoint checkpoint = opened(path, protected_by(Protection::guard));
  const NamedTensor tensor = some_tensor(checkpoint);
  const std::uint64_t size = fs::file_size(path);
  fs::resize_file(path, 0);
  CHECK(tensor.view.bytes()[0] == std::byte{0});
  fs::resize_file(path, size);
  CHECK_FAILS(checkpoint.demand(tensor.view), ErrorCode::io, "the file was lost");
  Warmer warmer = Warmer::start(checkpoint).value();
  CHECK_FAILS(warmer.wait(), ErrorCode::io, "the file was lost");
}

// --- copy_bytes() and gather() ------------------------------------------------------------------

TEST_CASE_FIXTURE(Files, "copies the bytes of a view as they lie, by any protection") {
  for (Protection how : {Protection::map, Protection::guard}) {
    const Checkpoint checkpoint = opened(path, protected_by(how));
    for (const NamedTensor& tensor : checkpoint.tensors()) {
      const std::span<const std::byte> bytes = tensor.view.bytes();
      Bytes copy(bytes.size());
      REQUIRE_OK(Backing(checkpoint).copy_bytes(tensor.view, copy));
      CHECK(std::equal(copy.begin(), copy.end(), bytes.begin(), bytes.end()));
    }
  }
}

TEST_CASE("gathers the elements of a view as the view does, whatever its strides and byte order") {
  for (const char* name : {"views.pt", "big_endian.pt", "dtypes.pt", "scalars_and_empty.pt"}) {
    const Checkpoint checkpoint = opened(data / name);
    for (const NamedTensor& tensor : checkpoint.tensors()) {
      CAPTURE(tensor.name);
      Bytes expected(tensor.view.nbytes());
      REQUIRE_OK(tensor.view.gather(expected));
      Bytes gathered(tensor.view.nbytes());
      REQUIRE_OK(checkpoint.gather(tensor.view, gathered));
      CHECK(gathered == expected);
    }
  }
  const Checkpoint checkpoint = opened(data / "views.pt");
  const TensorSlice column = checkpoint.find("base")->narrow(1, 2, 1).value();
  float values[4] = {};
  REQUIRE_OK(checkpoint.gather(column, std::as_writable_bytes(std::span(values))));
  CHECK(std::vector(values, values + 4) == std::vector<float>{2, 8, 14, 20});
}

TEST_CASE_FIXTURE(Files, "gathering from a truncated file is an error, and no signal") {
  const Checkpoint checkpoint = opened(path);
  const NamedTensor tensor = checkpoint.get("transposed").value();
  fs::resize_file(path, 0);
  Bytes out(tensor.view.nbytes());
  const Result<void> gathered = checkpoint.gather(tensor.view, out);
  CHECK_FAILS(gathered, ErrorCode::io, "tensor \"base\": ");  // whose bytes they are
  CHECK(gathered.error().file_offset != Error::no_offset);
  CHECK(gathered.error().file == path);
}

TEST_CASE("refuses to gather a lazy view, a foreign one, and into a buffer of another size") {
  const Checkpoint checkpoint = opened(data / "conjugate.pt");
  const Checkpoint stranger = opened(data / "views.pt");
  Bytes out(16);
  CHECK_FAILS(checkpoint.gather(*checkpoint.find("conjugate"), out), ErrorCode::unsupported,
              "lazy conjugate");
  CHECK_FAILS(stranger.gather(*stranger.find("one_column"), std::span(out).first(15)),
              ErrorCode::invalid_argument, "the buffer has 15 bytes, the tensor needs 16");
  CHECK_FAILS(checkpoint.gather(*stranger.find("one_column"), out), ErrorCode::invalid_argument,
              "not one of this checkpoint");
}

TEST_CASE_FIXTURE(Files, "copies and gathers what was written to private or to shared memory") {
  for (const Sharing sharing : {Sharing::private_, Sharing::shared}) {
    copy("views.pt", "model.pt");
    Checkpoint checkpoint = opened(path, {.sharing = sharing, .writable = true});
    const TensorView base = checkpoint.find("base").value();
    const float changed = 77;
    std::memcpy(checkpoint.writable_bytes(base)->data() + 6 * sizeof(float), &changed,
                sizeof changed);
    float values[24] = {};
    REQUIRE_OK(checkpoint.gather(*checkpoint.find("transposed"),
                                 std::as_writable_bytes(std::span(values))));
    CHECK(values[1] == 77.0f);
    const auto copies = [&] {
      std::fill(std::begin(values), std::end(values), 0.0f);
      REQUIRE_OK(Backing(checkpoint).copy_bytes(base, std::as_writable_bytes(std::span(values))));
      CHECK(values[6] == 77.0f);
    };
    copies();
    if (sharing == Sharing::private_) with_refusals({{SYS_process_vm_readv, EPERM}}, copies);
  }
}

TEST_CASE_FIXTURE(Files, "a copy of what was cut off fails and raises no signal") {
  const OpenOptions ways[] = {protected_by(Protection::map), private_writable(Protection::map),
                              protected_by(Protection::guard)};
  for (const OpenOptions& options : ways) {
    copy("views.pt", "model.pt");
    const Checkpoint checkpoint = opened(path, options);
    const NamedTensor tensor = some_tensor(checkpoint);
    fs::resize_file(path, 0);
    Bytes copy(tensor.view.bytes().size());
    const Result<void> copied = Backing(checkpoint).copy_bytes(tensor.view, copy);
    CHECK_FAILS(copied, ErrorCode::io, "tensor \"" + std::string(tensor.name) + "\": ");
    CHECK(copied.error().file_offset != Error::no_offset);
    CHECK(copied.error().file == path);
    with_refusals({{SYS_process_vm_readv, ENOSYS}}, [&] {
      CHECK_FAILS(Backing(checkpoint).copy_bytes(tensor.view, copy), ErrorCode::io, "tensor \"");
    });
  }
}

TEST_CASE_FIXTURE(Files, "a copy of what was written over fails") {
  const Checkpoint checkpoint = opened(path);
  const NamedTensor tensor = some_tensor(checkpoint);
  overwrite(path, tensor.file_offset);
  Bytes copy(tensor.view.bytes().size());
  const Result<void> copied = Backing(checkpoint).copy_bytes(tensor.view, copy);
  CHECK_FAILS(copied, ErrorCode::io, "the file changed since it was opened");
  CHECK(copied.error().file_offset == tensor.file_offset);
}

TEST_CASE_FIXTURE(Files, "a copy of what was lost fails, even if the file is back") {
  const Checkpoint checkpoint = opened(path, protected_by(Protection::guard));
  const NamedTensor tensor = some_tensor(checkpoint);
  fs::resize_file(path, 0);
  CHECK(tensor.view.bytes()[0] == std::byte{0});
  copy("views.pt", "model.pt");
  Bytes copy(tensor.view.bytes().size());
  CHECK_FAILS(Backing(checkpoint).copy_bytes(tensor.view, copy), ErrorCode::io,
              "the file was lost");
}

TEST_CASE_FIXTURE(Files, "a copy needs a view of this checkpoint and a buffer of its size") {
  const Checkpoint checkpoint = opened(path);
  const Checkpoint stranger = opened(path);
  const NamedTensor tensor = some_tensor(stranger);
  Bytes buffer(tensor.view.bytes().size());
  CHECK_FAILS(Backing(checkpoint).copy_bytes(tensor.view, buffer), ErrorCode::invalid_argument,
              "not one of this checkpoint");
  buffer.push_back({});
  CHECK_FAILS(Backing(stranger).copy_bytes(tensor.view, buffer), ErrorCode::invalid_argument,
              "the buffer has " + std::to_string(buffer.size()) + " bytes");
}

// --- Reflinks ------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(Files, "a reflink where blocks cannot be shared is refused and names stage()") {
  with_refusals({{SYS_ioctl, EOPNOTSUPP}}, [&] {
    const auto refused = Checkpoint::open(path, protected_by(Protection::reflink));
    CHECK_FAILS(refused, ErrorCode::unsupported,
                "protection=reflink: cannot share the blocks of the file: Operation not supported "
                "(this needs a file system with reflinks, such as xfs or btrfs; stage() and "
                "`weightmap stage` make a copy in memory that processes share)");
    CHECK(refused.error().file == path);
    CHECK(refused.error().os_error == EOPNOTSUPP);
  });
  CHECK(folder.names() == std::set<std::string>{"model.pt", "next.pt"});
}

TEST_CASE_FIXTURE(Files, "a reflink needs a directory that files can be made in") {
  with_refusals({{SYS_openat, EACCES, O_TMPFILE & ~O_DIRECTORY}}, [&] {
    CHECK_FAILS(Checkpoint::open(path, protected_by(Protection::reflink)), ErrorCode::io,
                "protection=reflink: cannot make a file in the directory of this one: Permission "
                "denied");
  });
}

TEST_CASE_FIXTURE(Files, "a reflink needs /proc, and the refusal says so") {
  const auto refused = [&] {
    const auto reflink = Checkpoint::open(path, protected_by(Protection::reflink));
    return !reflink && reflink.error().code == ErrorCode::unsupported &&
           reflink.error().message ==
               "protection=reflink: cannot find the directory of the file without /proc, which is "
               "not mounted (stage() and `weightmap stage` do without)";
  };
  with_refusals({{test::call_of_readlink, ENOENT}}, [&] { CHECK(refused()); });
  test::without_proc([&] { return refused() ? 0 : 1; });
}

TEST_CASE_FIXTURE(Files, "what is written through is no reflink") {
  OpenOptions options = protected_by(Protection::reflink);
  options.sharing = Sharing::shared;
  options.writable = true;
  CHECK_FAILS(Checkpoint::open(path, options), ErrorCode::invalid_argument,
              "writes to a reflink would not reach the file");
}

// Skipped where the temporary files of tests lie on a file system without reflinks (TMPDIR).
TEST_CASE_FIXTURE(Files, "a reflink outlives what becomes of its file, and is used as a file is") {
  const Bytes whole = mapped_bytes(opened(path));
  Result<Checkpoint> reflink = Checkpoint::open(path, private_writable(Protection::reflink));
  if (!reflink) {
    CHECK(reflink.error().code == ErrorCode::unsupported);
    MESSAGE("SKIPPED: this file system has no reflinks");
    return;
  }
  CHECK(reflink->info().protection == Protection::reflink);
  CHECK(reflink->source(0).generation.size == whole.size());
  CHECK(text_of(reflink->state()) == "current");
  overwrite(path, 0);
  CHECK(text_of(reflink->state()) == "replaced");
  fs::resize_file(path, 0);
  CHECK(mapped_bytes(*reflink) == whole);
  fs::remove(path);
  CHECK(text_of(reflink->state()) == "replaced");
  CHECK(verify_headers(*reflink).has_value());
  CHECK(verify_crc(*reflink).faults.empty());
  REQUIRE_OK(Warmer::start(*reflink, WarmOptions{})->wait());
  const NamedTensor tensor = some_tensor(*reflink);
  REQUIRE_OK(reflink->demand(tensor.view));
  CHECK(residency(*reflink)->file.resident_bytes >= whole.size());
  Bytes copy(tensor.view.bytes().size());
  REQUIRE_OK(Backing(*reflink).copy_bytes(tensor.view, copy));
  reflink->writable_bytes(tensor.view).value()[0] = copy[0] ^ std::byte{0xFF};
  CHECK(tensor.view.bytes()[0] == (copy[0] ^ std::byte{0xFF}));
}

// --- publish() -----------------------------------------------------------------------------------

TEST_CASE_FIXTURE(Files, "publishing renames the new file over the old one") {
  const Checkpoint old = opened(path);
  const Bytes before = mapped_bytes(old);
  const Checkpoint fresh = opened(other);
  const Generation next = fresh.source(0).generation;
  const PublishReport report = publish(other, path).value();
  CHECK(report.replaced);
  CHECK_FALSE(report.copied);
  CHECK(report.bytes == next.size);
  CHECK(report.generation.same_content(next));
  CHECK(folder.names() == std::set<std::string>{"model.pt"});
  CHECK(text_of(old.state()) == "replaced");
  CHECK(mapped_bytes(old) == before);
  const Checkpoint reopened = old.reopen().value();
  CHECK(reopened.source(0).generation.same_content(next));
}

TEST_CASE_FIXTURE(Files, "publishing a copy leaves the new file where it is") {
  const std::string content = test::read_file(other);
  const PublishReport report = publish(other, path, {true, true}).value();
  CHECK(report.copied);
  CHECK(test::read_file(path) == content);
  CHECK(test::read_file(other) == content);
  CHECK(folder.names() == std::set<std::string>{"model.pt", "next.pt"});
}

TEST_CASE_FIXTURE(Files, "publishing is cancelled while it sums or copies, with nothing changed") {
  const std::string before = test::read_file(path);
  PublishOptions options;
  options.progress = test::stop;
  options.verify_crc = true;
  CHECK_FAILS(publish(other, path, options), ErrorCode::cancelled, "checksums was cancelled");
  CHECK(test::read_file(path) == before);
  CHECK(folder.names() == std::set<std::string>{"model.pt", "next.pt"});
}

TEST_CASE_FIXTURE(Files, "publishing to another file system copies") {
  if (!fs::is_directory("/dev/shm")) {
    MESSAGE("SKIPPED: there is no /dev/shm");
    return;
  }
  const fs::path elsewhere = "/dev/shm/weightmap-publish-" + std::to_string(::getpid());
  const PublishReport report = publish(other, elsewhere).value();
  CHECK_FALSE(report.replaced);
  CHECK(test::read_file(elsewhere) == test::read_file(data / "dtypes.pt"));
  if (!report.copied) MESSAGE("SKIPPED: the test's folder is on the file system of /dev/shm");
  fs::remove(elsewhere);
}

TEST_CASE_FIXTURE(Files, "what is no checkpoint is not published") {
  const fs::path text = folder.write("text.pt", "these are no weights");
  const std::string before = test::read_file(path);
  CHECK_FAILS(publish(text, path), ErrorCode::not_a_checkpoint, "");
  CHECK_FAILS(publish(folder.path() / "none.pt", path), ErrorCode::io, "No such file");
  overwrite(other, some_tensor(opened(other)).file_offset);
  CHECK_FAILS(publish(other, path, {false, true}), ErrorCode::corrupt, "has CRC-32");
  CHECK(test::read_file(path) == before);
  CHECK(folder.names() == std::set<std::string>{"model.pt", "next.pt", "text.pt"});
}

TEST_CASE_FIXTURE(Files,
                  "a new file that is a symbolic link is not moved, and says what can be done") {
  fs::create_symlink(path, folder.path() / "link.pt");
  CHECK_FAILS(publish(folder.path() / "link.pt", other), ErrorCode::invalid_argument,
              "the new file is a symbolic link: follow it (--follow), publish a copy (--copy), or "
              "publish \"" +
                  fs::canonical(path).string() + "\" by its own name");
  CHECK(folder.names() == std::set<std::string>{"link.pt", "model.pt", "next.pt"});
}

TEST_CASE_FIXTURE(Files, "a copy of what a symbolic link leads to is published") {
  fs::create_symlink(other, folder.path() / "link.pt");
  const PublishReport report = publish(folder.path() / "link.pt", path, {true, false}).value();
  CHECK(report.copied);
  CHECK(test::read_file(path) == test::read_file(other));
  CHECK(fs::is_symlink(folder.path() / "link.pt"));
}

TEST_CASE_FIXTURE(Files, "a publication that the system refuses leaves nothing behind") {
  const std::string before = test::read_file(path);
  fs::permissions(other, fs::perms(0604));
  const auto refuses = [&](test::Refusal refusal, bool copies, const char* what) {
    // Nor are there reflinks, which would need no space and send no bytes.
    with_refusals({refusal, {SYS_ioctl, EOPNOTSUPP}}, [&] {
      CHECK_FAILS(publish(other, path, {copies, false}), ErrorCode::io, what);
    });
    CHECK(test::read_file(path) == before);
    CHECK((fs::status(other).permissions() == fs::perms(0604)));
    CHECK(folder.names() == std::set<std::string>{"model.pt", "next.pt"});
  };
  refuses({SYS_fsync, EIO}, false, "cannot write the new file to the disk");
  refuses({test::call_of_rename, EACCES}, false, "cannot rename the new file");
  refuses({SYS_fchmod, EPERM}, false, "cannot give the file its permissions");
  refuses({SYS_fsync, EIO}, true, "cannot write the file to the disk");
  refuses({SYS_renameat, EACCES}, true, "cannot rename the new file");
  refuses({SYS_fallocate, ENOSPC}, true, "bytes of disk space");
  refuses({SYS_sendfile, EIO}, true, "cannot copy the file");
}

TEST_CASE_FIXTURE(Files, "readers see wholly the old or wholly the new file") {
  const Bytes contents[] = {mapped_bytes(opened(path)), mapped_bytes(opened(other))};
  int ended[2];
  REQUIRE(::pipe2(ended, O_NONBLOCK | O_CLOEXEC) == 0);
  const auto read_until_stopped = [&] {
    ::close(ended[1]);
    char nothing = 0;
    do {
      const Result<Checkpoint> now = Checkpoint::open(path);
      if (!now) return 1;
      const Bytes bytes = mapped_bytes(*now);
      if (bytes != contents[0] && bytes != contents[1]) return 2;
    } while (::read(ended[0], &nothing, 1) != 0);
    return 0;
  };
  std::vector<pid_t> readers;
  for (int i = 0; i < 3; ++i) readers.push_back(test::start_child(read_until_stopped));
  for (int round = 0; round < 200; ++round) {
    const fs::path next = copy(round % 2 == 0 ? "dtypes.pt" : "views.pt", "next.pt");
    REQUIRE_OK(publish(next, path, {round % 3 == 0, false}));
  }
  ::close(ended[1]);
  ::close(ended[0]);
  for (const pid_t reader : readers) CHECK(test::end_of(reader) == "exit 0");
}
