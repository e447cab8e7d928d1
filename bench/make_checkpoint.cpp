// Writes a checkpoint that torch.load opens, shaped like a language model or uniform, of any size.
//
//   make_checkpoint model.pt                                  about 1 GiB of float16
//   make_checkpoint small.pt --layers 2 --hidden 256 --vocab 1000 --dtype bfloat16
//   make_checkpoint many.pt --count 8192 --shape 512x256
//   make_checkpoint mixed.pt --count 100000 --shape 4x4,16,2x2x2 --old-order
//
// Equal arguments give equal bytes, except the archive's top folder, which is the file's name.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "bench/model_shape.hpp"
#include "weightmap/checkpoint_writer.hpp"
#include "weightmap/dtype.hpp"

namespace weightmap::bench {
namespace {

struct Arguments {
  std::string output;
  ModelSize model;
  std::size_t count = 0;      // 0: a language model
  std::string shape = "4x4";  // or several, which the tensors take in turn
  bool old_order = false;
  std::string dtype = "float16";
};

// Takes 64 random bits, then applies `keep` and `set`: small finite numbers for floating point
// types, 0 and 1 for bool.
struct Pattern {
  std::uint64_t keep;
  std::uint64_t set;
};

Pattern pattern_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::complex128:
      return {0x800FFFFFFFFFFFFF, 0x3FA0000000000000};
    case DType::float32:
    case DType::complex64:
      return {0x807FFFFF807FFFFF, 0x3D0000003D000000};
    case DType::float16:
      return {0x83FF83FF83FF83FF, 0x2800280028002800};
    case DType::bfloat16:
      return {0x807F807F807F807F, 0x3D003D003D003D00};
    case DType::boolean:
      return {0x0101010101010101, 0};
    default:
      return {~std::uint64_t{0}, 0};
  }
}

// Deterministic noise, about as fast as memory. Each storage has its own state and bytes.
class Noise {
 public:
  Noise(Pattern pattern, std::uint64_t seed)
      : pattern_(pattern), state_(seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) {}

  void operator()(std::span<std::byte> out) {
    for (std::size_t at = 0; at < out.size(); at += 8) {
      const std::uint64_t word = (next() & pattern_.keep) | pattern_.set;
      std::memcpy(out.data() + at, &word, std::min<std::size_t>(8, out.size() - at));
    }
  }

 private:
  std::uint64_t next() {  // xorshift64
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

  Pattern pattern_;
  std::uint64_t state_;
};

// Parses "512x256", "8", "" for scalars. Throws CLI::ValidationError otherwise.
std::vector<std::int64_t> parse_shape(const std::string& text) {
  std::vector<std::int64_t> shape;
  for (const std::string& size : CLI::detail::split(text, 'x')) {
    const bool number =
        !size.empty() && size.size() < 10 && size.find_first_not_of("0123456789") == size.npos;
    if (!number && !text.empty()) throw CLI::ValidationError("--shape", "must be like 512x256");
    if (number) shape.push_back(std::stoll(size));
  }
  return shape;
}

DType parse_dtype(const std::string& text) {
  const std::optional<DType> dtype = dtype_from_string(text);
  if (!dtype) throw CLI::ValidationError("--dtype", "must be the name of a type, such as bfloat16");
  return *dtype;
}

// Parses "4x4,16": see parse_shape().
std::vector<TensorShape> in_turn(std::size_t count, const std::string& shapes) {
  std::vector<std::vector<std::int64_t>> all;
  for (const std::string& shape : CLI::detail::split(shapes, ','))
    all.push_back(parse_shape(shape));
  std::vector<TensorShape> tensors = uniform(count, {});
  for (std::size_t i = 0; i < count; ++i) tensors[i].shape = all[i % all.size()];
  return tensors;
}

// Returns the storages' numbers in torch's record order before 2.7: sorted as texts.
std::vector<std::size_t> old_record_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [](std::size_t a, std::size_t b) { return std::to_string(a) < std::to_string(b); });
  return order;
}

RecordContent noise(DType dtype, std::size_t number, std::uint64_t bytes) {
  return RecordContent::produced(bytes, [=](const RecordContent::Take& take) -> Result<void> {
    Noise fill(pattern_of(dtype), number);
    std::vector<std::byte> chunk(std::min<std::uint64_t>(bytes, std::size_t{1} << 20));
    for (std::uint64_t left = bytes; left > 0;) {
      const std::span piece(chunk.data(), std::min<std::uint64_t>(left, chunk.size()));
      fill(piece);
      if (Result<void> taken = take(piece); !taken) return taken;
      left -= piece.size();
    }
    return {};
  });
}

// Returns row-major strides in torch's convention: an empty dimension counts as one.
std::vector<std::int64_t> contiguous_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

// Does not wait for the disk, since a lost file can be made again.
Result<WritePlan> write(const std::string& path, const std::vector<TensorShape>& tensors,
                        DType dtype, bool old_order) {
  CheckpointWriterOptions options;
  options.file.durable = false;
  if (old_order) options.order = old_record_order(tensors.size());
  CheckpointWriter writer(options);
  std::vector<Value> items;
  for (const TensorShape& tensor : tensors) {
    const auto bytes = static_cast<std::uint64_t>(numel(tensor)) * element_size(dtype);
    const std::size_t number = writer.add_storage(noise(dtype, items.size() / 2, bytes));
    const std::vector<std::int64_t> strides = contiguous_strides(tensor.shape);
    items.push_back(writer.values().string(tensor.name));
    items.push_back(
        writer.tensor(number, {.dtype = dtype, .sizes = tensor.shape, .strides = strides}));
  }
  const Value root = writer.ordered_dict(items);
  return std::move(writer).write(root, path);
}

int run(const Arguments& arguments) {
  const DType dtype = parse_dtype(arguments.dtype);
  const std::vector<TensorShape> tensors = arguments.count > 0
                                               ? in_turn(arguments.count, arguments.shape)
                                               : language_model(arguments.model);
  const auto written = write(arguments.output, tensors, dtype, arguments.old_order);
  if (!written) {
    std::cerr << "make_checkpoint: " << to_string(written.error()) << '\n';
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace weightmap::bench

int main(int argc, char** argv) {
  weightmap::bench::Arguments arguments;
  CLI::App app("Writes a checkpoint shaped like a language model.", "make_checkpoint");
  app.add_option("OUT", arguments.output, "The file to write")->required()->type_name("");
  const auto at_least = [](std::int64_t low) { return CLI::Range(low, std::int64_t{1} << 30); };
  app.add_option("--layers", arguments.model.layers, "Layers")->check(at_least(0));
  app.add_option("--hidden", arguments.model.hidden, "Hidden size")->check(at_least(1));
  app.add_option("--vocab", arguments.model.vocabulary, "Vocabulary")->check(at_least(1));
  app.add_option("--count", arguments.count, "This many equal tensors instead of a model");
  app.add_option("--shape", arguments.shape, "Their shape, e.g. 512x256, or several, in turn");
  app.add_flag("--old-order", arguments.old_order, "Records sorted as texts, as before torch 2.7");
  app.add_option("--dtype", arguments.dtype, "Element type, e.g. bfloat16");
  try {
    app.parse(argc, argv);
    return weightmap::bench::run(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
}
