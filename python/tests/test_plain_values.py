"""What is made of a pickle's calls without calling anything, for arguments of every kind."""

import pytest

from weightmap._objects import PERSISTENT_ID, Global, Object
from weightmap._values import PlainMachine

WHOLE = object()
REBUILD = Global("torch._utils", "_rebuild_tensor_v2")
KEY = ("storage", None, "w", "cpu", 4)


def reference(identifier):
    return Object(PERSISTENT_ID, (identifier,))


def test_a_reference_to_a_tensor_in_pieces_is_the_whole():
    assert PlainMachine({"w": WHOLE}).call(REBUILD, (reference(KEY), 0)) is WHOLE


@pytest.mark.parametrize(
    "storage",
    [None, 5, "w", KEY, [KEY], {"arguments": KEY}, Object(REBUILD, ()), Object(REBUILD, KEY),
     Object(REBUILD, (KEY,)), Object(REBUILD, [KEY]), Object(KEY, None), reference(None),
     reference(()), reference(KEY[:2]), reference([*KEY]), reference((1, 2, "w")),
     reference(("storage", None, ["w"])), reference(("storage", None, "other")),
     Object(PERSISTENT_ID, (KEY,), state={}).arguments],
    ids=repr,
)
def test_anything_else_for_a_storage_stays_a_call(storage):
    made = PlainMachine({"w": WHOLE}).call(REBUILD, (storage, 0))
    assert type(made) is Object and made.arguments == (storage, 0)
