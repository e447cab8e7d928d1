// The items of a folder of torch.distributed.checkpoint are proven when their tensors are first
// used, and by no door is anything handed out that was not.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/mmap/bus_child.hpp"
#include "tests/support/dcp_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/checkpoint_writer.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/convert.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/on_demand.hpp"
#include "weightmap/safetensors_writer.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using test::DcpFolder;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

const OpenOptions late{.verify = Verify::chain};
const std::string fault =
    "tensor \"bad\", chunk at [0, 0]: it has elements of int8, and the metadata says uint8";

// "good", "bad", whose item has another dtype, and "w" in two pieces, of which the second is
// damaged in the same way; a transposed "turned".
void write_damaged(const TemporaryFolder& folder) {
  const std::string other = test::item_of("ghijkl", {2, 3}, {"int8", "CharStorage", 1});
  DcpFolder made;
  made.add("good", {2, 3}, {{{0, 0}, {2, 3}, "abcdef"}}, test::uint8_elements);
  made.put("bad", {0, 0}, other);
  made.tensors.emplace_back(
      test::unicode("bad"),
      test::tensor_metadata({2, 3}, {test::chunk({0, 0}, {2, 3})}, test::properties("uint8")));
  made.put("w", {0, 0}, test::item_of("mnopqr", {2, 3}, test::uint8_elements));
  made.put("w", {2, 0}, other);
  made.tensors.emplace_back(
      test::unicode("w"),
      test::tensor_metadata({4, 3}, {test::chunk({0, 0}, {2, 3}), test::chunk({2, 0}, {2, 3})},
                            test::properties("uint8")));
  made.add("turned", {2, 3}, {{{0, 0}, {2, 3}, "adbecf", "__0_0.distcp", {1, 2}}},
           test::uint8_elements);
  made.write(folder);
}

std::vector<std::byte> memory(6);

template <class T>
Result<void> outcome(const Result<T>& result) {
  if (result) return {};
  return tl::unexpected<Error>(result.error());
}

NamedTensor tensor_of(const Checkpoint& checkpoint, std::string_view name) {
  return checkpoint.tensors()[match_tensors(checkpoint, name).front()];
}

// What is given for a tensor of this name, by each door that there is to it.
struct Door {
  std::string name;
  std::function<Result<void>(Checkpoint& checkpoint, const std::string& tensor)> use;
};
const std::vector<Door> doors_to_one = {
    {"get", [](Checkpoint& c, const std::string& n) { return outcome(c.get(n)); }},
    {"get_path", [](Checkpoint& c,
                    const std::string& n) { return outcome(c.get_path({std::string_view(n)})); }},
    {"SharedTensor",
     [](Checkpoint& c, const std::string& n) {
       return outcome(SharedTensor::get(SharedTensor::Owner(SharedTensor::Owner(), &c), n));
     }},
    {"find", [](Checkpoint& c, const std::string& n) { return c.find(n)->check_no_fault(); }},
    {"as", [](Checkpoint& c, const std::string& n) { return outcome(c.find(n)->as<std::byte>()); }},
    {"select",
     [](Checkpoint& c, const std::string& n) { return outcome(c.find(n)->select(0, 1)); }},
    {"narrow",
     [](Checkpoint& c, const std::string& n) { return outcome(c.find(n)->narrow(0, 0, 1)); }},
    {"bits", [](Checkpoint& c, const std::string& n) { return outcome(c.find(n)->bits()); }},
    {"view.gather", [](Checkpoint& c, const std::string& n) { return c.find(n)->gather(memory); }},
    {"for_each_piece",
     [](Checkpoint& c, const std::string& n) {
       return for_each_piece(*c.find(n), [](std::span<const std::byte>) { return true; });
     }},
    {"gather", [](Checkpoint& c, const std::string& n) { return c.gather(*c.find(n), memory); }},
    {"copy_bytes",
     [](Checkpoint& c, const std::string& n) {
       return Backing(c).copy_bytes(*c.find(n), std::span(memory).first(c.find(n)->bytes().size()));
     }},
    {"demand", [](Checkpoint& c, const std::string& n) { return c.demand(*c.find(n)); }},
    {"check_unchanged",
     [](Checkpoint& c, const std::string& n) { return check_unchanged(c, *c.find(n)); }},
    {"advise",
     [](Checkpoint& c, const std::string& n) { return advise(c, *c.find(n), Access::random); }},
    {"pieces", [](Checkpoint& c, const std::string& n) { return outcome(pieces(c, n)); }},
    {"view_of",
     [](Checkpoint& c, const std::string& n) {
       return outcome(view_of(c, n, {{1, 0}, {1, 3}}));
     }},
    {"gather of a name",
     [](Checkpoint& c, const std::string& n) { return gather(c, n, {}, memory); }},
    {"content_of",
     [](Checkpoint& c, const std::string& n) {
       Result<RecordContent> content = content_of(c, n);
       if (!content) return outcome(content);
       return content->produce()([](std::span<const std::byte>) { return Result<void>(); });
     }},
    {"storage",
     [](Checkpoint& c, const std::string& n) {
       const NamedStorage storage = Backing(c).storage(tensor_of(c, n).storage_index);
       CHECK((storage.nbytes == 0) == (storage.fault != nullptr));
       return storage.fault ? tl::unexpected<Error>(*storage.fault) : Result<void>();
     }},
    {"a warmer in an order",
     [](Checkpoint& c, const std::string& n) {
       return outcome(Warmer::start(c, {.tensors = {tensor_of(c, n).index}}));
     }},
    {"RowReader",
     [](Checkpoint& c, const std::string& n) { return outcome(RowReader::of(c, {n})); }},
    {"statistics",
     [](Checkpoint& c, const std::string& n) { return outcome(statistics(*c.find(n))); }},
    {"difference",
     [](Checkpoint& c, const std::string& n) {
       return outcome(difference(*c.find("good"), *c.find(n)));
     }},
    {"same_bits",
     [](Checkpoint& c, const std::string& n) {
       return outcome(same_bits(*c.find(n), *c.find("good")));
     }},
    {"SafetensorsTensor",
     [](Checkpoint& c, const std::string& n) {
       return outcome(SafetensorsTensor::of(n, *c.find(n)));
     }},
    {"CheckpointWriter",
     [](Checkpoint& c, const std::string& n) {
       CheckpointWriter writer;
       return outcome(writer.tensor(*c.find(n)));
     }},
};
// Those that need the places of all tensors.
const std::vector<std::pair<std::string, std::function<Result<void>(Checkpoint&)>>> doors_to_all = {
    {"verify_headers", [](Checkpoint& c) { return verify_headers(c); }},
    {"values", [](Checkpoint& c) { return outcome(c.values()); }},
    {"residency", [](Checkpoint& c) { return outcome(residency(c)); }},
    {"a warmer that follows",
     [](Checkpoint& c) { return outcome(Warmer::start(c, {.follow = true})); }},
    {"a warmer that sums",
     [](Checkpoint& c) { return outcome(Warmer::start(c, {.verify_crc = true})); }},
    {"verify_crc",
     [](Checkpoint& c) -> Result<void> {
       const CrcReport report = verify_crc(c);
       if (report.faults.empty()) return {};
       return tl::unexpected<Error>(report.faults.front());
     }},
};

}  // namespace

TEST_CASE("a damaged item is refused by every door, and others of the folder are given") {
  const TemporaryFolder folder;
  write_damaged(folder);
  Checkpoint checkpoint = Checkpoint::open(folder.path(), late).value();
  for (const Door& door : doors_to_one) {
    INFO(door.name);
    REQUIRE_OK(door.use(checkpoint, "good"));
    CHECK_FAILS_IN(door.use(checkpoint, "bad"), ErrorCode::corrupt, fault,
                   (folder.path() / "__0_0.distcp").native());
  }
  Checkpoint writable =
      Checkpoint::open(folder.path(), {.writable = true, .verify = Verify::chain}).value();
  CHECK_FAILS(writable.writable_bytes(*writable.find("bad")), ErrorCode::corrupt, fault);
  for (const auto& door : doors_to_all) {
    INFO(door.first);
    CHECK_FAILS(door.second(checkpoint), ErrorCode::corrupt, fault);
  }
  CHECK_FAILS(convert(std::array{folder.path()}, folder.path() / "out.safetensors"),
              ErrorCode::corrupt, fault);
}

TEST_CASE("the fault is the one that an open with verify=headers has") {
  const TemporaryFolder folder;
  write_damaged(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), late).value();
  const Error first = checkpoint.get("bad").error();
  for (const OpenOptions& at_open :
       {OpenOptions{.verify = Verify::headers}, OpenOptions{.verify = Verify::crc},
        OpenOptions{.verify = Verify::chain, .zero_copy_only = true}}) {
    const Result<Checkpoint> refused = Checkpoint::open(folder.path(), at_open);
    REQUIRE(!refused);
    CHECK(refused.error().message == first.message);
    CHECK(refused.error().file == first.file);
    CHECK(refused.error().file_offset == first.file_offset);
    CHECK(refused.error().code == first.code);
  }
}

TEST_CASE("a view of a damaged item has its shape and no bytes, and each look-up the same fault") {
  const TemporaryFolder folder;
  write_damaged(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), late).value();
  const NamedTensor bad = tensor_of(checkpoint, "bad");
  CHECK(bad.view.dtype() == DType::uint8);
  CHECK(bad.view.nbytes() == 6);
  CHECK(bad.view.data() == nullptr);
  CHECK(bad.view.bytes().empty());
  CHECK(bad.view.stored_bytes().empty());
  CHECK(bad.view.is_contiguous());
  CHECK(bad.file_offset == 0);
  CHECK(bad.view.fault() == checkpoint.find("bad")->fault());
  CHECK(checkpoint.find("good")->fault() == nullptr);
  CHECK(tensor_name(checkpoint, bad.index) == "bad");
}

TEST_CASE("a damaged piece refuses what lies in it, and no other part of its tensor") {
  const TemporaryFolder folder;
  write_damaged(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), late).value();
  CHECK(whole_tensor(checkpoint, "w").value().sizes == test::Sizes{4, 3});
  CHECK(whole_names(checkpoint).size() == 4);
  REQUIRE_OK(view_of(checkpoint, "w", {{1, 0}, {1, 3}}));
  CHECK_FAILS(view_of(checkpoint, "w", {{2, 0}, {1, 3}}), ErrorCode::corrupt,
              "tensor \"w\", chunk at [2, 0]: it has elements of int8");
  CHECK_FAILS(pieces(checkpoint, "w"), ErrorCode::corrupt, "chunk at [2, 0]");
}

TEST_CASE("what only an item tells is known at the first use") {
  const TemporaryFolder folder;
  write_damaged(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), late).value();
  CHECK(checkpoint.stats().storages_by_directory == 0);
  CHECK(checkpoint.info().tensor_bytes == 30);
  const NamedTensor turned = checkpoint.get("turned").value();
  CHECK(std::vector<std::int64_t>(turned.view.strides().begin(), turned.view.strides().end()) ==
        test::Sizes{1, 2});
  std::string elements(6, '\0');
  REQUIRE_OK(checkpoint.gather(turned.view, std::as_writable_bytes(std::span(elements))));
  CHECK(elements == "abcdef");
  REQUIRE_OK(checkpoint.demand(turned.view));
  REQUIRE_OK(checkpoint.demand(checkpoint.get("good")->view));
  CHECK(demand_order(checkpoint) ==
        std::vector<std::size_t>{turned.index, checkpoint.get("good")->index});
}

TEST_CASE("the byte order of a folder is known from the open on, and no item has another") {
  const auto add = [](DcpFolder& made, const std::string& name, const std::string& byteorder) {
    made.put(name, {0}, test::item_of("abcd", {1}, {}, {}, byteorder));
    made.tensors.emplace_back(test::unicode(name),
                              test::tensor_metadata({1}, {test::chunk({0}, {1})}));
  };
  const TemporaryFolder folder;
  DcpFolder made;
  made.add("bytes", {2}, {{{0}, {2}, "ab"}}, test::uint8_elements);  // which have no order
  add(made, "big", "big");
  made.write(folder);
  const OpenOptions at_open{.verify = Verify::headers};
  for (const OpenOptions& options : {late, at_open}) {
    const Checkpoint checkpoint = Checkpoint::open(folder.path(), options).value();
    CHECK(checkpoint.info().byteorder == "big");
    CHECK_FALSE(checkpoint.info().byteorder_assumed);
    CHECK(checkpoint.get("big")->view.is_foreign_byte_order());
    REQUIRE_OK(checkpoint.get("bytes"));
  }
  add(made, "little", "little");
  made.write(folder);
  const std::string other =
      "tensor \"little\", chunk at [0]: its elements are in the other byte order than those of "
      "other items";
  const Checkpoint mixed = Checkpoint::open(folder.path(), late).value();
  REQUIRE_OK(mixed.get("big"));
  CHECK_FAILS(mixed.get("little"), ErrorCode::unsupported, other);
  CHECK_FAILS(verify_headers(mixed), ErrorCode::unsupported, other);
  CHECK_FAILS(Checkpoint::open(folder.path(), at_open), ErrorCode::unsupported, other);
}

TEST_CASE("a file that ends before an item is refused at once") {
  const TemporaryFolder folder;
  DcpFolder made;
  made.add("w", {2, 3}, {{{0, 0}, {2, 3}, "abcdef"}}, test::uint8_elements);
  made.write(folder);
  const std::string content = made.files.at("__0_0.distcp");
  folder.write("__0_0.distcp", content.substr(0, content.size() - 1));
  CHECK_FAILS(Checkpoint::open(folder.path(), late), ErrorCode::corrupt,
              "it is truncated, or from another save");
}

TEST_CASE("threads and a forked child that use a tensor first all get the same") {
  const TemporaryFolder folder;
  write_damaged(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), late).value();
  std::array<const std::byte*, 4> first{};
  std::array<const Error*, 4> faults{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < first.size(); ++i)
    threads.emplace_back([&, i] {
      faults[i] = checkpoint.find("bad")->fault();
      first[i] = checkpoint.find("good")->data();
      static_cast<void>(verify_headers(checkpoint));
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK(first[i] == first[0]);
    CHECK(faults[i] == faults[0]);
  }
  CHECK(*first[0] == std::byte{'a'});
  CHECK(test::in_child([&] { return checkpoint.find("turned")->data() != nullptr ? 0 : 1; }) ==
        "exit 0");
}

TEST_CASE("once all is proven, tensors have the places of the pass") {
  const TemporaryFolder folder;
  DcpFolder made;
  made.add("a", {0, 3}, {{{0, 0}, {0, 3}, ""}}, test::uint8_elements);
  made.add("b", {2, 3}, {{{0, 0}, {2, 3}, "abcdef"}}, test::uint8_elements);
  made.write(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder.path(), late).value();
  const std::byte* const alone = checkpoint.find("b")->data();
  CHECK(checkpoint.find("a")->shape()[1] == 3);
  REQUIRE_OK(verify_headers(checkpoint));
  CHECK(checkpoint.find("b")->data() == alone);
  CHECK(checkpoint.find("a")->shape()[1] == 3);
  CHECK(verify_crc(checkpoint).storages_checked == 2);
}
