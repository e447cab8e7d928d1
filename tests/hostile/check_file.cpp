#include "tests/hostile/check_file.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_set>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "tests/hostile/process_memory.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::test {
namespace {

// Beyond this a tensor is looked at, and not read.
constexpr std::uint64_t most_bytes = std::uint64_t{64} << 20;

class FileCheck {
 public:
  FileCheck(const HostileFile& file, Verify level)
      : file_(file), level_(level), expected_(level == Verify::crc ? file.crc : file.chain) {}

  FileReport run() && {
    const Handles before = open_handles(file_.path.native());
    open_and_look();
    const Handles after = open_handles(file_.path.native());
    if (after.descriptors != before.descriptors) complain("leaves a descriptor open");
    if (after.mappings != 0) complain("is still mapped");
    return {std::move(complaints_), sum_};
  }

 private:
  void complain(const std::string& what) {
    complaints_.push_back(bytes::escape(file_.name) + " (" + std::string(to_string(level_)) +
                          "): " + what);
  }

  void open_and_look() {
    OpenOptions options;
    options.verify = level_;
    const PeakMemory memory;
    const Result<Checkpoint> opened = Checkpoint::open(file_.path, options);
    const Error* const refusal = opened ? first_fault(*opened) : &opened.error();
    // A check of every byte reads them through the mapping, which counts as memory.
    const std::uint64_t taken = memory.grown();
    if (level_ == Verify::chain && taken > file_.memory_bytes)
      complain("takes " + std::to_string(taken) + " bytes of memory, allowed are " +
               std::to_string(file_.memory_bytes));
    if (refusal != nullptr) check_refusal(*refusal);
    if (!opened) return;
    if (refusal == nullptr && expected_.verdict == Verdict::refuse)
      complain("opens, expected was a refusal");
    look(*opened);
  }

  // A tensor whose place is proven at its first use may be refused then.
  static const Error* first_fault(const Checkpoint& checkpoint) {
    for (const NamedTensor& tensor : checkpoint.tensors())
      if (tensor.view.fault() != nullptr) return tensor.view.fault();
    return nullptr;
  }

  void check_refusal(const Error& error) {
    const std::string shown = " (" + to_string(error) + ")";
    if (expected_.verdict == Verdict::open) return complain("is refused" + shown);
    if (!expected_.code.empty() && to_string(error.code) != expected_.code)
      complain("is refused as " + std::string(to_string(error.code)) + ", expected " +
               expected_.code + shown);
    for (const std::string& word : expected_.words)
      if (error.message.find(word) == std::string::npos)
        complain("does not say \"" + word + "\"" + shown);
    if (expected_.file_offset && error.file_offset != *expected_.file_offset)
      complain("blames another byte than " + std::to_string(*expected_.file_offset) + shown);
    check_sentence(error);
  }

  // Fit for a terminal and a log: one line of printable text, cut where a name was long.
  void check_sentence(const Error& error) {
    const bool printable = std::all_of(error.message.begin(), error.message.end(), [](char c) {
      return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
    });
    if (!printable)
      complain("has a message that is not printable: " + bytes::escape(error.message));
    if (error.message.empty() || error.message.size() > 1000)
      complain("has a message of " + std::to_string(error.message.size()) + " bytes");
    if (error.file.empty()) complain("has a message that names no file");
  }

  void look(const Checkpoint& checkpoint) {
    std::size_t seen = 0;
    for (const NamedTensor& tensor : checkpoint.tensors()) {
      look(checkpoint, tensor);
      if (file_.tensors.contains(std::string(tensor.name))) ++seen;
    }
    if (file_.all_tensors && (seen != file_.tensors.size() || seen != checkpoint.tensors().size()))
      complain("shows " + std::to_string(checkpoint.tensors().size()) + " tensors, of which " +
               std::to_string(seen) + " are among the " + std::to_string(file_.tensors.size()) +
               " expected ones");
    walk(checkpoint);
  }

  void look(const Checkpoint& checkpoint, const NamedTensor& tensor) {
    const std::span<const std::byte> whole = checkpoint.mapping();
    const std::span<const std::byte> bytes = tensor.view.stored_bytes();
    if (!bytes.empty() &&
        (bytes.data() < whole.data() || bytes.size() > whole.size() ||
         static_cast<std::size_t>(bytes.data() - whole.data()) > whole.size() - bytes.size()))
      return complain("has a tensor outside the file: " + bytes::escape(tensor.name));
    if (!file_.is_huge) touch(bytes);
    touch(bytes.first(std::min<std::size_t>(bytes.size(), 4096)));
    touch(bytes.last(std::min<std::size_t>(bytes.size(), 4096)));
    sum_ += bytes::escape(tensor.name).size() + checkpoint.path(tensor.index).size() +
            to_string(tensor.view.dtype()).size() + tensor.view.numel() +
            tensor.view.shape().size() + (tensor.view.is_contiguous() ? 1 : 0) +
            (checkpoint.find(tensor.name) ? 1 : 0);
    if (!checkpoint.contains(tensor.name)) complain("does not find a tensor by its own name");
    if (tensor.view.fault() == nullptr && tensor.view.nbytes() <= most_bytes)
      compare(checkpoint, tensor);
  }

  void compare(const Checkpoint& checkpoint, const NamedTensor& tensor) {
    std::vector<std::byte> elements(tensor.view.nbytes());
    const Result<void> gathered = checkpoint.gather(tensor.view, elements);
    const auto expected = file_.tensors.find(std::string(tensor.name));
    if (expected == file_.tensors.end()) return;
    if (!gathered) return complain("cannot gather: " + to_string(gathered.error()));
    if (expected->second.nbytes != elements.size() ||
        expected->second.crc32 != zip::crc32(elements))
      complain("has other bytes in tensor " + bytes::escape(tensor.name));
  }

  // A hostile tree has cycles, and shared containers that would be visited 2^60 times.
  void walk(const Checkpoint& checkpoint) {
    struct SameNode {
      bool operator()(const Value& a, const Value& b) const { return a.is_same_as(b); }
    };
    struct Hash {
      std::size_t operator()(const Value& value) const { return value.hash(); }
    };
    std::unordered_set<Value, Hash, SameNode> seen;
    std::vector<Value> left{checkpoint.root()};
    for (std::size_t steps = 0; !left.empty() && steps < 2'000'000; ++steps) {
      const Value value = left.back();
      left.pop_back();
      sum_ += to_string(value.kind()).size() + value.string().value_or("").size() +
              value.module().size() + (value.boolean().value_or(false) ? 1 : 0);
      touch(value.bytes().value_or(std::span<const std::byte>{}));
      touch(value.big_integer().value_or(std::span<const std::byte>{}));
      const bool is_node = value.size() + value.item_count() != 0 ||
                           value.kind() == Value::Kind::object ||
                           value.kind() == Value::Kind::persistent_id;
      if (!is_node || !seen.insert(value).second) continue;
      for (const Value child : value.elements()) left.push_back(child);
      for (const auto& [key, item] : value.items()) {
        left.push_back(key);
        left.push_back(item);
      }
      if (value.kind() == Value::Kind::object) {
        sum_ += checkpoint.tensor(value) ? 1 : 0;
        left.push_back(value.callable());
        left.push_back(value.arguments());
        if (value.state()) left.push_back(*value.state());
      }
      if (value.kind() == Value::Kind::persistent_id) left.push_back(value.persistent_id());
    }
  }

  void touch(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) sum_ += static_cast<std::uint64_t>(b);
  }

  const HostileFile& file_;
  Verify level_;
  const Expectation& expected_;
  std::vector<std::string> complaints_;
  std::uint64_t sum_ = 0;  // of all that was read
};

}  // namespace

FileReport check_file(const HostileFile& file, Verify level) {
  return FileCheck(file, level).run();
}

}  // namespace weightmap::test
