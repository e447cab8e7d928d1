// Checkpoints with so many tensors that they are read in one pass: with and without verification,
// and where that pass gives up late.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <memory_resource>
#include <string>

#include "runtime/base/zip/record_bytes.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/temporary_file.hpp"

namespace weightmap {
namespace {

// The fixture with its storages stored once more, and what `more` adds to it.
template <class More>
std::vector<std::byte> rewritten(const char* fixture, More more) {
  std::ifstream file(test::data / fixture, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const bytes::MemorySource source(std::as_bytes(std::span(text)));
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  bytes::ReadCache cache(source, memory);
  const zip::Directory directory = zip::Directory::read(cache, 1u << 30).value();
  test::ArchiveBuilder builder;
  for (const zip::Record& record : directory.records()) {
    const auto content = zip::read_record(directory, record, cache, 1u << 30).value();
    builder.add(record.full_name(),
                {reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size()});
  }
  more(builder, std::string(directory.top_folder()), directory.storages().count());
  return builder.finish();
}

void check_same(const Checkpoint& a, const Checkpoint& b) {
  REQUIRE(a.tensors().size() == b.tensors().size());
  for (std::size_t i = 0; i < a.tensors().size(); ++i) {
    const NamedTensor x = a.tensors()[i];
    const NamedTensor y = b.tensors()[i];
    REQUIRE(x.name == y.name);
    REQUIRE(x.file_offset == y.file_offset);
    REQUIRE(x.view.nbytes() == y.view.nbytes());
    REQUIRE(a.path(i) == b.path(i));
  }
}

TEST_CASE("opens many tensors alike with and without verification of headers") {
  for (const char* name : {"many_state_dict.pt", "many_training.pt", "many_old_order.pt"}) {
    INFO(std::string(name));
    const Checkpoint chain = test::opened(test::data / name, {.verify = Verify::chain});
    const Checkpoint headers = test::opened(test::data / name, {.verify = Verify::headers});
    check_same(chain, headers);
    CHECK(chain.stats().strategy == OffsetStrategy::calculated);
    CHECK(chain.stats().local_headers_read == 1);
    CHECK(chain.stats().local_headers_verified == 0);
    CHECK(headers.stats().local_headers_read == 1);
    CHECK(headers.stats().local_headers_verified == headers.info().storages);
    CHECK(chain.stats().storages_calculated == chain.info().storages);
  }
}

TEST_CASE("a storage that no tensor has makes the open go the long way") {
  const auto unused = [](test::ArchiveBuilder& builder, const std::string& top, std::size_t count) {
    builder.add(top + "data/" + std::to_string(count), "unused");
  };
  const auto none = [](test::ArchiveBuilder&, const std::string&, std::size_t) {};
  const test::TemporaryFolder folder;
  // The first fixture ends with its storages, so that the new one is of their run.
  const auto plain = folder.write("plain.pt", rewritten("many_old_order.pt", none));
  const auto more = folder.write("more.pt", rewritten("many_old_order.pt", unused));
  for (const Verify verify : {Verify::chain, Verify::headers}) {
    const Checkpoint with_it = test::opened(more, {.verify = verify});
    check_same(with_it, test::opened(plain, {.verify = verify}));
    CHECK(with_it.info().storages == 110);
    CHECK(with_it.stats().storages_calculated == 110);
  }
}

TEST_CASE("the node of each of many tensors is found") {
  for (const char* name : {"many_state_dict.pt", "many_old_order.pt"}) {
    const Checkpoint checkpoint = test::opened(test::data / name, {.verify = Verify::chain});
    const Value root = checkpoint.root();
    std::size_t index = 0;
    for (const auto& [key, item] : root.items()) {
      const std::optional<NamedTensor> tensor = checkpoint.tensor(item);
      REQUIRE(tensor.has_value());
      REQUIRE(tensor->index == index++);
      REQUIRE(tensor->name == key.string());
      REQUIRE_FALSE(checkpoint.tensor(key).has_value());
    }
    CHECK(index == checkpoint.tensors().size());
    CHECK_FALSE(checkpoint.tensor(root).has_value());
  }
}

}  // namespace
}  // namespace weightmap
