#include "weightmap/checkpoint_writer.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/row_major.hpp"
#include "runtime/base/element_walk.hpp"
#include "runtime/base/pickle/write.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/base/value/value_builder_state.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/services/archive/own_records.hpp"
#include "runtime/services/write/contents.hpp"
#include "runtime/services/write/record_list.hpp"
#include "runtime/services/write/tensor_values.hpp"

namespace weightmap {
namespace {

std::string_view spelled(ByteOrder order) noexcept {
  if (order == ByteOrder::native) return native_byte_order;
  return order == ByteOrder::little ? "little" : "big";
}

// An empty storage needs no filling.
bool is_reserved(const RecordContent& content) noexcept {
  return content.kind() == RecordContent::Kind::reserved && content.size() > 0;
}

}  // namespace

struct CheckpointWriter::State {
  explicit State(const CheckpointWriterOptions& given)
      : options(given), tensors(values, values.state_->builder) {}

  struct Storage {
    RecordContent content;
    StorageTexts texts;
  };
  struct Extra {
    std::string name;
    RecordContent content;
  };

  bool is_in_order() const noexcept {
    return std::is_sorted(options.order.begin(), options.order.end());
  }
  Result<void> check_order() const;
  Result<void> make_pickle(const Value& root);
  void add_head();
  void add_marks();
  Result<WrittenStorage> add_storage_record(std::size_t number);
  Result<WritePlan> lay_out();
  ArchiveWriterOptions archive_options() const;
  // Does all work up to the first byte, once: the written archive is the planned one.
  Result<void> prepare(const Value& root, std::string name);
  Result<WritePlan> write_to(ArchiveWriter archive);

  CheckpointWriterOptions options;
  ValueBuilder values;
  TensorValues tensors;
  std::deque<Storage> storages;  // possibly many; deque keeps their addresses stable
  std::deque<Extra> extras;
  std::optional<Value> foreign_tree;
  Replace replace;
  std::unique_ptr<value::Tree> tree;
  std::vector<std::byte> pickle;
  std::string alignment_text;
  // Records between data.pkl and the storages.
  std::vector<std::pair<std::string_view, RecordContent>> head;
  bool has_holes = false;
  std::string marks;  // torch/archive_records.hpp; empty if nothing is reserved
  RecordContent marks_content = RecordContent::text({});
  std::string archive_name;
  std::optional<RecordList> records;
  std::optional<WritePlan> plan;
};

Result<void> CheckpointWriter::State::check_order() const {
  if (options.order.empty()) return {};
  std::vector<std::size_t> sorted = options.order;
  std::sort(sorted.begin(), sorted.end());
  bool each_once = sorted.size() == storages.size();
  for (std::size_t i = 0; each_once && i < sorted.size(); ++i) each_once = sorted[i] == i;
  if (each_once) return {};
  return failure(ErrorCode::invalid_argument,
                 "the order of the storages does not name each of the " +
                     std::to_string(storages.size()) + " storages once");
}

Result<void> CheckpointWriter::State::make_pickle(const Value& root) {
  TRY_ASSIGN(tree, std::move(values.state_->builder).finish(root.cell()));
  TRY_ASSIGN(pickle, pickle::write(foreign_tree.value_or(Value(tree.get(), tree->root())),
                                   {.replace = replace}));
  return {};
}

// Adds the records behind data.pkl, in torch's order. A file whose storages are not where torch
// computes them must not have a .format_version.
void CheckpointWriter::State::add_head() {
  alignment_text = std::to_string(records->padding());
  head.emplace_back("data.pkl", RecordContent::bytes(pickle));
  if (RecordList::pads_only(options.alignment) && is_in_order())
    head.emplace_back(".format_version", RecordContent::text("1"));
  head.emplace_back(".storage_alignment", RecordContent::text(alignment_text));
  head.emplace_back("byteorder", RecordContent::text(spelled(options.byte_order)));
}

void CheckpointWriter::State::add_marks() {
  std::string letters(storages.size(), torch::mark::saved);
  for (std::size_t i = 0; i < storages.size(); ++i)
    if (is_reserved(storages[i].content)) letters[i] = torch::mark::reserved;
  if (letters.find(torch::mark::reserved) == letters.npos) return;
  has_holes = true;
  if (!options.mark_reserved) return;
  marks = letters + torch::mark::open;
  marks_content = RecordContent::text(marks).changeable();
}

Result<WrittenStorage> CheckpointWriter::State::add_storage_record(std::size_t number) {
  const std::string name = zip::storage_record(std::to_string(number));
  const RecordContent& content = storages[number].content;
  TRY_ASSIGN(const std::uint64_t offset, records->add_storage(name, content));
  return WrittenStorage{offset, content.size(), is_reserved(content)};
}

Result<WritePlan> CheckpointWriter::State::lay_out() {
  for (const auto& [name, content] : head) TRY(records->add(name, content));
  WritePlan made{};
  made.storages.resize(storages.size());
  constexpr std::size_t name_bytes = 12;  // "data/1234567"
  records->reserve(head.size() + storages.size() + extras.size(), name_bytes);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const std::size_t number = options.order.empty() ? i : options.order[i];
    TRY_ASSIGN(made.storages[number], add_storage_record(number));
  }
  if (!marks.empty()) TRY(records->add(torch::marks_record, marks_content));
  for (const Extra& extra : extras) TRY(records->add(extra.name, extra.content));
  TRY_ASSIGN(made.archive_bytes, records->close());
  return made;
}

ArchiveWriterOptions CheckpointWriter::State::archive_options() const {
  return {.alignment = records->padding(),
          .crc32 = options.crc32,
          .archive_name = archive_name,
          .file = options.file,
          .progress = options.progress};
}

Result<void> CheckpointWriter::State::prepare(const Value& root, std::string name) {
  archive_name = std::move(name);
  if (plan) return {};
  TRY(check_order());
  TRY_ASSIGN(records, RecordList::make(archive_name, options.alignment));
  TRY(make_pickle(root));
  add_head();
  add_marks();
  TRY_ASSIGN(plan, lay_out());
  return {};
}

Result<WritePlan> CheckpointWriter::State::write_to(ArchiveWriter archive) {
  // Reserved space would fill the holes.
  if (!has_holes) TRY(archive.reserve_space(plan->archive_bytes));
  TRY(records->write(archive));
  TRY(archive.finish());
  return *std::move(plan);
}

CheckpointWriter::CheckpointWriter(const CheckpointWriterOptions& options)
    : state_(std::make_unique<State>(options)) {}
CheckpointWriter::CheckpointWriter(CheckpointWriter&&) noexcept = default;
CheckpointWriter& CheckpointWriter::operator=(CheckpointWriter&&) noexcept = default;
CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::write_tree(const Value& tree, Replace replace) {
  state_->foreign_tree = tree;
  state_->replace = std::move(replace);
}

ValueBuilder& CheckpointWriter::values() noexcept { return state_->values; }

std::size_t CheckpointWriter::add_storage(RecordContent content, std::string_view location) {
  const Value key = state_->values.string(std::to_string(state_->storages.size()));
  return add_storage(std::move(content),
                     {state_->tensors.tag(), key, state_->tensors.location(location)});
}

std::size_t CheckpointWriter::add_storage(RecordContent content, const StorageTexts& texts) {
  state_->storages.push_back({std::move(content), texts});
  return state_->storages.size() - 1;
}

Value CheckpointWriter::storage(std::size_t number, DType dtype) {
  const State::Storage& storage = state_->storages[number];
  return state_->tensors.storage(storage.texts, storage.content.size(), dtype);
}

Value CheckpointWriter::tensor(std::size_t storage_number, const TensorSpec& spec) {
  const State::Storage& storage = state_->storages[storage_number];
  return state_->tensors.tensor(storage.texts, storage.content.size(), spec);
}

Result<Value> CheckpointWriter::tensor(const TensorView& view, bool requires_grad) {
  if (is_blocked(view.dtype()) || is_opaque(view.dtype()))
    return failure(ErrorCode::unsupported, "torch has no type for " +
                                               std::string(to_string(view.dtype())) +
                                               "; bits() gives its bytes");
  TRY(view.check_gather(view.nbytes()));
  TRY(check_repeats(view));
  std::vector<std::int64_t> strides(view.shape().size());
  static_cast<void>(bytes::row_major_strides(view.shape(), strides));
  const std::size_t number = add_storage(content_of(view));
  return tensor(number, {.dtype = view.dtype(),
                         .sizes = view.shape(),
                         .strides = strides,
                         .requires_grad = requires_grad});
}

Value CheckpointWriter::parameter(const Value& tensor, bool requires_grad) {
  return state_->tensors.parameter(tensor, requires_grad);
}

Value CheckpointWriter::ordered_dict(std::span<const Value> items, std::optional<Value> state) {
  return state_->tensors.ordered_dict(items, state);
}

Value CheckpointWriter::size(std::span<const std::int64_t> sizes) {
  return state_->tensors.size(sizes);
}

void CheckpointWriter::add_record(std::string name, RecordContent content) {
  state_->has_holes |= is_reserved(content);
  state_->extras.push_back({std::move(name), std::move(content)});
}

Result<WritePlan> CheckpointWriter::plan(const Value& root, const std::filesystem::path& path) {
  TRY(state_->prepare(root, archive_name(path, state_->options.archive_name)));
  return *state_->plan;
}

Result<WritePlan> CheckpointWriter::write(const Value& root, const std::filesystem::path& path) && {
  TRY(about_file(state_->prepare(root, archive_name(path, state_->options.archive_name)), path));
  TRY_ASSIGN(ArchiveWriter archive, ArchiveWriter::create(path, state_->archive_options()));
  return state_->write_to(std::move(archive));
}

Result<WritePlan> CheckpointWriter::write(const Value& root, ArchiveWriter::Write write) && {
  TRY(state_->prepare(root, archive_name({}, state_->options.archive_name)));
  TRY_ASSIGN(ArchiveWriter archive,
             ArchiveWriter::to_function(std::move(write), state_->archive_options()));
  return state_->write_to(std::move(archive));
}

}  // namespace weightmap
