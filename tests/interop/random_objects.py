"""Random checkpoints: dtypes x shapes x strides x sharing x nesting x names."""

from collections import OrderedDict

import torch

NAMES = ("float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex128 complex64 "
         "uint16 uint32 uint64 complex32 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz "
         "float8_e8m0fnu float4_e2m1fn_x2 bits8 bits1x8 bits2x4 bits4x2 bits16").split()
PLAIN = [name for name in NAMES if hasattr(torch, name)]
# Those with a storage class of their own.
TYPED = PLAIN[: PLAIN.index("uint16")]
# torch refuses one storage under two dtypes, except for these (and others that it saves untyped).
INTERCHANGEABLE = ("uint8", "float8_e5m2", "float8_e4m3fn", "bits8")
DIFFERENTIABLE = ("float64", "float32", "float16", "bfloat16", "complex64", "complex128")
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./ \"'\\\n\täöüßλжд中文字🙂é\u0301"
WORDS = ("weight", "bias", "layers", "attn", "wq", "norm", "exp_avg", "state", "model", "optimizer")


class RandomObject:
    """Builds one object; `random` is a random.Random. `legacy`: of what torch can read again from a
    legacy stream, where a storage has a class of its own and is a whole number of elements."""

    def __init__(self, random, legacy=False):
        self.random = random
        self.legacy = legacy
        self.dtypes = TYPED if legacy else PLAIN
        self.interchangeable = [name for name in INTERCHANGEABLE if name in self.dtypes]
        self.pool = []
        self.containers = []

    # --- tensors

    def dtype(self):
        return self.random.choice(self.dtypes)

    def shape(self):
        rank = self.random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8))
        shape = [self.random.choice((1, 2, 3, 4, 5, 7)) for _ in range(rank)]
        while numel(shape) > 4096:
            shape[self.random.randrange(rank)] = 1
        if rank and self.random.random() < 0.06:
            shape[self.random.randrange(rank)] = 0
        return shape

    def fresh(self):
        dtype, shape = getattr(torch, self.dtype()), self.shape()
        size = torch.empty(0, dtype=dtype).element_size()
        slack = self.random.choice((0, 0, 0, 1, 2, 13))  # elements behind the tensor
        count = numel(shape) + slack
        if dtype == torch.bool:
            data = bytes(self.random.getrandbits(1) for _ in range(count))
        else:
            data = self.random.randbytes(count * size)
        flat = torch.tensor(list(data), dtype=torch.uint8).view(dtype)
        # Within one storage, so that a few of them are larger than what is viewed.
        return flat[: numel(shape)].reshape(shape)

    def odd_storage(self):
        """float32 over a number of bytes that is no multiple of four."""
        size = self.random.randrange(1, 300)
        storage = torch.UntypedStorage(list(self.random.randbytes(size)))
        return torch.empty(0).set_(storage, 0, (size // 4,), (1,))

    def view(self, tensor):
        kind = self.random.choice("permute slice expand as_strided select same flatten".split())
        if kind == "as_strided":
            return self.as_strided(tensor)
        if tensor.dim() == 0 or kind == "same":
            return tensor
        dim = self.random.randrange(tensor.dim())
        size = tensor.shape[dim]
        if kind == "permute":
            return tensor.permute(self.random.sample(range(tensor.dim()), tensor.dim()))
        if kind == "slice":
            start = self.random.randint(0, size)
            stop = self.random.randint(start, size)
            step = self.random.choice((1, 1, 2, 3))
            return tensor[(slice(None),) * dim + (slice(start, stop, step),)]
        if kind == "expand" and size > 0:
            row = tensor.narrow(dim, self.random.randrange(size), 1)
            return row.expand([*row.shape[:dim], self.random.randint(1, 5), *row.shape[dim + 1 :]])
        if kind == "select" and size > 0:
            return tensor.select(dim, self.random.randrange(size))
        return tensor.flatten() if tensor.is_contiguous() else tensor

    def as_strided(self, tensor):
        available = tensor.untyped_storage().nbytes() // tensor.element_size()
        if available == 0:
            return tensor
        offset = self.random.randrange(available)
        left = available - offset - 1
        shape, strides = [], []
        for _ in range(self.random.randint(0, 4)):
            size = self.random.randint(1, 4)
            stride = self.random.randint(0, max(0, left // max(1, size - 1)))
            stride = min(stride, 50)
            if (size - 1) * stride > left:
                continue
            left -= (size - 1) * stride
            shape.append(size)
            strides.append(stride)
        return torch.as_strided(tensor, shape, strides, offset)

    def tensor(self):
        chance = self.random.random()
        if self.pool and chance < 0.35:
            tensor = self.random.choice(self.pool)
            if chance < 0.1:
                return tensor  # the very same object: tied weights
            tensor = self.view(tensor.detach())
        elif chance > 0.97 and not self.legacy:
            tensor = self.odd_storage()
        else:
            tensor = self.fresh()
            if chance > 0.7:
                tensor = self.view(tensor)
        name = str(tensor.dtype).removeprefix("torch.")
        if name in self.interchangeable and self.random.random() < 0.3:
            tensor = tensor.view(getattr(torch, self.random.choice(self.interchangeable)))
        tensor = self.dress(tensor, name)
        self.pool.append(tensor)
        return tensor

    def dress(self, tensor, name):
        if name not in DIFFERENTIABLE or str(tensor.dtype) != "torch." + name:
            return tensor
        chance = self.random.random()
        if chance < 0.1:
            return torch.nn.Parameter(tensor, requires_grad=self.random.random() < 0.7)
        return tensor.detach().requires_grad_() if chance < 0.2 else tensor

    # --- everything else

    def name(self):
        chance = self.random.random()
        if chance < 0.6:
            return ".".join(self.random.choices(WORDS, k=self.random.randint(1, 4)))
        length = self.random.choice((1, 2, 8, 40, 130, 300)) if chance > 0.65 else 0
        return "".join(self.random.choices(LETTERS, k=length))

    def key(self, index):
        if self.random.random() < 0.15:
            return self.random.choice((index, -index, index * 2**33, index * 300))
        name = self.name()
        return f"{name}{index}"[-300:] if self.random.random() < 0.9 else name

    def plain(self):
        return self.random.choice(
            (None, True, False, 0, -1, 255, 70000, -(2**40), 2**70, 0.5, "text", "ü", "", b"raw",
             (), [], {}, torch.Size([2, 3]), torch.float16, torch.device("cpu"), {1, 2}, 1 + 2j)
        )

    def value(self, depth):
        chance = self.random.random()
        if depth > 0 and chance < 0.15:
            return self.container(self.random.randint(0, 6), depth - 1)
        if self.containers and chance < 0.17:
            return self.random.choice(self.containers)  # reached by two paths
        return self.plain() if chance < 0.3 else self.tensor()

    def container(self, count, depth):
        kind = self.random.choice((dict, OrderedDict, dict, list, tuple))
        if kind in (list, tuple):
            result = kind(self.value(depth) for _ in range(count))
        else:
            result = kind((self.key(i), self.value(depth)) for i in range(count))
        if len(self.containers) < 3:
            self.containers.append(result)
        return result


def numel(shape):
    result = 1
    for size in shape:
        result *= size
    return result


def many_storages(count, random):
    """A state_dict of `count` small storages, a few of them empty."""
    sizes = [random.choice((0, 1, 1, 2, 3, 15, 16, 17, 100)) for _ in range(count)]
    return OrderedDict((f"layer.{i}.weight", torch.full((n,), i % 251)) for i, n in enumerate(sizes))
