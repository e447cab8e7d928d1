# -*- coding: utf-8 -*-
"""Random trees of containers and tensors, for Python 2.7 as well: make_python2_fixtures.py."""

import random


class RandomTrees(object):
    """Containers may be shared. A subclass has container(depth)."""

    def __init__(self, seed, tensor):
        self.random = random.Random(seed)
        self.make_tensor = tensor  # of its number
        self.tensors = 0
        self.containers = []

    def tensor(self):
        self.tensors += 1
        return self.make_tensor(self.tensors - 1)

    def value(self, depth):
        if depth == 0 or self.random.random() < 0.35:
            return self.random.choice([self.tensor, self.tensor, lambda: 5, lambda: "text"])()
        if self.containers and self.random.random() < 0.15:
            return self.random.choice(self.containers)
        made = self.container(depth)
        self.containers.append(made)
        return made

    def values(self, depth):
        return [self.value(depth - 1) for _ in range(self.random.randrange(1, 4))]

    def items(self, depth):
        keys = ["weight", u"bias", 7, "a.b", u"\u00e4", "x%d" % self.random.randrange(100)]
        self.random.shuffle(keys)
        return zip(keys, self.values(depth))

    def attributes(self, made, depth):
        for number, value in enumerate(self.values(depth)):
            setattr(made, "attribute%d" % number, value)
        return made
