#include "bench/pickle_writer.hpp"

#include <string>
#include <utility>

namespace weightmap::bench {
namespace {

constexpr std::size_t batch = 1000;  // items between MARK and SETITEMS

// Row-major strides, as torch counts them: an empty dimension counts as one.
std::vector<std::int64_t> contiguous_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i] > 0 ? shape[i] : 1;
  }
  return strides;
}

}  // namespace

std::string_view storage_class(DType dtype) noexcept {
  switch (dtype) {
    case DType::float64:
      return "DoubleStorage";
    case DType::float32:
      return "FloatStorage";
    case DType::float16:
      return "HalfStorage";
    case DType::bfloat16:
      return "BFloat16Storage";
    case DType::int64:
      return "LongStorage";
    case DType::int32:
      return "IntStorage";
    case DType::int16:
      return "ShortStorage";
    case DType::int8:
      return "CharStorage";
    case DType::uint8:
      return "ByteStorage";
    case DType::boolean:
      return "BoolStorage";
    case DType::complex128:
      return "ComplexDoubleStorage";
    case DType::complex64:
      return "ComplexFloatStorage";
    default:
      return {};
  }
}

StateDictPickle::StateDictPickle(std::size_t count, DType dtype) : count_(count), dtype_(dtype) {
  opcode('\x80');  // PROTO
  opcode('\x02');
  global(ordered_dict_, "collections", "OrderedDict");
  opcode(')');  // EMPTY_TUPLE
  opcode('R');  // REDUCE
  put();
}

void StateDictPickle::text(std::string_view value) {
  const auto bytes = std::as_bytes(std::span(value));
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

void StateDictPickle::little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void StateDictPickle::put() {
  const bool narrow = memo_ < 256;
  opcode(narrow ? 'q' : 'r');  // BINPUT, LONG_BINPUT
  little_endian(memo_++, narrow ? 1 : 4);
}

void StateDictPickle::get(std::uint32_t memo) {
  const bool narrow = memo < 256;
  opcode(narrow ? 'h' : 'j');  // BINGET, LONG_BINGET
  little_endian(memo, narrow ? 1 : 4);
}

void StateDictPickle::integer(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (bits < 0x100) {
    opcode('K');  // BININT1
    little_endian(bits, 1);
  } else if (bits < 0x10000) {
    opcode('M');  // BININT2
    little_endian(bits, 2);
  } else if (bits < 0x80000000) {
    opcode('J');  // BININT
    little_endian(bits, 4);
  } else {
    int bytes = 5;  // with room for the sign bit
    while (bytes < 8 && bits >> (8 * bytes - 1) != 0) ++bytes;
    opcode('\x8a');  // LONG1
    little_endian(static_cast<std::uint64_t>(bytes), 1);
    little_endian(bits, bytes);
  }
}

void StateDictPickle::string(std::string_view value) {
  opcode('X');  // BINUNICODE
  little_endian(value.size(), 4);
  text(value);
  put();
}

void StateDictPickle::global(Remembered& where, std::string_view module, std::string_view name) {
  if (where.written) return get(where.memo);
  where = {true, memo_};
  opcode('c');  // GLOBAL
  text(module);
  text("\n");
  text(name);
  text("\n");
  put();
}

void StateDictPickle::constant(Remembered& where, std::string_view value) {
  if (where.written) return get(where.memo);
  where = {true, memo_};
  string(value);
}

void StateDictPickle::tuple_of(std::span<const std::int64_t> values) {
  if (values.empty()) return opcode(')');  // EMPTY_TUPLE
  if (values.size() > 3) opcode('(');      // MARK
  for (std::int64_t value : values) integer(value);
  // TUPLE1, TUPLE2, TUPLE3, TUPLE
  opcode(values.size() > 3 ? 't' : static_cast<char>('\x84' + static_cast<char>(values.size())));
  put();
}

void StateDictPickle::persistent_id(std::int64_t numel) {
  opcode('(');
  constant(storage_, "storage");
  global(storage_type_, "torch", storage_class(dtype_));
  string(std::to_string(written_));
  constant(location_, "cpu");
  integer(numel);
  opcode('t');
  put();
  opcode('Q');  // BINPERSID
}

// A last item that is alone in its batch is set by SETITEM, without a mark.
void StateDictPickle::begin_item() {
  if (written_ % batch == 0 && written_ + 1 < count_) opcode('(');
}

void StateDictPickle::end_item() {
  const bool alone = written_ % batch == 0 && written_ + 1 == count_;
  ++written_;
  if (alone)
    opcode('s');  // SETITEM
  else if (written_ % batch == 0 || written_ == count_)
    opcode('u');  // SETITEMS
}

void StateDictPickle::add(std::string_view name, std::span<const std::int64_t> shape) {
  begin_item();
  string(name);
  global(rebuild_, "torch._utils", "_rebuild_tensor_v2");
  opcode('(');
  std::int64_t numel = 1;
  for (std::int64_t size : shape) numel *= size;
  persistent_id(numel);
  integer(0);  // storage_offset
  tuple_of(shape);
  tuple_of(contiguous_strides(shape));
  opcode('\x89');                                       // NEWFALSE: requires_grad
  global(ordered_dict_, "collections", "OrderedDict");  // backward_hooks
  opcode(')');
  opcode('R');
  put();
  opcode('t');
  put();
  opcode('R');
  put();
  end_item();
}

std::vector<std::byte> StateDictPickle::finish() && {
  opcode('.');  // STOP
  return std::move(out_);
}

}  // namespace weightmap::bench
