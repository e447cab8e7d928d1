#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tools/command.hpp"
#include "tools/progress_bar.hpp"
#include "tools/size_option.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/checkpoint_writer.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/safetensors_writer.hpp"

namespace weightmap::cli {
namespace {

struct ConvertCommand {
  std::string from;
  std::string to;
  std::string format;  // "safetensors" or "pt"; empty: as `to` ends
  std::string shared;  // empty: refuse
  std::vector<std::string> metadata;
  std::uint64_t max_bytes = 0;
  OpenOptions open = OpenOptions::to_look();
  bool json = false;
};

struct Converted {
  std::vector<std::string> files;
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::vector<SafetensorsReport::Dropped> dropped = {};
  std::vector<std::string> left_out = {};  // CheckpointInfo::unsupported
};

// What is wrong with the words of the command line, beyond what each of them may be.
void settle_format(ConvertCommand& command) {
  const std::string ending = std::filesystem::path(command.to).extension().native();
  if (command.format.empty() && ending == ".safetensors") command.format = "safetensors";
  if (command.format.empty() && (ending == ".pt" || ending == ".pth" || ending == ".bin"))
    command.format = "pt";
  if (command.format.empty())
    throw CLI::ValidationError("OUT",
                               "must end in .safetensors, .pt, .pth or .bin, unless --to says what "
                               "to write");
  if (command.format == "safetensors") return;
  const auto refuse = [](const char* option, const char* why) {
    throw CLI::ValidationError(option, std::string("is for safetensors only") + why);
  };
  if (command.max_bytes != 0) refuse("--max-size", "; weightmap split divides such a file");
  if (!command.metadata.empty()) refuse("--metadata", "");
  if (!command.shared.empty()) refuse("--shared", ": a .pt file says which tensors are one");
}

std::string check_metadata(const std::string& text) {
  return text.find('=') == text.npos ? "must be like KEY=TEXT" : "";
}

SharedElements shared_from(std::string_view word) {
  if (word == "drop") return SharedElements::drop;
  return word == "copy" ? SharedElements::copy : SharedElements::refuse;
}

// The metadata of a safetensors file stays, and each is one that transformers takes.
SafetensorsMetadata metadata_of(const Checkpoint& checkpoint, const ConvertCommand& command) {
  SafetensorsMetadata metadata;
  const auto set = [&](std::string key, std::string text) {
    const auto known = std::ranges::find(metadata, key, &SafetensorsMetadata::value_type::first);
    if (known == metadata.end())
      metadata.emplace_back(std::move(key), std::move(text));
    else
      known->second = std::move(text);
  };
  if (checkpoint.info().format == "safetensors" && files_of(checkpoint).size() == 1)
    for (const auto& [key, text] : checkpoint.root().items())
      set(std::string(key.string().value_or("")), std::string(text.string().value_or("")));
  set("format", "pt");
  for (const std::string& given : command.metadata)
    set(given.substr(0, given.find('=')), given.substr(given.find('=') + 1));
  return metadata;
}

Result<SafetensorsTensor> safetensor(const Checkpoint& checkpoint, std::string_view name,
                                     const WholeTensor& tensor) {
  if (tensor.piece_count == 1)
    return SafetensorsTensor::of(std::string(name), checkpoint.tensors()[tensor.first_piece].view);
  Result<RecordContent> content = content_of(checkpoint, name);
  if (!content) return tl::unexpected<Error>(content.error());
  return SafetensorsTensor{.name = std::string(name),
                           .dtype = tensor.dtype,
                           .shape = tensor.sizes,
                           .content = std::move(*content)};
}

Result<Converted> to_safetensors(const Checkpoint& checkpoint, const ConvertCommand& command) {
  std::vector<SafetensorsTensor> tensors;
  for (const std::string_view name : whole_names(checkpoint)) {
    const Result<WholeTensor> tensor = whole_tensor(checkpoint, name);
    if (!tensor) return tl::unexpected<Error>(tensor.error());
    Result<SafetensorsTensor> made = safetensor(checkpoint, name, *tensor);
    if (!made) return tl::unexpected<Error>(made.error());
    tensors.push_back(std::move(*made));
  }
  const std::size_t count = tensors.size();
  ProgressBar bar;
  const Result<SafetensorsReport> report =
      write_safetensors(std::move(tensors), metadata_of(checkpoint, command), command.to,
                        {.max_file_bytes = command.max_bytes,
                         .shared = shared_from(command.shared),
                         .progress = bar.follow()});
  if (!report) return tl::unexpected<Error>(report.error());
  Converted made{.files = {},
                 .tensors = count - report->dropped.size(),
                 .bytes = report->bytes,
                 .dropped = report->dropped};
  for (const SafetensorsReport::File& file : report->files)
    made.files.push_back(file.path.native());
  return made;
}

// Tensors that are one and the same stay so; each other has a storage of its own elements.
class FlatDict {
 public:
  Result<void> add(CheckpointWriter& writer, const Checkpoint& checkpoint, std::string_view name) {
    const Result<WholeTensor> tensor = whole_tensor(checkpoint, name);
    if (!tensor) return tl::unexpected<Error>(tensor.error());
    const NamedTensor first = checkpoint.tensors()[tensor->first_piece];
    if (is_blocked(tensor->dtype))
      return tl::unexpected<Error>(
          first.about({ErrorCode::unsupported, "is of " + std::string(to_string(tensor->dtype)) +
                                                   ", which torch does not have"}));
    if (to_string(tensor->dtype).starts_with('q'))
      return tl::unexpected<Error>(
          first.about({ErrorCode::unsupported, "is of " + std::string(to_string(tensor->dtype)) +
                                                   ", whose scales are not in a dict of tensors"}));
    if (tensor->piece_count == 1) return add(writer, first);
    Result<RecordContent> content = content_of(checkpoint, name);
    if (!content) return tl::unexpected<Error>(content.error());
    const std::size_t number = writer.add_storage(std::move(*content));
    Dims strides(tensor->sizes.size());
    std::int64_t stride = 1;
    for (std::size_t dim = strides.size(); dim-- > 0; stride *= tensor->sizes[dim])
      strides[dim] = stride;
    items_.push_back(writer.values().string(name));
    items_.push_back(writer.tensor(
        number, {.dtype = tensor->dtype, .sizes = tensor->sizes, .strides = strides}));
    return {};
  }
  const std::vector<Value>& items() const noexcept { return items_; }

 private:
  using Dims = std::vector<std::int64_t>;
  using Key = std::tuple<const std::byte*, DType, unsigned, Dims, Dims>;

  Result<void> add(CheckpointWriter& writer, const NamedTensor& tensor) {
    const TensorView& view = tensor.view;
    const Key key{view.stored_bytes().data(),
                  view.dtype(),
                  view.flags(),
                  {view.shape().begin(), view.shape().end()},
                  {view.strides().begin(), view.strides().end()}};
    auto known = values_.find(key);
    if (known == values_.end() || view.stored_bytes().empty()) {
      const Result<Value> made = writer.tensor(view);
      if (!made) return tl::unexpected<Error>(tensor.about(made.error()));
      known = values_.insert_or_assign(key, *made).first;
    }
    items_.push_back(writer.values().string(tensor.name));
    items_.push_back(known->second);
    return {};
  }

  std::map<Key, Value> values_;
  std::vector<Value> items_;  // key, value ...
};

Result<Converted> to_pt(const Checkpoint& checkpoint, const ConvertCommand& command) {
  ProgressBar bar;
  CheckpointWriter writer({.progress = bar.follow()});
  FlatDict dict;
  const std::vector<std::string_view> names = whole_names(checkpoint);
  for (const std::string_view name : names)
    if (Result<void> ok = dict.add(writer, checkpoint, name); !ok)
      return tl::unexpected<Error>(ok.error());
  const Value root = writer.ordered_dict(dict.items());
  const Result<WritePlan> written = std::move(writer).write(root, command.to);
  if (!written) return tl::unexpected<Error>(written.error());
  return Converted{.files = {command.to}, .tensors = names.size(), .bytes = written->archive_bytes};
}

std::string describe_as_json(const ConvertCommand& command, const Converted& made) {
  Json dropped = Json::object();
  for (const auto& [name, kept] : made.dropped) dropped[name] = kept;
  return to_text(Json{{"file", command.from},
                      {"target", command.to},
                      {"format", command.format},
                      {"files", made.files},
                      {"tensors", made.tensors},
                      {"bytes", made.bytes},
                      {"dropped", dropped},
                      {"left_out", made.left_out}}) +
         "\n";
}

std::string describe_as_text(const Converted& made) {
  std::string text;
  for (const std::string& file : made.files) text += printable(file) + "\n";
  for (const auto& [name, kept] : made.dropped)
    text += printable(name) + " is " + printable(kept) + ", and in the metadata only\n";
  return text;
}

// What would be written as something else than it is.
Result<void> check_source(const Checkpoint& checkpoint, const ConvertCommand& command) {
  if (!checkpoint.info().reserved || checkpoint.info().reserved->is_sealed) return {};
  return tl::unexpected<Error>(
      Error{.code = ErrorCode::unsupported,
            .message = "the file has reserved storages and is not sealed, so it may change yet",
            .file = printable(command.from)});
}

Result<int> run_convert(Output& out, const ConvertCommand& command) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(command.from, command.open);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  if (Result<void> ok = check_source(*checkpoint, command); !ok)
    return tl::unexpected<Error>(ok.error());
  Result<Converted> made =
      command.format == "pt" ? to_pt(*checkpoint, command) : to_safetensors(*checkpoint, command);
  if (!made) return tl::unexpected<Error>(made.error());
  const CheckpointInfo& info = checkpoint->info();
  made->left_out = info.unsupported;
  if (!info.unsupported.empty())
    std::fprintf(stderr, "weightmap: left out: %s\n", unlisted_text(info).c_str());
  out.write(command.json ? describe_as_json(command, *made) : describe_as_text(*made));
  return exit_good;
}

}  // namespace

void add_convert(CLI::App& app, Run& run) {
  auto options = std::make_shared<ConvertCommand>();
  CLI::App& command =
      *app.add_subcommand("convert", "Write the tensors of a checkpoint as another format");
  command.add_option("IN", options->from, "A checkpoint: a file, a set, a folder, org/name")
      ->required()
      ->type_name("");
  command
      .add_option("OUT", options->to,
                  "The file to write, which may be IN: .safetensors, or .pt, .pth, .bin for torch")
      ->required()
      ->type_name("");
  command.add_option("--to", options->format, "The format, whatever OUT ends with")
      ->check(CLI::IsMember({"safetensors", "pt"}))
      ->type_name("safetensors|pt");
  add_size_option(
      command, "--max-size", [options](std::uint64_t bytes) { options->max_bytes = bytes; },
      "Bytes of tensors in each file of a set; default: one file");
  command
      .add_option("--metadata", options->metadata,
                  "A text for the metadata; may be given again. format=pt is there by itself")
      ->check(CLI::Validator(check_metadata, ""))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("KEY=TEXT");
  command
      .add_option("--shared", options->shared,
                  "Tensors that share their elements: refuse them (default), drop all names but "
                  "the first into the metadata, or write a copy for each")
      ->check(CLI::IsMember({"refuse", "drop", "copy"}))
      ->type_name("refuse|drop|copy");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  add_open_option(command, "repeats", options->open);
  command.footer(
      "Tensors are called by their names; other values of the checkpoint are left out. The new\n"
      "files appear once all are whole and on the disk.\n"
      "Examples:\n"
      "  weightmap convert pytorch_model.bin model.safetensors --shared drop\n"
      "  weightmap convert model.pt model.safetensors --max-size 5GB\n"
      "  weightmap convert model/ model.pt                    # a folder of shards");
  command.callback([options, &run] {
    settle_format(*options);
    run = [options](Output& out) { return run_convert(out, *options); };
  });
}

}  // namespace weightmap::cli
