#include "weightmap/on_demand.hpp"
namespace weightmap {
EvictionPolicy::~EvictionPolicy() = default;
namespace {
class Lru final : public EvictionPolicy {
 public:
  std::string_view name() const noexcept override { return "lru"; }
  void hit(UnitHistory&, std::uint64_t) const noexcept override {}
  void entered(UnitHistory&, std::uint64_t) const noexcept override {}
  std::size_t choose(std::span<UnitHistory* const> units, std::uint64_t) const noexcept override {
    std::size_t least = 0;
    for (std::size_t i = 1; i < units.size(); ++i)
      if (units[i]->last_used < units[least]->last_used) least = i;
    return least;
  }
};
}  // namespace
std::shared_ptr<const EvictionPolicy> eviction_policy(std::string_view name) {
  return name == "lru" ? std::make_shared<Lru>() : nullptr;
}
}  // namespace weightmap
