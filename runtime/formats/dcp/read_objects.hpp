// Reads the items of .distcp files that are no tensors: numbers, texts, lists. Each is an archive
// of torch.save of some hundred bytes, whose pickle the pickle machine interprets. Nothing is
// called.
#pragma once

#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/value/tree.hpp"
#include "runtime/formats/dcp/metadata.hpp"
#include "runtime/formats/dcp/read_items.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::dcp {

struct ReadObjects {
  std::unique_ptr<value::Tree> tree;  // without a root
  // Of each object; nullopt for one that holds a tensor, whose elements are in its item.
  std::vector<std::optional<value::Cell>> cells;
  std::vector<value::Cell> more;
};

// Reads the items that lie near one another together. Fails with corrupt for an object that is in
// none of the files, or whose item is no archive of torch.save; with unsafe_pickle and
// limit_exceeded as for any pickle, of which all items are one. Errors name object and file. `more`
// is the pickle of a list, whose elements get into the same tree.
Result<ReadObjects> read_objects(std::span<const Object> objects, std::string_view more,
                                 std::span<const DataFile> files, const OpenOptions& options,
                                 std::pmr::memory_resource& memory);

}  // namespace weightmap::dcp
