"""GGUF files, made by the package gguf, and tensors of blocks."""

import pickle

import pytest

import weightmap

numpy = pytest.importorskip("numpy", reason="the package gguf needs numpy")
gguf = pytest.importorskip("gguf", reason="GGUF files are made by the package gguf")

# Those that gguf both quantizes and dequantizes, and some of which any bytes do.
QUANTIZED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4", "BF16"]
RANDOM = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"]


def write(path, tensors, big=False):
    endianess = gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(path, "test", endianess=endianess)
    writer.add_string("general.name", "a name")
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "b"])
    writer.add_uint32("test.block_count", 7)
    for name, data, kind in tensors:
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    random = numpy.random.default_rng(7)
    values = random.standard_normal((6, 512)).astype(numpy.float32)
    kinds = gguf.GGMLQuantizationType
    tensors = [
        (f"blk.{name}", gguf.quants.quantize(values, kinds[name]), kinds[name])
        for name in QUANTIZED
    ]
    for name in RANDOM:
        elements, block = gguf.GGML_QUANT_SIZES[kinds[name]]
        data = random.integers(0, 256, (4, 512 // elements * block), dtype=numpy.uint8)
        tensors.append((f"blk.{name}", data, kinds[name]))
    tensors += [("f32", values, None), ("f16", values.astype(numpy.float16), None)]
    write(path, tensors)
    return path


@pytest.fixture
def opened(model):
    return weightmap.open(model)


@pytest.fixture(scope="module")
def reader(model):
    return {tensor.name: tensor for tensor in gguf.GGUFReader(model).tensors}


def test_metadata_is_the_root(opened):
    assert opened.root() == {
        "general.architecture": "test",
        "general.name": "a name",
        "tokenizer.ggml.tokens": ["<s>", "b"],
        "test.block_count": 7,
    }
    assert opened.info.format == "gguf"


@pytest.mark.parametrize("name", [*QUANTIZED, *RANDOM])
def test_bits_are_the_data_of_gguf(opened, reader, name):
    bits = opened[f"blk.{name}"].bits().numpy()
    data = reader[f"blk.{name}"].data
    if name == "BF16":
        bits = bits.view(numpy.uint8)
    assert bits.dtype == data.dtype == numpy.uint8
    assert bits.shape == data.shape
    assert (bits == data).all()


@pytest.mark.parametrize("name", [*QUANTIZED, *RANDOM])
def test_dequantize_is_that_of_gguf(opened, reader, name):
    tensor = reader[f"blk.{name}"]
    expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    made = opened[f"blk.{name}"].dequantize()
    assert made.dtype == numpy.float32
    assert made.shape == opened[f"blk.{name}"].shape
    assert numpy.array_equal(made, expected, equal_nan=True)


def test_dequantize_refuses_what_gguf_does_not_compute(tmp_path):
    kind = gguf.GGMLQuantizationType.Q8_K
    write(tmp_path / "a.gguf", [("w", numpy.zeros((1, 292), numpy.uint8), kind)])
    with pytest.raises(weightmap.UnsupportedError, match="does not compute the values of q8_K"):
        weightmap.open(tmp_path / "a.gguf")["w"].dequantize()


def test_rows_and_blocks_are_taken_without_a_copy(opened):
    tensor = opened["blk.Q4_0"]
    whole = tensor.dequantize()
    assert numpy.array_equal(tensor[2].dequantize(), whole[2])
    assert numpy.array_equal(tensor[1:3].dequantize(), whole[1:3])
    assert numpy.array_equal(tensor[::2, 64:128].dequantize(), whole[::2, 64:128])
    assert tensor[1:3].numpy().base is not None
    assert tensor[1:3].file_offset == tensor.file_offset + 288


def test_blocks_are_not_divided(opened):
    tensor = opened["blk.Q4_0"]
    with pytest.raises(weightmap.InvalidArgumentError, match="cannot be taken out of its block"):
        tensor[0, 0]
    with pytest.raises(weightmap.InvalidArgumentError, match="whole blocks of 32 elements"):
        tensor[:, 1:33]


def test_blocks_are_no_values(opened):
    tensor = opened["blk.Q4_0"]
    for ask in (tensor.tolist, tensor.stats, lambda: numpy.asarray(tensor)):
        with pytest.raises(weightmap.UnsupportedError, match="q4_0"):
            ask()
    for ask in (tensor.buffer, tensor.__dlpack__):
        with pytest.raises(BufferError, match="q4_0"):
            ask()


def test_a_part_of_a_blocked_tensor_is_pickled_by_its_place(opened):
    part = opened["blk.Q4_0"][1:5:2, 64:128]
    again = pickle.loads(pickle.dumps(part))
    assert again.shape == (2, 64)
    assert again.tobytes() == part.tobytes()


def test_safe_open_speaks_of_a_gguf_file(opened):
    file = weightmap.safe_open(opened.path, "np")
    assert file.keys() == sorted(opened)
    assert file.get_tensor("blk.Q8_0").shape == (6, 544)
    assert file.get_slice("blk.Q8_0").get_dtype() == "q8_0"
    assert file.get_slice("f32")[1:3].shape == (2, 512)
    assert file.metadata() == {"format": "pt"}


def test_the_other_byte_order(tmp_path):
    values = numpy.arange(64, dtype=numpy.float32).reshape(2, 32)
    kind = gguf.GGMLQuantizationType.Q4_0
    write(
        tmp_path / "big.gguf",
        [("w", values, None), ("q", gguf.quants.quantize(values, kind), kind)],
        big=True,
    )
    opened = weightmap.open(tmp_path / "big.gguf")
    assert opened.info.byteorder == "big"
    assert opened["w"].tolist() == values.tolist()
    with pytest.raises(weightmap.UnsupportedError, match="blocks in the other byte order"):
        opened["q"].tobytes()
    assert opened["q"].bits().shape == (2, 18)


@pytest.mark.parametrize("name", [*QUANTIZED[:-1], *RANDOM])
def test_blocks_of_the_other_byte_order_are_not_dequantized(tmp_path, name):
    kind = gguf.GGMLQuantizationType[name]
    elements, block = gguf.GGML_QUANT_SIZES[kind]
    data = numpy.zeros((2, 512 // elements * block), numpy.uint8)
    write(tmp_path / "big.gguf", [("w", data, kind)], big=True)
    tensor = weightmap.open(tmp_path / "big.gguf")["w"]
    for part in (tensor, tensor[1:]):
        with pytest.raises(
            weightmap.UnsupportedError, match="tensor 'w' has blocks in the other byte order"
        ):
            part.dequantize()
