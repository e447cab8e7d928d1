// Deltas of weights.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "python/src/bindings.hpp"
#include "python/src/errors.hpp"
#include "python/src/long_call.hpp"
#include "python/src/text.hpp"
#include "weightmap/delta.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// Raises ValueError for a word that is none of them.
template <class Enum>
Enum word(const std::string& given, std::initializer_list<Enum> all, const char* name) {
  std::string words;
  for (const Enum each : all) {
    if (to_string(each) == given) return each;
    words += (words.empty() ? "" : ", ") + std::string(to_string(each));
  }
  throw nb::value_error((std::string(name) + " is one of " + words).c_str());
}

nb::list to_list(const std::vector<std::filesystem::path>& files) {
  nb::list list;
  for (const std::filesystem::path& file : files) list.append(to_bytes(file.native()));
  return list;
}

nb::tuple write_delta(const nb::bytes& from, const nb::bytes& to, const nb::bytes& folder,
                      const std::string& encoding, const std::string& sums, int level,
                      std::optional<std::string> version, std::optional<std::string> base_version,
                      std::size_t threads, bool durable, nb::handle progress) {
  const std::filesystem::path paths[] = {text_of(from), text_of(to), text_of(folder)};
  DeltaOptions options;
  options.encoding =
      word(encoding, {DeltaEncoding::xor_bytes, DeltaEncoding::overwrite}, "encoding");
  options.sum = word(sums, {TensorSum::xxh3_128, TensorSum::blake3, TensorSum::adler32}, "sums");
  options.level = level;
  options.version = std::move(version);
  options.base_version = std::move(base_version);
  options.threads = threads;
  options.durable = durable;
  LongCall call(progress);
  options.progress = call.progress();
  const DeltaReport report = value_or_raise(
      call.run([&] { return weightmap::write_delta(paths[0], paths[1], paths[2], options); }));
  return nb::make_tuple(to_str(report.version), to_str(report.base_version), to_list(report.files),
                        report.tensors, report.changed_tensors, report.tensor_bytes,
                        report.changed_bytes, report.bytes);
}

nb::tuple apply_delta(const nb::bytes& base, const nb::list& deltas, const nb::bytes& folder,
                      bool in_place, std::optional<std::string> base_version, std::size_t threads,
                      bool durable, bool once, nb::handle progress) {
  const std::filesystem::path from = text_of(base);
  const std::filesystem::path to = text_of(folder);
  std::vector<std::filesystem::path> paths;
  for (nb::handle delta : deltas) paths.emplace_back(text_of(nb::cast<nb::bytes>(delta)));
  ApplyOptions options;
  options.base_version = std::move(base_version);
  options.threads = threads;
  options.durable = durable;
  options.once = once;
  LongCall call(progress);
  options.progress = call.progress();
  const ApplyReport report = value_or_raise(call.run([&] {
    return in_place ? weightmap::apply_delta_in_place(from, paths, options)
                    : weightmap::apply_delta(from, paths, to, options);
  }));
  return nb::make_tuple(to_str(report.version), to_str(report.base_version), report.made,
                        to_list(report.files), report.deltas, report.tensors,
                        report.changed_tensors, report.bytes, report.shared_bytes,
                        report.delta_bytes);
}

}  // namespace

void bind_deltas(nb::module_& module) {
  module.def(
      "model_version",
      [](const nb::bytes& folder) {
        const std::filesystem::path path = text_of(folder);
        return to_str(value_or_raise(without_gil([&] { return model_version(path); })));
      },
      nb::arg("folder"), nb::sig("def model_version(folder: bytes, /) -> str"));
  module.def("write_delta", write_delta, nb::arg("old"), nb::arg("new"), nb::arg("folder"),
             nb::arg("encoding"), nb::arg("sums"), nb::arg("level"), nb::arg("version").none(),
             nb::arg("base_version").none(), nb::arg("threads"), nb::arg("durable"),
             nb::arg("progress").none(),
             nb::sig("def write_delta(old: bytes, new: bytes, folder: bytes, encoding: str, "
                     "sums: str, level: int, version: str | None, base_version: str | None, "
                     "threads: int, durable: bool, progress: "
                     "typing.Callable[[int, int], typing.Any] | None, /) -> "
                     "tuple[str, str, list[bytes], int, int, int, int, int]"));
  module.def(
      "apply_delta", apply_delta, nb::arg("base"), nb::arg("deltas"), nb::arg("folder"),
      nb::arg("in_place"), nb::arg("base_version").none(), nb::arg("threads"), nb::arg("durable"),
      nb::arg("once"), nb::arg("progress").none(),
      nb::sig("def apply_delta(base: bytes, deltas: list[bytes], folder: bytes, in_place: bool, "
              "base_version: str | None, threads: int, durable: bool, once: bool, progress: "
              "typing.Callable[[int, int], typing.Any] | None, /) -> "
              "tuple[str, str, bool, list[bytes], int, int, int, int, int, int]"));
}

}  // namespace weightmap::python
