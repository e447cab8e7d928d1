#include "runtime/formats/torch/entry_maker.hpp"

#include <algorithm>
#include <string_view>

#include "runtime/formats/torch/joined_name.hpp"

namespace weightmap::torch {

using catalog::Path;

EntryMaker::Name EntryMaker::add_joined_name(std::uint32_t path, const value::Cell& cell) {
  if (path != prefix_path_) enter(path);
  const KeyText key(tree_, cell);
  const std::string_view text = key.text();
  char* to;
  const catalog::Text name =
      builder_.add_text(static_cast<std::uint32_t>(prefix_.size() + text.size()), to);
  to = std::copy(prefix_.begin(), prefix_.end(), to);
  std::copy(text.begin(), text.end(), to);
  const PathNode& parent = table_.paths[path];
  if (parent.depth == 0 && !key.is_integer()) return {name, {Path::is_name, 1}};
  const Path parts{builder_.path_position(), std::uint32_t{parent.depth} + 1};
  for (std::uint32_t part : prefix_parts_) builder_.add_path_part(part >> 1, (part & 1) != 0);
  builder_.add_path_part(static_cast<std::uint32_t>(text.size()), key.is_integer());
  return {name, parts};
}

// Sets prefix_ to the container's joined name with a dot behind it. Neighbouring tensors share the
// prefix, so it is kept.
void EntryMaker::enter(std::uint32_t path) {
  prefix_path_ = path;
  prefix_.clear();
  prefix_parts_.clear();
  chain_.clear();
  for (std::uint32_t node = path; table_.paths[node].depth != 0; node = table_.paths[node].parent)
    chain_.push_back(node);
  std::for_each(chain_.rbegin(), chain_.rend(), [this](std::uint32_t node) {
    const KeyText key(tree_, table_.paths[node].key);
    prefix_.append(key.text()).push_back('.');
    prefix_parts_.push_back(static_cast<std::uint32_t>(key.text().size() << 1) |
                            (key.is_integer() ? 1u : 0u));
  });
}

std::string EntryMaker::name_of(const TensorSpec& spec) {
  return joined_name(tree_, table_.paths, spec.path, spec.key);
}

}  // namespace weightmap::torch
