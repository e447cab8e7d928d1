// What tests of shared catalogs begin with: a runtime directory of their own, all that a checkpoint
// says as text, and catalogs that were changed on purpose.
#pragma once

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/shared_catalog/published.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::test::catalogs {

namespace fs = std::filesystem;

// A runtime directory and checkpoints of its own.
struct Fixture {
  Fixture() { setenv("WEIGHTMAP_RUNTIME_DIR", shared.c_str(), 1); }
  ~Fixture() {
    unsetenv("WEIGHTMAP_RUNTIME_DIR");
    fs::remove_all(memory);
  }

  // A copy of one of tests/data that is old enough to be published.
  fs::path copy(const std::string& name) const {
    fs::path made = folder.path() / name;
    fs::copy_file(data / name, made, fs::copy_options::overwrite_existing);
    settle();
    return made;
  }
  // A checkpoint of so many tensors, whose catalog has many chunks.
  fs::path many(int tensors) const {
    fs::path made = folder.path() / "many.pt";
    const std::string command = std::string(WEIGHTMAP_MAKE_CHECKPOINT) + " " + made.string() +
                                " --shape 2x2 --count " + std::to_string(tensors);
    REQUIRE(std::system(command.c_str()) == 0);
    settle();
    return made;
  }
  static void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(25)); }

  std::vector<fs::path> files(const std::string& ending = "") const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(shared))
      if (entry.path().native().ends_with(ending)) found.push_back(entry.path());
    return found;
  }
  fs::path block() const {
    const std::vector<fs::path> found = files();
    REQUIRE(found.size() == 1);
    return found.front();
  }
  // Puts these bytes where the published catalog is, as a new file: the old one may be mapped.
  static void plant(const fs::path& block, const std::string& bytes) {
    const fs::path made = block.native() + ".planted";
    std::ofstream(made, std::ios::binary) << bytes;
    REQUIRE(chmod(made.c_str(), 0600) == 0);
    fs::rename(made, block);
  }

  // In memory, as it is in use; some file systems wait for the disk when a file is replaced.
  static fs::path make_memory_folder() {
    char name[] = "/dev/shm/weightmap-test-XXXXXX";
    const char* const made = mkdtemp(name);
    REQUIRE(made != nullptr);
    return made;
  }

  test::TemporaryFolder folder;
  fs::path memory = make_memory_folder();
  fs::path shared = memory / "shared";
};

inline OpenOptions sharing() {
  OpenOptions options;
  options.shared_catalog = true;
  return options;
}

inline OpenOptions sharing_unverified() {
  OpenOptions options = sharing();
  options.verify = Verify::chain;
  return options;
}

inline Checkpoint opened(const fs::path& path, const OpenOptions& options = sharing()) {
  return test::opened(path, options);
}

inline CatalogSource source_of(const fs::path& path, const OpenOptions& options = sharing()) {
  const Checkpoint checkpoint = opened(path, options);
  return checkpoint.info().catalog;
}

inline Checkpoint parsed(const fs::path& path) {
  OpenOptions options;
  options.shared_catalog = false;
  return opened(path, options);
}

inline void describe(const Value& value, std::string& out, int depth) {
  out += std::string(to_string(value.kind())) + "(";
  if (const auto number = value.integer()) out += std::to_string(*number);
  if (const auto number = value.real()) out += std::to_string(*number);
  if (const auto flag = value.boolean()) out += *flag ? "true" : "false";
  if (const auto text = value.string()) out += *text;
  out += std::string(value.module()) + "." + std::string(value.name());
  if (depth == 0) return;
  for (const Value element : value.elements()) describe(element, out, depth - 1);
  for (const auto& [key, item] : value.items()) {
    describe(key, out, depth - 1);
    describe(item, out, depth - 1);
  }
  if (value.kind() == Value::Kind::object) describe(value.arguments(), out, depth - 1);
  out += ")";
}

inline std::string describe(const std::vector<PathPart>& path) {
  std::string text;
  for (const PathPart& part : path)
    text +=
        part.is_integer() ? "#" + std::to_string(part.integer()) : "/" + std::string(part.key());
  return text;
}

// All that a checkpoint says of its tensors and storages.
inline std::string describe_tensors(const Checkpoint& checkpoint) {
  std::string text;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    text += std::string(tensor.name) + " " + std::string(to_string(tensor.view.dtype())) + " @" +
            std::to_string(tensor.file_offset) + " +" + std::to_string(tensor.storage_offset) +
            " s" + std::string(tensor.storage) + " " + std::to_string(tensor.storage_index) + " " +
            std::string(tensor.location) + (tensor.requires_grad ? " g" : "") +
            (tensor.is_parameter ? " p" : "") + (tensor.view.is_conjugate() ? " c" : "") +
            (tensor.view.is_foreign_byte_order() ? " f" : "");
    for (std::int64_t dim : tensor.view.shape()) text += " " + std::to_string(dim);
    for (std::int64_t dim : tensor.view.strides()) text += " /" + std::to_string(dim);
    text += " " + std::to_string(tensor.view.bytes().size()) +
            describe(checkpoint.path(tensor.index)) + "\n";
    const auto by_name = checkpoint.find(tensor.name);
    text += by_name ? std::to_string(by_name->bytes().size()) : "ambiguous";
    text += checkpoint.find_path(checkpoint.path(tensor.index)) ? " by path\n" : " lost\n";
    const Result<NamedTensor> got = checkpoint.get(tensor.name);
    text += got ? std::string(got->name) : got.error().message;
  }
  for (std::size_t i = 0; i < checkpoint.storage_count(); ++i) {
    const NamedStorage storage = checkpoint.storage(i);
    text += std::string(storage.key) + " @" + std::to_string(storage.payload_offset) + " " +
            std::to_string(storage.nbytes) + " " + std::to_string(storage.crc32) + "\n";
  }
  return text + (checkpoint.find("no such tensor") ? "found" : "not found");
}

inline std::string describe_all(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  std::string text = describe_tensors(checkpoint);
  text += std::string(info.format) + " " + std::to_string(info.version) + " " +
          info.format_version.value_or("none") + " " + std::string(info.byteorder) +
          (info.byteorder_assumed ? "?" : "") + " " + std::to_string(info.storage_alignment) + " " +
          std::to_string(info.tensors) + " " + std::to_string(info.storages) + " " +
          std::to_string(info.tensor_bytes) + " " + std::to_string(info.file_bytes) + " " +
          std::to_string(info.pickle_bytes) + " " +
          std::string(to_string(checkpoint.stats().strategy)) + "\n";
  describe(checkpoint.root(), text, 8);
  return text;
}

// The published block of a file, taken apart so that it can be put together wrongly.
struct Forgery {
  explicit Forgery(const fs::path& block)
      : bytes(test::read_file(block)), buffer(bytes.size(), *std::pmr::new_delete_resource()) {
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    Result<catalog::Published> read = catalog::Published::read(buffer.span());
    REQUIRE_OK(read);
    description = read->description();
    content = read->catalog().block();
    std::memcpy(&header, content.data(), sizeof header);
  }

  template <class T>
  T& at(std::uint64_t section, std::size_t index = 0) {
    auto* const first = const_cast<std::byte*>(content.data()) + section;
    return reinterpret_cast<T*>(first)[index];
  }
  catalog::Sections sections() const { return catalog::Sections(header); }
  catalog::Entry& entry(std::size_t index) { return at<catalog::Entry>(sections().entries, index); }
  catalog::StorageEntry& storage(std::size_t index) {
    return at<catalog::StorageEntry>(sections().storages, index);
  }

  // With sums that fit what is there now.
  std::string forged() {
    const catalog::Catalog catalog(header, content);
    const std::vector<std::byte> preamble = catalog::make_preamble(description, catalog);
    std::string made(reinterpret_cast<const char*>(preamble.data()), preamble.size());
    made.append(reinterpret_cast<const char*>(content.data()), content.size());
    return made;
  }

  std::string bytes;
  bytes::Buffer buffer;
  catalog::Description description;
  std::span<const std::byte> content;
  catalog::Header header;
};

}  // namespace weightmap::test::catalogs
