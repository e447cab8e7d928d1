// The formats of checkpoints, and what callers ask about one.
#pragma once

#include <cstdint>
#include <string_view>

namespace weightmap {

enum class Format : std::uint8_t {
  unknown,       // nothing was opened
  torch_zip,     // torch.save() since torch 1.6: an archive with a pickle
  torchscript,   // torch.jit.save()
  pt2,           // torch.export.save()
  torch_legacy,  // torch.save() before torch 1.6: a stream of pickles and elements
  safetensors,
  gguf,
  npz,     // numpy's archive of arrays
  npy,     // numpy's file of one array, which is listed as arr_0, as numpy.savez would name it
  dcp,     // a folder of torch.distributed.checkpoint
  mixed,   // several files that differ in format
  zip,     // only of list_globals(): an archive without data.pkl
  pickle,  // a pickle of values and arrays, of pickle.dump() or joblib.dump()
};

// The enumerator's name.
constexpr std::string_view to_string(Format format) noexcept {
  constexpr std::string_view names[] = {
      "unknown", "torch_zip", "torchscript", "pt2",   "torch_legacy", "safetensors", "gguf",
      "npz",     "npy",       "dcp",         "mixed", "zip",          "pickle"};
  return names[static_cast<std::uint8_t>(format)];
}

// Archives of records, as archive.hpp reads them and torch writes them.
constexpr bool is_torch_archive(Format format) noexcept {
  return format == Format::torch_zip || format == Format::torchscript || format == Format::pt2;
}

// A file is a header and the elements of tensors, so an open reads all that describes them, and
// there is no place for a pickle.
constexpr bool is_header_and_elements(Format format) noexcept {
  return format == Format::safetensors || format == Format::gguf || format == Format::npy;
}

}  // namespace weightmap
