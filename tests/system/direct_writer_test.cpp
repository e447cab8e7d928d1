// Writes past the page cache, whatever the offsets, and where the file system refuses them.
#include "runtime/system/write/direct_writer.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/system/page_size.hpp"
#include "runtime/system/unique_fd.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"

using namespace weightmap;

namespace {

struct WriterFixture {
  test::TemporaryFolder folder;
  std::filesystem::path path = folder.write("file", "");
  os::UniqueFd file{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  const std::size_t page = static_cast<std::size_t>(os::page_bytes());
  std::vector<std::byte> memory = std::vector<std::byte>(9 * page);

  // Memory that lies as far behind a page as the offset, and content that differs everywhere.
  std::span<std::byte> content_for(std::size_t offset, std::size_t length) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    const std::size_t first = (page - address % page) % page + offset % page;
    const auto content = std::span(memory).subspan(first, length);
    for (std::size_t i = 0; i < length; ++i)
      content[i] = static_cast<std::byte>((offset + i) * 2654435761u >> 13);
    return content;
  }
};

}  // namespace

TEST_CASE_FIXTURE(WriterFixture, "Bytes come to their places from any offset on") {
  const std::vector<std::size_t> offsets{0, 1, page - 1, page, page + 1, 2 * page};
  const std::vector<std::size_t> lengths{0, 1, page - 1, page, page + 1, 4 * page, 5 * page + 7};
  for (const std::size_t offset : offsets)
    for (const std::size_t length : lengths) {
      CAPTURE(offset);
      CAPTURE(length);
      REQUIRE(::ftruncate(file.get(), 0) == 0);
      os::DirectWriter writer(file.get());
      const std::span<const std::byte> content = content_for(offset, length);
      REQUIRE_OK(writer.write(offset, content));
      std::string wanted(length == 0 ? 0 : offset, '\0');
      wanted.append(reinterpret_cast<const char*>(content.data()), length);
      CHECK(test::read_file(path) == wanted);
    }
}

TEST_CASE_FIXTURE(WriterFixture, "Memory that lies elsewhere in a page goes through the cache") {
  os::DirectWriter writer(file.get());
  const std::span<std::byte> content = content_for(1, 3 * page);
  REQUIRE_OK(writer.write(0, content));
  REQUIRE_OK(writer.write(3 * page, content));
  const std::string once(reinterpret_cast<const char*>(content.data()), content.size());
  CHECK(test::read_file(path) == once + once);
}

TEST_CASE_FIXTURE(WriterFixture, "What is to be read again soon stays in the page cache") {
  os::DirectWriter writer(file.get());
  writer.use_cache();
  REQUIRE_OK(writer.write(0, content_for(0, page)));
  std::vector<std::byte> read(page);
  iovec into{read.data(), read.size()};
  const ssize_t count = ::preadv2(file.get(), &into, 1, 0, RWF_NOWAIT);  // nothing from the disk
  if (count < 0 && errno == EOPNOTSUPP) return;
  CHECK(count == static_cast<ssize_t>(page));
}

TEST_CASE_FIXTURE(WriterFixture, "What the system refuses is an error") {
  const os::UniqueFd reading(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  os::DirectWriter writer(reading.get());
  CHECK_FAILS(writer.write(0, content_for(0, 5)), ErrorCode::io, "cannot write the file");
}
