#!/usr/bin/env python3
"""Archives of torch.export.save(): what the tool lists, against what torch.export.load() has.

    exported_test.py TOOL
"""

import json
import warnings
import zipfile

import torch
from case import ToolCase, main
from describe import same_tensor
from records import write_again
from torch import nn

warnings.simplefilter("ignore")


class Views(nn.Module):
    """Weights that share storages in each way that torch.export keeps."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        whole = torch.arange(100.0)
        self.register_buffer("head", whole[10:15])
        self.register_buffer("tail", whole[15:25])
        self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t())
        self.register_buffer("wide", torch.ones(1).expand(4))
        self.register_buffer("empty", torch.empty(0, 3))
        self.register_buffer("brain", torch.ones(3, dtype=torch.bfloat16))
        self.register_buffer("small", torch.ones(4).to(torch.float8_e4m3fn))
        self.register_buffer("unsigned", torch.ones(3, dtype=torch.uint16))
        self.register_buffer("scratch", torch.full((2,), 5.0), persistent=False)
        self.plain = torch.full((2,), 7.0)

    def forward(self, x):
        return self.second(self.first(x)) + self.plain.sum() + self.scratch.sum()


class Small(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.weight = nn.Parameter(torch.full((2, 2), float(value)))

    def forward(self, x):
        return x @ self.weight


class ExportedTest(ToolCase):
    verify = "headers"

    def exported(self):
        path = self.folder / "views.pt2"
        torch.export.save(torch.export.export(Views(), (torch.ones(1, 3),)), path)
        return path

    def test_has_every_tensor_of_the_state_dict_and_every_constant(self):
        path = self.exported()
        program = torch.export.load(path)
        listed = self.listed(path)
        expected = {**program.state_dict, **program.constants}
        self.assertEqual(set(listed), set(expected))
        for name, tensor in expected.items():
            with self.subTest(name):
                same_tensor(self.tool, path, listed[name], tensor)

    def test_shared_weights_have_one_storage(self):
        listed = self.listed(self.exported())
        self.assertEqual(listed["first.weight"]["storage"], listed["second.weight"]["storage"])
        self.assertEqual(listed["head"]["storage"], listed["tail"]["storage"])
        self.assertTrue(listed["head"]["storage"].startswith("data/weights/weight_"))

    def test_says_what_it_is_and_that_all_is_well(self):
        path = self.exported()
        info = self.tool.info(path)
        self.assertEqual((info["format"], info["unsupported"]), ("pt2", []))
        self.tool.output("verify", "--crc", path)
        self.assertIn(b"config", self.tool.output("tree", path))

    def test_tensors_of_several_models_begin_with_the_name_of_theirs(self):
        from torch.export.pt2_archive._package import package_pt2

        programs = {
            name: torch.export.export(Small(value), (torch.ones(1, 2),))
            for name, value in (("one", 1), ("two", 2))
        }
        path = self.folder / "two.pt2"
        package_pt2(path, exported_programs=programs)
        listed = self.listed(path)
        self.assertEqual(set(listed), {"one.weight", "two.weight"})
        for name, program in programs.items():
            entry = listed[f"{name}.weight"]
            same_tensor(self.tool, path, entry, program.state_dict["weight"])

    def test_refuses_what_the_configuration_says_wrongly(self):
        path = self.exported()
        record = "data/weights/model_weights_config.json"

        def changed(change):
            def change_record(name, data):
                if name != record:
                    return data
                config = json.loads(data)
                change(config["config"])
                return json.dumps(config).encode()

            copy = self.folder / "changed.pt2"
            write_again(path, copy, change_record)
            return copy

        def meta(config):
            return config["head"]["tensor_meta"]

        cases = {
            "which the archive does not have": lambda c: c["head"].update(path_name="weight_99"),
            "expected no slash": lambda c: c["head"].update(path_name="../weight_0"),
            "has no path_name": lambda c: c["head"].pop("path_name"),
            "dtype that is not known": lambda c: meta(c).update(dtype=99),
            "reaches": lambda c: meta(c).update(storage_offset={"as_int": 99}),
            "has no storage_offset": lambda c: meta(c).pop("storage_offset"),
            "size or stride that is no number": lambda c: meta(c).update(sizes=[{"as_expr": "s0"}]),
            "has 0 sizes and 1 strides": lambda c: meta(c).update(sizes=[]),
            "has size -1": lambda c: meta(c).update(sizes=[{"as_int": -1}]),
        }
        for words, change in cases.items():
            with self.subTest(words):
                status, _, errors = self.tool.run("ls", changed(change))
                self.assertEqual(status, 1)
                self.assertIn(words, errors)
                self.assertIn("head", errors)
        self.assertEqual(len(self.listed(changed(lambda c: None))), len(self.listed(path)))

    def test_a_pickled_tensor_is_named_and_not_listed(self):
        path = self.exported()
        copy = self.folder / "pickled.pt2"
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(copy, "w") as target:
            for name in source.namelist():
                data = source.read(name)
                if name.endswith("weights_config.json"):
                    config = json.loads(data)
                    config["config"]["head"]["use_pickle"] = True
                    data = json.dumps(config).encode()
                target.writestr(name, data)
        self.assertEqual(self.tool.info(copy)["unsupported"], ["head"])
        self.assertNotIn("head", self.listed(copy))


if __name__ == "__main__":
    main()
