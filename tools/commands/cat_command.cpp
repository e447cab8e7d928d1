#include <unistd.h>

#include <memory>

#include "runtime/base/try.hpp"
#include "tools/cat/array_text.hpp"
#include "tools/cat/npy.hpp"
#include "tools/cat/number_format.hpp"
#include "tools/cat/slice.hpp"
#include "tools/command.hpp"
#include "tools/output/output_file.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/tensors/tensor_selection.hpp"
#include "tools/values/numpy_value.hpp"
#include "tools/values/value_text.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/value.hpp"

namespace weightmap::cli {
namespace {

// A shortened tensor still shows up to 6 elements per dimension, so a high rank could print too
// much.
constexpr std::size_t most_printed = 100000;
constexpr std::size_t most_json_values = 1000000;

struct CatOptions : CommonOptions {
  std::string tensor;
  std::optional<std::string> slice;
  std::string output;
  bool raw = false;
  bool as_float32 = false;
  std::vector<SliceItem> slice_items;
};

void check_usage(CatOptions& options) {
  if (options.slice) {
    auto items = parse_slice(*options.slice);
    if (!items)
      throw CLI::ValidationError("--slice",
                                 "must be indices and start:stop ranges, as in \"0:10,3\"");
    options.slice_items = std::move(*items);
  }
  const bool to_stdout = options.output.empty() || options.output == "-";
  if (options.as_float32 && !options.raw && options.output.empty())
    throw CLI::ValidationError("--as", "is for what --raw or -o writes");
  if (!options.raw && !options.output.empty() && !options.output.ends_with(".npy"))
    throw CLI::ValidationError("-o", "FILE must end in .npy, or --raw be given");
  if (options.raw && to_stdout && options.json)
    throw CLI::ValidationError("--json", "cannot share standard output with --raw; add -o FILE");
  if (options.raw && to_stdout && isatty(STDOUT_FILENO) == 1)
    throw CLI::ValidationError("--raw", "does not write to a terminal; add -o FILE or a pipe");
}

Result<Elements> copy_elements(const TensorView& view) {
  Elements elements{view.dtype(), std::vector<std::byte>(view.nbytes())};
  TRY(view.gather(elements.bytes));
  return elements;
}

// Appends the elements of a shortened print. Recursion is at most max_slice_rank deep.
Result<void> append_shown(const TensorView& view, std::vector<std::byte>& bytes) {
  if (view.rank() == 0) {
    const std::size_t end = bytes.size();
    bytes.resize(end + view.nbytes());
    return view.gather(std::span(bytes).subspan(end));
  }
  for (std::int64_t index : shown_indices(view.shape()[0], true)) {
    TRY_ASSIGN(const TensorSlice part, view.select(0, index));
    TRY(append_shown(part, bytes));
  }
  return {};
}

Result<void> check_printable(const TensorView& view) {
  std::uint64_t shown = 1;
  for (std::int64_t size : view.shape())
    if (shown <= most_printed) shown *= shown_indices(size, true).size();
  if (shown <= most_printed && view.rank() <= TensorView::max_slice_rank) return {};
  return failure(ErrorCode::unsupported,
                 "a tensor of shape " + dims(view.shape()) +
                     " is too much to print; choose a part with --slice, or write it with --raw or "
                     "-o FILE.npy");
}

Result<Elements> shown_elements(const TensorView& view, bool shortened) {
  if (!shortened) return copy_elements(view);
  TRY(check_printable(view));
  Elements elements{view.dtype(), {}};
  TRY(append_shown(view, elements.bytes));
  return elements;
}

std::string values_text(const TensorView& view, const Elements& elements, bool shortened) {
  if (view.numel() == 0) return "[]";
  if (view.rank() == 0) return scalar_word(elements);
  return array_text(view.shape(), shortened, words_of(elements));
}

Result<void> print_values(Output& out, const FoundTensor& tensor) {
  const TensorView& view = tensor.view;
  const bool shortened = view.numel() > summary_threshold;
  TRY_ASSIGN(const Elements elements, shown_elements(view, shortened));
  out.write(printable(tensor.name) + ": " + std::string(to_string(view.dtype())) + " " +
            dims(view.shape()) + "\n" + values_text(view, elements, shortened) + "\n");
  return {};
}

Result<void> print_json_values(Output& out, const CatOptions& options, const FoundTensor& tensor) {
  const TensorView& view = tensor.view;
  if (view.numel() > most_json_values)
    return failure(ErrorCode::unsupported, "a tensor of shape " + dims(view.shape()) +
                                               " is too much for --json; choose a part with "
                                               "--slice, or write it with --raw or -o FILE.npy");
  TRY_ASSIGN(const Elements elements, copy_elements(view));
  std::string head = to_text({{"file", options.file},
                              {"name", tensor.name},
                              {"dtype", to_string(view.dtype())},
                              {"shape", view.shape()}});
  head.pop_back();
  out.write(head + ",\"values\":[");
  for (std::size_t i = 0; i < elements.size() && !out.failed(); ++i)
    out.write((i > 0 ? "," : "") + json_word(elements, i));
  out.write("]}\n");
  return {};
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Result<void> for_each_piece(const CatOptions& options, const TensorView& view,
                            const PieceSink& sink) {
  return options.as_float32 ? for_each_float32_piece(view, sink)
                            : weightmap::for_each_piece(view, sink);
}

Result<void> write_to_stdout(Output& out, const CatOptions& options, const TensorView& view,
                             const std::string& header) {
  out.write(header);
  return for_each_piece(options, view, [&](std::span<const std::byte> piece) {
    out.write(piece);
    return !out.failed();
  });
}

Result<void> write_to_file(const CatOptions& options, const TensorView& view,
                           const std::string& header) {
  TRY_ASSIGN(OutputFile file, OutputFile::create(options.output, options.file));
  Result<void> written = file.write(bytes_of(header));
  const Result<void> read = for_each_piece(options, view, [&](std::span<const std::byte> piece) {
    if (written) written = file.write(piece);
    return written.has_value();
  });
  if (!read) return read;
  return written ? file.commit() : written;
}

Result<void> write_elements(Output& out, const CatOptions& options, const TensorView& view) {
  std::string header;
  if (!options.raw) {
    const DType dtype = options.as_float32 ? DType::float32 : view.dtype();
    TRY_ASSIGN(header, npy_header(dtype, view.shape()));
  }
  const bool to_stdout = options.output.empty() || options.output == "-";
  return to_stdout ? write_to_stdout(out, options, view, header)
                   : write_to_file(options, view, header);
}

// A tensor that has been assembled in memory.
struct GatheredTensor {
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> dims;  // sizes, then strides
  DType dtype = DType::uint8;

  TensorView view() const {
    return {dtype, dims.size() / 2, dims.data(), bytes.data(), bytes.size(), 0};
  }
  // All pieces of a tensor.
  Result<void> gather(const Checkpoint& checkpoint, const std::string& name,
                      const WholeTensor& tensor) {
    shape(tensor.dtype, tensor.sizes);
    return weightmap::gather(checkpoint, name, {}, bytes);
  }
  // A tensor of a remote file.
  Result<void> gather(const Checkpoint& checkpoint, const TensorView& tensor) {
    shape(tensor.dtype(), {tensor.shape().begin(), tensor.shape().end()});
    return checkpoint.gather(tensor, bytes);
  }

 private:
  void shape(DType of, std::vector<std::int64_t> sizes) {
    const std::size_t rank = sizes.size();
    dtype = of;
    dims = std::move(sizes);
    dims.resize(2 * rank);
    std::int64_t stride = 1;
    for (std::size_t dim = rank; dim-- > 0; stride *= dims[dim]) dims[rank + dim] = stride;
    bytes.resize(weightmap::bytes_of(dtype, static_cast<std::uint64_t>(stride)));
  }
};

// Shows a tensor, which is fetched from `remote` first unless that is nullptr.
Result<void> show(Output& out, const CatOptions& options, const FoundTensor& tensor,
                  const Checkpoint* remote) {
  if (is_blocked(tensor.view.dtype())) {  // only its bytes can be shown
    TRY_ASSIGN(const TensorSlice bytes, tensor.view.bits());
    FoundTensor of_bytes = tensor;
    of_bytes.view = bytes;
    of_bytes.name += " as bytes of " + std::string(to_string(tensor.view.dtype()));
    return show(out, options, of_bytes, remote);
  }
  if (remote != nullptr) {
    GatheredTensor memory;
    TRY(memory.gather(*remote, tensor.view));
    return show(out, options, {tensor.name, memory.view()}, nullptr);
  }
  if (options.raw || !options.output.empty()) return write_elements(out, options, tensor.view);
  if (options.json) return print_json_values(out, options, tensor);
  return print_values(out, tensor);
}

// Shows all or a part of the tensor, as the options say.
Result<void> show_part(Output& out, const CatOptions& options, FoundTensor tensor,
                       const Checkpoint* remote = nullptr) {
  if (options.slice_items.empty()) return show(out, options, tensor, remote);
  TRY_ASSIGN(const TensorSlice part, apply_slice(tensor.view, options.slice_items));
  tensor.view = part;
  tensor.name += "[" + *options.slice + "]";
  return show(out, options, tensor, remote);
}

void print_scalar(Output& out, const CatOptions& options, const NumpyValue& scalar) {
  if (!options.json) return out.write(scalar_word(scalar.elements) + "\n");
  std::string head =
      to_text({{"file", options.file}, {"name", options.tensor}, {"type", scalar.type_name()}});
  head.pop_back();
  out.write(head + ",\"value\":" + json_word(scalar.elements, 0) + "}\n");
}

// Prints a value that is not a tensor: an epoch, a setting, a dict.
Result<void> print_value(Output& out, const CatOptions& options, const Checkpoint& checkpoint,
                         const NamedValue& found) {
  const bool for_elements = options.raw || options.slice || !options.output.empty();
  if (const std::optional<NumpyValue> array = numpy_array(found.value))
    return show_part(out, options, {options.tensor, array->view()});
  const std::optional<NumpyValue> scalar = numpy_scalar(found.value);
  if (scalar && !for_elements) {
    print_scalar(out, options, *scalar);
    return {};
  }
  if (const auto items = scalar || !for_elements ? scalar : bytes_as_array(found.value))
    return show_part(out, options, {options.tensor, items->view()});
  const std::string type = type_name_of(found.value);
  if (for_elements)
    return failure(ErrorCode::invalid_argument,
                   "\"" + printable(options.tensor) + "\" is no tensor (its type is " +
                       printable(type) + "), so there is nothing for --slice, --raw or -o");
  if (options.json) {
    TRY_ASSIGN(const Json value, describe(checkpoint, found));
    out.write(
        to_text(
            {{"file", options.file}, {"name", options.tensor}, {"type", type}, {"value", value}}) +
        "\n");
  } else if (const std::optional<std::string_view> text = found.value.string()) {
    out.write(printable(*text) + "\n");
  } else if (const std::optional<std::string> line = one_line(found.value)) {
    out.write(*line + "\n");
  } else {
    print_tree(out, checkpoint, found, {std::nullopt, true});
  }
  return {};
}

Result<FoundTensor> find_or_gather(const Checkpoint& checkpoint, const std::string& name,
                                   GatheredTensor& memory) {
  const Result<WholeTensor> whole = whole_tensor(checkpoint, name);
  if (!whole || whole->piece_count == 1) return look_up(checkpoint, name);
  TRY(memory.gather(checkpoint, name, *whole));
  return FoundTensor{name, memory.view()};
}

Result<void> cat(Output& out, const CatOptions& options, const Checkpoint& checkpoint) {
  GatheredTensor memory;
  Result<FoundTensor> tensor = find_or_gather(checkpoint, options.tensor, memory);
  if (!tensor) {
    if (tensor.error().code == ErrorCode::not_found) {
      const Result<NamedValue> value = look_up_value(checkpoint, options.tensor);
      if (value) return print_value(out, options, checkpoint, *value);
      if (value.error().code != ErrorCode::not_found) return tl::unexpected<Error>(value.error());
    }
    return tl::unexpected<Error>(tensor.error());
  }
  const bool is_there = !options.is_remote() || !memory.bytes.empty();
  return show_part(out, options, std::move(*tensor), is_there ? nullptr : &checkpoint);
}

Result<int> run_cat(Output& out, const CatOptions& options) {
  TRY_ASSIGN(const Checkpoint checkpoint, open_checkpoint(options));
  TRY(about(options, cat(out, options, checkpoint)));
  return exit_good;
}

}  // namespace

void add_cat(CLI::App& app, Run& run) {
  auto options = std::make_shared<CatOptions>();
  CLI::App& command =
      *app.add_subcommand("cat", "Print one tensor or value, or write a tensor's elements");
  add_common_options(command, *options);
  command
      .add_option("TENSOR", options->tensor,
                  "Its name, or its path as a JSON array; also of what is not a tensor")
      ->required()
      ->type_name("");
  command.add_option("--slice", options->slice, "Only a part, as in Python: 0:10,3")
      ->type_name("ITEMS");
  command.add_flag("--raw", options->raw, "Write the elements' bytes, row-major, native order");
  command
      .add_option_function<std::string>(
          "--as",
          [options = options.get()](const std::string& type) {
            if (type != "float32") throw CLI::ValidationError("--as", "must be float32");
            options->as_float32 = true;
          },
          "Write float16, bfloat16 and float8 as numbers that numpy knows")
      ->type_name("float32");
  command
      .add_option("-o,--output", options->output, "Write to FILE.npy, or with --raw to any FILE")
      ->type_name("FILE");
  add_verify_option(command, *options);
  add_remote_options(command, options->remote);
  command.footer(
      "Long tensors are shortened like numpy shortens them; --json, --raw and -o write all.\n"
      "Examples:\n"
      "  weightmap cat model.pt layers.0.attn.wq.weight\n"
      "  weightmap cat model.pt tok_embeddings.weight --slice 0:2,:8\n"
      "  weightmap cat model.pt norm.weight -o norm.npy\n"
      "  weightmap cat model.pt norm.weight --as float32 -o norm.npy\n"
      "  weightmap cat model.pt norm.weight --raw | sha256sum\n"
      "  weightmap cat train.pt epoch");
  command.callback([options, &run] {
    check_usage(*options);
    run = [options](Output& out) { return run_cat(out, *options); };
  });
}

}  // namespace weightmap::cli
