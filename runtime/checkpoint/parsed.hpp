// What parsing a checkpoint gives: its value tree and its catalog.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include "mmap/memory/huge_pages.hpp"
#include "runtime/catalog/catalog.hpp"
#include "runtime/value/tree.hpp"

namespace weightmap {

struct Parsed {
  // Order matters: what comes later may point into what comes before.
  os::HugePageResource memory;
  std::unique_ptr<pickle::Tree> tree;
  catalog::Catalog catalog;
  // The node of the pickle that each tensor is, in the order of `position`.
  struct Node {
    std::uint32_t position;
    std::uint32_t tensor;
  };
  std::pmr::vector<Node> nodes{&memory};
};

}  // namespace weightmap
