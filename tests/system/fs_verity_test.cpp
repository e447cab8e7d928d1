// Files that the kernel seals and measures: what it is asked, and what its answers mean. The kernel
// that runs the tests need not be able to.
#include <doctest/doctest.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/services/write/watched_calls.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint_info.hpp"

using namespace weightmap;
using test::Answer;
using test::SystemCall;

namespace {

constexpr std::uint64_t to_enable = 0x40806685;  // FS_IOC_ENABLE_VERITY
constexpr std::uint64_t to_measure = 0xC0046686;

bool asks(const SystemCall& call, std::uint64_t request) {
  return call.number == SYS_ioctl && (call.arguments[1] & 0xFFFFFFFF) == request;
}

struct SealFixture {
  test::TemporaryFolder folder;
  std::filesystem::path path = folder.write("file", "abc");
  const std::filesystem::file_time_type time = std::filesystem::last_write_time(path);

  // What a child gets whose kernel answers so: 0 for success, else the place of its message here.
  int sealed(Answer answer) {
    const int status = test::watch_calls(
        [&] {
          const Result<void> done = enable_fs_verity(path);
          const std::string words = done ? "" : done.error().message;
          for (int i = 0;
               const char* part : {"", "no fs-verity", "open for writing", "permitted"}) {
            if (words.empty() ? i == 0 : i != 0 && words.find(part) != words.npos) return i;
            ++i;
          }
          return 99;
        },
        [&](const SystemCall& call) {
          if (!asks(call, to_enable)) return Answer::make_it();
          argument = call.bytes_at(2, 128);
          std::filesystem::last_write_time(path, time + std::chrono::hours(1));  // as ext4 does
          return answer;
        });
    return status < 0 ? status : WEXITSTATUS(status);
  }
  // Whether it gets this digest.
  bool is_measured(Answer answer, std::string memory, const std::string& wanted) {
    const int status =
        test::watch_calls([&] { return fs_verity_digest(path) == wanted ? 0 : 1; },
                          [&](const SystemCall& call) {
                            if (!asks(call, to_measure)) return Answer::make_it();
                            iovec here{memory.data(), memory.size()};
                            iovec there{reinterpret_cast<void*>(call.arguments[2]), memory.size()};
                            ::process_vm_writev(call.process, &here, 1, &there, 1, 0);
                            return answer;
                          });
    return status <= 0;  // or nobody can watch
  }

  std::string argument;
};

}  // namespace

TEST_CASE_FIXTURE(SealFixture, "The kernel is asked to seal by SHA-256 in blocks of 4 KiB") {
  const int done = sealed(Answer::succeed(0));
  if (done < 0) return;
  CHECK(done == 0);
  CHECK(std::filesystem::last_write_time(path) == time);
  CHECK(argument == std::string("\1\0\0\0\1\0\0\0\0\x10\0\0", 12) + std::string(116, '\0'));
}

TEST_CASE_FIXTURE(SealFixture, "A file that is sealed stays so, and who refuses is named") {
  if (sealed(Answer::fail(EEXIST)) < 0) return;
  CHECK(sealed(Answer::fail(EEXIST)) == 0);
  CHECK(sealed(Answer::fail(EOPNOTSUPP)) == 1);
  CHECK(sealed(Answer::fail(ENOTTY)) == 1);
  CHECK(sealed(Answer::fail(ETXTBSY)) == 2);
  CHECK(sealed(Answer::fail(EPERM)) == 3);
}

TEST_CASE_FIXTURE(SealFixture,
                  "What the kernel measured is told; nothing of a file without a seal") {
  const std::string digest(32, '\xAB');
  std::string hex;
  for (int i = 0; i < 32; ++i) hex += "ab";
  CHECK(is_measured(Answer::succeed(0), std::string("\1\0\x20\0", 4) + digest, "sha256:" + hex));
  CHECK(is_measured(Answer::succeed(0), std::string("\2\0\x40\0", 4) + digest + digest,
                    "sha512:" + hex + hex));
  for (const int error : {ENODATA, ENOTTY, EOPNOTSUPP})
    CHECK(is_measured(Answer::fail(error), "", ""));
}

TEST_CASE_FIXTURE(SealFixture, "What is not there is neither sealed nor measured") {
  CHECK_FAILS(enable_fs_verity(folder.path() / "none"), ErrorCode::io, "No such file");
  CHECK_FAILS(fs_verity_digest(folder.path() / "none"), ErrorCode::io, "No such file");
}
