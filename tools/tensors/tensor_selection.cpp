#include "tools/tensors/tensor_selection.hpp"

#include <algorithm>

#include "tools/support/text.hpp"
#include "weightmap/name_pattern.hpp"

namespace weightmap::cli {
namespace {

// Collects tensors, each once, except excluded ones.
class Chosen {
 public:
  Chosen(const Checkpoint& checkpoint, const std::vector<std::string>& except)
      : except_(except.begin(), except.end()), taken_(checkpoint.tensors().size()) {}

  void take(const NamedTensor& tensor) {
    if (taken_[tensor.index] || is_left_out(tensor.name)) return;
    taken_[tensor.index] = true;
    tensors_.push_back(tensor.index);
  }
  std::vector<std::size_t> tensors() && { return std::move(tensors_); }

 private:
  bool is_left_out(std::string_view name) const {
    return std::any_of(except_.begin(), except_.end(),
                       [name](const NamePattern& pattern) { return pattern.matches(name); });
  }

  std::vector<NamePattern> except_;
  std::vector<bool> taken_;
  std::vector<std::size_t> tensors_;
};

// Returns the error, with suggestions for a pattern without wildcards.
Error nothing_matches(const Checkpoint& checkpoint, const std::string& text) {
  const NamePattern pattern(text);
  if (!pattern.has_wildcards())
    if (const Result<NamedTensor> tensor = checkpoint.get(pattern.name()); !tensor)
      return tensor.error();
  return {ErrorCode::not_found, "no tensor matches \"" + printable(text) + "\"", Error::no_offset};
}

}  // namespace

Result<std::vector<std::size_t>> select(const Checkpoint& checkpoint,
                                        const TensorSelection& selection) {
  Chosen chosen(checkpoint, selection.except);
  for (const std::string& pattern : selection.patterns) {
    const std::vector<std::size_t> matching = match_tensors(checkpoint, pattern);
    if (matching.empty()) return tl::unexpected<Error>(nothing_matches(checkpoint, pattern));
    for (std::size_t index : matching) chosen.take(checkpoint.tensors()[index]);
  }
  for (std::size_t index : selection.also) chosen.take(checkpoint.tensors()[index]);
  if (selection.patterns.empty() && selection.also.empty())
    for (const NamedTensor& tensor : checkpoint.tensors()) chosen.take(tensor);
  return std::move(chosen).tensors();
}

}  // namespace weightmap::cli
