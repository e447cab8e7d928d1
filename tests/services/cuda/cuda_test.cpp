// Uploads to a device that a fake driver makes believe.
#include "weightmap/cuda.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/services/cuda/fake_driver.hpp"
#include "tests/support/byte_store.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/safetensors_writer.hpp"

using weightmap::Checkpoint;
using weightmap::DType;
using weightmap::ErrorCode;
using weightmap::Result;
using weightmap::TensorSlice;
using weightmap::TensorView;
using weightmap::cuda::DeviceTensor;
using weightmap::cuda::Upload;
using weightmap::cuda::Uploader;
using weightmap::cuda::UploaderOptions;
using weightmap::cuda::UploadReport;
using weightmap::cuda::Way;
using weightmap::test::FakeDriver;

namespace {

constexpr int integrated = 18;
constexpr int host_register = 99;
constexpr int host_page_tables = 100;
constexpr int read_only_register = 113;

// Bytes that are nowhere the same, as far as that goes.
std::string pattern(std::size_t bytes, unsigned seed) {
  std::string text(bytes, '\0');
  unsigned value = seed * 2654435761U + 1;
  for (char& byte : text) byte = static_cast<char>((value = value * 1664525U + 1013904223U) >> 24);
  return text;
}

struct Content {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

Content content(std::string name, DType dtype, std::vector<std::int64_t> shape) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  const auto seed = static_cast<unsigned>(name.front()) + static_cast<unsigned>(name.size());
  std::string bytes = pattern(count * weightmap::element_size(dtype), seed);
  return {std::move(name), dtype, std::move(shape), std::move(bytes)};
}

// Two devices' worth of nothing, and a file.
struct Files {
  FakeDriver driver;  // ends last, and looks whether all was given back
  weightmap::test::TemporaryFolder folder;
  std::vector<Content> contents = {
      content("norm", DType::float32, {12}),        content("big", DType::uint8, {7, 5000}),
      content("scalar", DType::float64, {}),        content("empty", DType::float16, {3, 0, 2}),
      content("matrix", DType::bfloat16, {40, 30}), content("page", DType::uint8, {8192}),
      content("cube", DType::int32, {6, 50, 40}),   content("last", DType::int8, {3}),
  };
  std::filesystem::path path = folder.path() / "model.safetensors";

  Files() {
    std::vector<weightmap::SafetensorsTensor> tensors;
    for (const Content& one : contents) {
      weightmap::SafetensorsTensor tensor;
      tensor.name = one.name;
      tensor.dtype = one.dtype;
      tensor.shape = one.shape;
      tensor.content = weightmap::RecordContent::text(one.bytes);
      tensors.push_back(std::move(tensor));
    }
    REQUIRE_OK(weightmap::write_safetensors(std::move(tensors), {}, path));
  }

  // A driver of a device with these attributes.
  void reset_to(std::initializer_list<int> attributes) {
    driver.reset();
    for (const int attribute : attributes) driver.set_attribute(attribute, 1);
  }
  // With a device that can do nothing else, reads pageable memory, or registers memory.
  void by_each_way(const auto& work) {
    for (const int attribute : {0, host_page_tables, host_register}) {
      CAPTURE(attribute);
      reset_to({attribute, read_only_register});
      work();
      CHECK(driver.faults() == "");
    }
  }
  UploaderOptions options() const {
    UploaderOptions options;
    options.library = FakeDriver::path;
    options.slots = 3;
    options.slot_bytes = 8192;
    options.threads = 3;
    options.register_bytes = 16384;
    return options;
  }
  const std::string& bytes_of(std::string_view name) const {
    return std::ranges::find(contents, name, &Content::name)->bytes;
  }
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> names;
    for (const Content& one : contents) names.push_back(one.name);
    return names;
  }
};

Uploader created(const UploaderOptions& options) {
  Result<Uploader> uploader = Uploader::create(options);
  REQUIRE_OK(uploader);
  return std::move(*uploader);
}

Result<std::vector<DeviceTensor>> all_of(Upload& upload) {
  std::vector<DeviceTensor> tensors;
  for (;;) {
    Result<std::optional<DeviceTensor>> tensor = upload.next();
    if (!tensor) return tl::unexpected<weightmap::Error>(tensor.error());
    if (!*tensor) return tensors;
    tensors.push_back(std::move(**tensor));
  }
}

std::vector<DeviceTensor> each_of(Upload& upload) {
  Result<std::vector<DeviceTensor>> tensors = all_of(upload);
  REQUIRE_OK(tensors);
  return std::move(*tensors);
}

// Uploads all tensors, twice each, and compares them.
UploadReport upload_all(Files& files, const UploaderOptions& options) {
  const Checkpoint checkpoint = weightmap::test::opened(files.path);
  Uploader uploader = created(options);
  std::vector<std::string_view> names = files.names();
  const std::vector<std::string_view> once = names;
  names.insert(names.end(), once.rbegin(), once.rend());
  Result<Upload> upload = uploader.start(checkpoint, names);
  REQUIRE_OK(upload);
  const std::vector<DeviceTensor> tensors = each_of(*upload);
  REQUIRE(tensors.size() == names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    CAPTURE(names[i]);
    const DeviceTensor& tensor = tensors[i];
    const Content& expected = *std::ranges::find(files.contents, names[i], &Content::name);
    CHECK(std::ranges::equal(tensor.shape(), expected.shape));
    CHECK(tensor.dtype() == expected.dtype);
    CHECK((tensor.pointer() == 0) == expected.bytes.empty());
    CHECK(files.driver.bytes_of(tensor) == expected.bytes);
  }
  return upload->report();
}

}  // namespace

TEST_CASE_FIXTURE(Files,
                  "all tensors go through pinned slots where the device can do nothing else") {
  const UploadReport report = upload_all(*this, options());
  const std::uint64_t bytes = 2 * (48 + 35000 + 8 + 2400 + 8192 + 48000 + 3);
  CHECK(report.tensors == 16);
  CHECK(report.bytes == bytes);
  CHECK(report.slot_bytes == bytes);
  CHECK(report.registrations == 0);
  CHECK(driver.calls("cuMemHostRegister_v2") == 0);
  CHECK(driver.calls("cuMemHostAlloc") == 1);
  CHECK(driver.calls("cuEventCreate") == 3);
}

TEST_CASE_FIXTURE(Files, "where a device reads pageable memory the mapping is copied as it is") {
  for (const int attribute : {host_page_tables, integrated}) {
    CAPTURE(attribute);
    reset_to({attribute, host_register, read_only_register});
    const UploadReport report = upload_all(*this, options());
    CHECK(report.mapping_bytes == report.bytes);
    CHECK(driver.calls("cuMemHostAlloc") == 0);
    CHECK(driver.calls("cuMemHostRegister_v2") == 0);
    CHECK(driver.faults() == "");
  }
}

TEST_CASE_FIXTURE(Files, "parts of the mapping are registered read-only, one after the other") {
  reset_to({host_register, read_only_register});
  const UploadReport report = upload_all(*this, options());
  CHECK(report.registered_bytes == report.bytes);
  CHECK(report.registrations == 6);  // of 16384 bytes, for 93651 and the header
  CHECK(report.refused_registrations == 0);
  CHECK(driver.largest_registration() == 16384);
  CHECK(driver.calls("cuMemHostAlloc") == 0);
  CHECK(driver.calls("cuMemHostUnregister") == 6);
}

TEST_CASE_FIXTURE(Files, "without the attribute for read-only memory nothing is registered") {
  driver.set_attribute(host_register, 1);
  CHECK(created(options()).way() == Way::slots);
  driver.set_attribute(host_register, 0);
  driver.set_attribute(read_only_register, 1);
  CHECK(created(options()).way() == Way::slots);
}

TEST_CASE_FIXTURE(Files, "where a registration is refused the rest goes through slots") {
  for (const int error : {801, 1, 712})
    for (const int nth : {1, 2, 3, 6}) {
      CAPTURE(error);
      CAPTURE(nth);
      reset_to({host_register, read_only_register});
      driver.fail("cuMemHostRegister_v2", nth, error);
      const UploadReport report = upload_all(*this, options());
      CHECK(report.registrations == static_cast<std::uint64_t>(nth - 1));
      CHECK(report.refused_registrations == 1);
      CHECK(report.refusal.starts_with("cuMemHostRegister_v2 failed: CUDA_ERROR_"));
      CHECK(report.slot_bytes > 0);
      CHECK((report.registered_bytes > 0) == (nth > 1));
      CHECK(driver.calls("cuMemHostRegister_v2") == nth);
      CHECK(driver.calls("cuMemHostAlloc") == 1);
      CHECK(driver.faults() == "");
    }
}

TEST_CASE_FIXTURE(Files, "a registration that fails for another reason is an error") {
  reset_to({host_register, read_only_register});
  driver.fail("cuMemHostRegister_v2", 1, 2);
  const Checkpoint checkpoint = weightmap::test::opened(path);
  Uploader uploader = created(options());
  Result<Upload> upload = uploader.start(checkpoint, {"matrix"});
  REQUIRE_OK(upload);
  CHECK_FAILS(
      upload->next(), ErrorCode::io,
      "tensor \"matrix\": cuMemHostRegister_v2 failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of "
      "memory");
}

namespace {

// What gather() makes of it, the device has.
void check_views(Files& files, const Checkpoint& checkpoint, const std::vector<TensorView>& views,
                 Uploader& uploader) {
  Result<Upload> upload = uploader.start(checkpoint, views);
  REQUIRE_OK(upload);
  const std::vector<DeviceTensor> tensors = each_of(*upload);
  REQUIRE(tensors.size() == views.size());
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < views.size(); ++i) {
    CAPTURE(i);
    std::string expected(views[i].nbytes(), '\0');
    REQUIRE_OK(checkpoint.gather(views[i], std::as_writable_bytes(std::span(expected))));
    CHECK(std::ranges::equal(tensors[i].shape(), views[i].shape()));
    CHECK(files.driver.bytes_of(tensors[i]) == expected);
    bytes += views[i].nbytes();
  }
  CHECK(upload->report().bytes == bytes);
}

}  // namespace

TEST_CASE_FIXTURE(Files, "of slices their own bytes are uploaded, row-major") {
  const Checkpoint checkpoint = weightmap::test::opened(path);
  const TensorView matrix = *checkpoint.find("matrix");
  const TensorView cube = *checkpoint.find("cube");
  const TensorView big = *checkpoint.find("big");
  const TensorSlice columns = *matrix.narrow(1, 5, 7);
  const TensorSlice column = *matrix.select(1, 29);
  const TensorSlice rows = *matrix.narrow(0, 3, 4);
  const TensorSlice steps = *cube.narrow(1, 1, 24, 2);  // 23040 bytes: three slots
  const TensorSlice plane = *cube.select(2, 39);
  const TensorSlice wide = *big.narrow(1, 1, 4999);
  const TensorSlice none = *matrix.narrow(0, 3, 0);
  const std::int64_t dims[] = {3, 12, 0, 1};
  const TensorView norm = *checkpoint.find("norm");
  const TensorView expanded(DType::float32, 2, dims, norm.data(), 48, 0);
  const std::vector<TensorView> views = {columns, column, rows, steps, plane, wide, none, expanded};
  by_each_way([&] {
    Uploader uploader = created(options());
    check_views(*this, checkpoint, views, uploader);
  });
  Uploader uploader = created(options());
  Result<Upload> upload = uploader.start(checkpoint, std::vector<TensorView>{columns});
  REQUIRE_OK(upload);
  const std::vector<DeviceTensor> tensors = each_of(*upload);
  CHECK(std::ranges::equal(tensors.front().strides(), std::vector<std::int64_t>{7, 1}));
  std::string expected;
  for (std::size_t row = 0; row < 40; ++row)
    expected += bytes_of("matrix").substr(row * 60 + 10, 14);
  CHECK(driver.bytes_of(tensors.front()) == expected);
}

TEST_CASE_FIXTURE(Files, "tensors of all that is read are uploaded as they are gathered") {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(weightmap::test::data)) {
    if (entry.path().extension() != ".pt") continue;
    CAPTURE(entry.path().string());
    const Result<Checkpoint> checkpoint = Checkpoint::open(entry.path());
    if (!checkpoint) continue;
    std::vector<TensorView> views;
    for (const weightmap::NamedTensor& tensor : checkpoint->tensors())
      if (!tensor.view.is_conjugate() && !tensor.view.is_negative()) views.push_back(tensor.view);
    by_each_way([&] {
      Uploader uploader = created(options());
      check_views(*this, *checkpoint, views, uploader);
    });
    ++files;
  }
  CHECK(files > 20);
}

TEST_CASE_FIXTURE(Files, "two slots and many threads, many slots and one thread") {
  UploaderOptions narrow = options();
  narrow.slots = 2;
  narrow.slot_bytes = 4096;
  narrow.threads = 64;
  upload_all(*this, narrow);
  UploaderOptions wide = options();
  wide.slots = 64;
  wide.threads = 1;
  upload_all(*this, wide);
  wide.slot_bytes = std::uint64_t{1} << 20;  // all in one
  upload_all(*this, wide);
}

TEST_CASE_FIXTURE(Files, "an uploader serves one upload after the other, and not two at a time") {
  const Checkpoint checkpoint = weightmap::test::opened(path);
  Uploader uploader = created(options());
  {
    Result<Upload> first = uploader.start(checkpoint, {"big"});
    REQUIRE_OK(first);
    CHECK_FAILS(uploader.start(checkpoint, {"norm"}), ErrorCode::invalid_argument,
                "another Upload of this Uploader");
  }
  Result<Upload> second = uploader.start(checkpoint, {"norm"});
  REQUIRE_OK(second);
  const std::vector<DeviceTensor> tensors = each_of(*second);
  CHECK(driver.bytes_of(tensors.front()) == bytes_of("norm"));
  CHECK(driver.calls("cuMemHostAlloc") == 1);
}

TEST_CASE_FIXTURE(Files, "slots whose copies could not be waited for serve no other upload") {
  const Checkpoint checkpoint = weightmap::test::opened(path);
  {
    Uploader uploader = created(options());
    {
      Result<Upload> upload = uploader.start(checkpoint, {"big"});
      REQUIRE_OK(upload);
      driver.fail("cuEventSynchronize", 1, 700);
      CHECK_FAILS(upload->next(), ErrorCode::io, "cuEventSynchronize failed");
      for (int nth = 1; nth <= 20; ++nth) driver.fail("cuCtxPushCurrent_v2", nth, 201);
    }
    CHECK_FAILS(uploader.start(checkpoint, {"norm"}), ErrorCode::invalid_argument,
                "or its copies could not be waited for");
  }
  driver.reset();        // the copies go on while the memory is given back
  driver.forget_held();  // what would be given back in a context that cannot be had is lost
}

TEST_CASE_FIXTURE(Files, "a tensor outlives the uploader and the checkpoint") {
  std::optional<DeviceTensor> kept;
  {
    const Checkpoint checkpoint = weightmap::test::opened(path);
    Uploader uploader = created(options());
    Result<Upload> upload = uploader.start(checkpoint, {"matrix", "norm"});
    REQUIRE_OK(upload);
    Result<std::optional<DeviceTensor>> tensor = upload->next();
    REQUIRE_OK(tensor);
    kept = std::move(*tensor);
  }
  CHECK(driver.held() == "1 contexts\n1 allocations\n");
  const DeviceTensor copy = *kept;
  kept.reset();
  CHECK(driver.bytes_of(copy) == bytes_of("matrix"));
}

TEST_CASE_FIXTURE(Files, "an upload that is dropped half way gives everything back") {
  for (std::size_t given = 0; given < contents.size(); ++given) {
    CAPTURE(given);
    by_each_way([&] {
      const Checkpoint checkpoint = weightmap::test::opened(path);
      Uploader uploader = created(options());
      {
        const std::vector<std::string_view> wanted = names();
        Result<Upload> upload = uploader.start(checkpoint, wanted);
        REQUIRE_OK(upload);
        for (std::size_t i = 0; i < given; ++i) REQUIRE_OK(upload->next());
      }
      Result<Upload> again = uploader.start(checkpoint, {"cube"});
      REQUIRE_OK(again);
      REQUIRE_OK(again->next());
    });
  }
}

TEST_CASE_FIXTURE(Files, "in a forked child uploads fail, and what is dropped stays the parent's") {
  if (weightmap::test::under_sanitizer) return;  // whose allocator a fork can leave locked
  driver.set_attribute(host_register, 1);
  UploaderOptions slots = options();
  slots.way = Way::slots;
  const Checkpoint checkpoint = weightmap::test::opened(path);
  std::optional<Uploader> uploader(created(slots));
  const std::vector<std::string_view> wanted = names();
  std::optional<Upload> upload(*uploader->start(checkpoint, wanted));
  std::optional<DeviceTensor> first = *upload->next();
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<std::optional<DeviceTensor>> next = upload->next();
    bool is_right = !next && next.error().code == ErrorCode::unsupported;
    const Result<Upload> begun = uploader->start(checkpoint, {"norm"});
    is_right = is_right && !begun && begun.error().code == ErrorCode::unsupported;
    const std::string held = driver.held();
    first.reset();
    upload.reset();
    uploader.reset();
    is_right = is_right && driver.held() == held && driver.faults().empty();
    ::_exit(is_right ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(driver.bytes_of(*first) == contents.front().bytes);
  const std::vector<DeviceTensor> rest = each_of(*upload);
  for (std::size_t i = 0; i < rest.size(); ++i)
    CHECK(driver.bytes_of(rest[i]) == contents[i + 1].bytes);
}

TEST_CASE_FIXTURE(Files, "what was written to private memory is uploaded") {
  weightmap::OpenOptions private_memory;
  private_memory.sharing = weightmap::Sharing::private_;
  private_memory.writable = true;
  Checkpoint checkpoint = weightmap::test::opened(path, private_memory);
  const TensorView norm = *checkpoint.find("norm");
  const Result<std::span<std::byte>> bytes = checkpoint.writable_bytes(norm);
  REQUIRE_OK(bytes);
  std::ranges::fill(*bytes, std::byte{9});
  by_each_way([&] {
    Uploader uploader = created(options());
    Result<Upload> upload = uploader.start(checkpoint, {"norm"});
    REQUIRE_OK(upload);
    const std::vector<DeviceTensor> tensors = each_of(*upload);
    CHECK(driver.bytes_of(tensors.front()) == std::string(48, '\x09'));
    CHECK(upload->report().slot_bytes == 48);
    CHECK(driver.calls("cuMemHostRegister_v2") == 0);
  });
}

TEST_CASE_FIXTURE(Files, "a file that was cut, or is written to, is an error by any way") {
  const std::filesystem::path changed = folder.path() / "changed.safetensors";
  for (const bool is_cut : {true, false})
    by_each_way([&] {
      CAPTURE(is_cut);
      const std::string name = is_cut ? "cube" : "norm";
      std::filesystem::copy_file(path, changed, std::filesystem::copy_options::overwrite_existing);
      const Checkpoint checkpoint = weightmap::test::opened(changed);
      std::filesystem::resize_file(changed, is_cut ? 8192 : std::filesystem::file_size(path) + 1);
      Uploader uploader = created(options());
      Result<Upload> upload = uploader.start(checkpoint, {name});
      REQUIRE_OK(upload);
      const Result<std::optional<DeviceTensor>> tensor = upload->next();
      CHECK_FAILS(tensor, ErrorCode::io, "tensor \"" + name + "\": ");
      CHECK(tensor.error().file == changed.string());
      CHECK_FAILS(upload->next(), ErrorCode::io, "tensor \"" + name + "\": ");  // the same again
    });
}

TEST_CASE_FIXTURE(Files, "a checkpoint of which only the metadata was read is refused") {
  weightmap::test::ByteStore store;
  store.put("m.safetensors", weightmap::test::read_file(path));
  const Result<Checkpoint> remote = weightmap::open_metadata(
      std::make_unique<weightmap::test::StoreSource>(store, "m.safetensors"));
  REQUIRE_OK(remote);
  Uploader uploader = created(options());
  CHECK_FAILS(uploader.start(*remote, {"norm"}), ErrorCode::unsupported,
              "only its metadata was read, so its tensors have no memory");
}

TEST_CASE_FIXTURE(Files, "a library that is not there, or is no driver") {
  UploaderOptions missing = options();
  missing.library = "/nowhere/libcuda.so.1";
  CHECK_FAILS(Uploader::create(missing), ErrorCode::unsupported,
              "there is no CUDA driver: cannot load \"/nowhere/libcuda.so.1\": "
              "/nowhere/libcuda.so.1: cannot open shared object file");
  missing.library = "libm.so.6";
  CHECK_FAILS(Uploader::create(missing), ErrorCode::unsupported,
              "the CUDA driver \"libm.so.6\" has no function cuInit");
}

TEST_CASE_FIXTURE(Files, "options out of range are refused by name") {
  const auto refused = [&](const auto& change, std::string_view text) {
    UploaderOptions wrong = options();
    change(wrong);
    CHECK_FAILS(Uploader::create(wrong), ErrorCode::invalid_argument, text);
  };
  refused([](UploaderOptions& wrong) { wrong.slots = 1; },
          "UploaderOptions::slots is 1, which is not from 2 to 64");
  refused([](UploaderOptions& wrong) { wrong.slots = 65; }, "UploaderOptions::slots is 65");
  refused([](UploaderOptions& wrong) { wrong.slot_bytes = 4095; },
          "UploaderOptions::slot_bytes is 4095");
  refused([](UploaderOptions& wrong) { wrong.slot_bytes = (std::uint64_t{1} << 30) + 1; },
          "UploaderOptions::slot_bytes is 1073741825");
  refused([](UploaderOptions& wrong) { wrong.threads = 0; }, "UploaderOptions::threads is 0");
  refused([](UploaderOptions& wrong) { wrong.threads = 65; }, "UploaderOptions::threads is 65");
  refused([](UploaderOptions& wrong) { wrong.register_bytes = (std::uint64_t{64} << 30) + 1; },
          "UploaderOptions::register_bytes is 68719476737");
  refused([](UploaderOptions& wrong) { wrong.way = Way::mapping; },
          "CUDA device 0 does not use the host's page tables, which Way::mapping needs");
  refused([](UploaderOptions& wrong) { wrong.way = Way::registered; },
          "CUDA device 0 cannot register read-only memory, which Way::registered needs");
  UploaderOptions other = options();
  other.device = 2;
  CHECK_FAILS(Uploader::create(other), ErrorCode::io,
              "CUDA device 2: cuDeviceGet failed: CUDA_ERROR_INVALID_DEVICE (101)");
}

TEST_CASE_FIXTURE(Files, "the slots can be asked for whatever the device can do") {
  reset_to({host_page_tables, host_register, read_only_register});
  UploaderOptions other = options();
  other.device = 1;
  other.way = Way::slots;
  const UploadReport report = upload_all(*this, other);
  CHECK(report.slot_bytes == report.bytes);
  const Uploader uploader = created(other);
  CHECK(uploader.facts().uses_host_page_tables);
  CHECK(uploader.facts().can_register);
  CHECK(uploader.facts().can_register_read_only);
  CHECK_FALSE(uploader.facts().is_integrated);
  CHECK(uploader.facts().memory_bytes == std::size_t{1} << 30);
}

TEST_CASE_FIXTURE(Files, "views that cannot be uploaded are refused before anything is allocated") {
  const Checkpoint checkpoint = weightmap::test::opened(path);
  const Checkpoint other = weightmap::test::opened(path);
  driver.set_memory(40000);
  Uploader uploader = created(options());
  CHECK_FAILS(uploader.start(checkpoint, {"norm", "nix"}), ErrorCode::not_found, "nix");
  CHECK_FAILS(uploader.start(checkpoint, {"norm", "cube"}), ErrorCode::limit_exceeded,
              "tensor \"cube\": its 48000 bytes do not fit the 40000 of CUDA device 0");
  CHECK_FAILS(uploader.start(checkpoint, std::vector{*other.find("norm")}),
              ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  const std::int64_t dims[] = {1, 1, 1, 1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 3, 1};
  const TensorView deep(DType::uint8, 9, dims, checkpoint.find("page")->data(), 5, 0);
  CHECK_FAILS(uploader.start(checkpoint, std::vector{deep}), ErrorCode::invalid_argument,
              "tensor \"page\": ");
  const Checkpoint lazy = weightmap::test::opened(weightmap::test::data / "conjugate.pt");
  const auto is_lazy = [](const weightmap::NamedTensor& tensor) {
    return tensor.view.is_conjugate();
  };
  const auto conjugate = std::ranges::find_if(lazy.tensors(), is_lazy);
  REQUIRE(conjugate != lazy.tensors().end());
  CHECK_FAILS(uploader.start(lazy, std::vector{(*conjugate).view}), ErrorCode::unsupported,
              "conjugate");
  CHECK(driver.calls("cuMemHostAlloc") == 0);
  CHECK(driver.calls("cuMemAlloc_v2") == 0);
}

namespace {

// All of it, once: what a program does that uploads something.
Result<void> upload_once(const Files& files, const UploaderOptions& options) {
  const Checkpoint checkpoint = weightmap::test::opened(files.path);
  Result<Uploader> uploader = Uploader::create(options);
  if (!uploader) return tl::unexpected<weightmap::Error>(uploader.error());
  const std::vector<std::string_view> names = files.names();
  Result<Upload> upload = uploader->start(checkpoint, names);
  if (!upload) return tl::unexpected<weightmap::Error>(upload.error());
  const Result<std::vector<DeviceTensor>> tensors = all_of(*upload);
  if (!tensors) return tl::unexpected<weightmap::Error>(tensors.error());
  return {};
}

struct Function {
  std::string name;
  // Of what gives something back in a destructor nobody is told.
  bool may_be_silent = false;
};

}  // namespace

TEST_CASE_FIXTURE(Files, "whichever call fails is named, and nothing stays" *
                             doctest::test_suite("exhaustive")) {
  const std::vector<Function> functions = {{"cuInit"},
                                           {"cuDeviceGet"},
                                           {"cuDeviceGetAttribute"},
                                           {"cuDeviceTotalMem_v2"},
                                           {"cuDevicePrimaryCtxRetain"},
                                           {"cuDevicePrimaryCtxRelease_v2", true},
                                           {"cuCtxPushCurrent_v2", true},
                                           {"cuCtxPopCurrent_v2", true},
                                           {"cuMemAlloc_v2"},
                                           {"cuMemFree_v2", true},
                                           {"cuMemHostAlloc"},
                                           {"cuMemFreeHost", true},
                                           {"cuMemHostRegister_v2"},
                                           {"cuMemHostUnregister"},
                                           {"cuMemcpyHtoDAsync_v2"},
                                           {"cuStreamCreate"},
                                           {"cuStreamDestroy_v2", true},
                                           {"cuEventCreate"},
                                           {"cuEventRecord"},
                                           {"cuEventSynchronize"},
                                           {"cuEventDestroy_v2", true}};
  int failures = 0;
  for (const int attribute : {0, host_register}) {
    for (const Function& function : functions)
      for (int nth = 1;; ++nth) {
        CAPTURE(attribute);
        CAPTURE(function.name);
        CAPTURE(nth);
        reset_to({attribute, read_only_register});
        driver.fail(function.name, nth, 700);
        const Result<void> done = upload_once(*this, options());
        if (driver.calls(function.name) < nth) {
          REQUIRE_OK(done);
          break;
        }
        ++failures;
        if (done)
          CHECK(function.may_be_silent);
        else
          CHECK_FAILS(done, ErrorCode::io,
                      function.name +
                          " failed: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory "
                          "access was encountered");
        if (function.name == "cuCtxPushCurrent_v2") {
          driver.forget_held();  // what would be given back in a context that cannot be had is lost
          continue;
        }
        CHECK(driver.faults() == "");
        CHECK(driver.held() == "");
      }
  }
  CHECK(failures > 200);
}
