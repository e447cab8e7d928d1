// Writes a checkpoint of two tensors and an epoch for torch.load(weights_only=True).
#include <array>
#include <iostream>
#include <vector>

#include "weightmap/checkpoint_writer.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;  // save FILE
  const std::vector<float> weight(4 * 3, 0.5f);
  const std::vector<float> bias(4, 0.0f);

  weightmap::CheckpointWriter writer;
  weightmap::ValueBuilder& values = writer.values();
  const auto tensor = [&](const std::vector<float>& elements, std::vector<std::int64_t> sizes,
                          std::vector<std::int64_t> strides) {
    const std::size_t storage = writer.add_storage(
        weightmap::RecordContent::bytes(std::as_bytes(std::span(elements))));  // borrowed
    return writer.tensor(storage, {.sizes = sizes, .strides = strides});
  };
  const std::array state{values.string("weight"), tensor(weight, {4, 3}, {3, 1}),
                         values.string("bias"), tensor(bias, {4}, {1})};
  const std::array root{values.string("model"), writer.ordered_dict(state), values.string("epoch"),
                        values.integer(3)};

  const weightmap::Value everything = values.dict(root);
  const auto written = std::move(writer).write(everything, argv[1]);
  if (!written) {
    std::cerr << written.error() << '\n';
    return 1;
  }
  std::cout << written->archive_bytes << " bytes, the first storage at byte "
            << written->storages.front().offset << '\n';
}
