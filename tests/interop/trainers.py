#!/usr/bin/env python3
"""Compares what weightmap reads from the checkpoints of libraries that train with what is in their
models: names, dtypes, shapes, elements. Each file is written by the library's own writer, from
models of random weights, on processors.

    trainers.py [NAME ...]      torchvision timm ultralytics deepspeed megatron paddle accelerate
                                lightning

Runs with the package weightmap, torch, and the libraries in the versions of scripts/test, which
installs them for --long. A module that is pickled whole has the names of its state_dict(), then what it has
beside that; load_model() takes it back, and so does load_state_dict() what is written of it as
safetensors. Prints a line for each file, and for each difference; ends with 1 if there is one.
"""

import argparse
import copy
import os
import pathlib
import sys
import tempfile
import warnings

import numpy
import safetensors.torch
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from packages import differences, listed

import weightmap
import weightmap.torch

# mnasnet is left out: it takes no state dict without torch's _metadata, so none of safetensors.
TORCHVISION = (
    "mobilenet_v3_small shufflenet_v2_x0_5 squeezenet1_1 resnet18 efficientnet_b0 swin_t "
    "densenet121 googlenet regnet_y_400mf ssdlite320_mobilenet_v3_large "
    "fasterrcnn_mobilenet_v3_large_320_fpn lraspp_mobilenet_v3_large raft_small "
    "quantized_mobilenet_v2 mc3_18 maxvit_t").split()
TIMM = ("xcit_nano_12_p8_224 levit_128s tinynet_e ghostnet_050 pit_ti_224 efficientvit_m0 "
        "mobilenetv4_conv_small_035 convit_tiny crossvit_tiny_240 dla46_c eva02_tiny_patch14_224 "
        "repvit_m0_9 edgenext_xx_small regnetx_002").split()
ULTRALYTICS = ("yolov3-tiny yolov5n yolov8n yolov10n yolo11n yolo11n-seg yolo11n-pose yolo11n-cls "
               "yolo11n-obb yolo12n yolo26n").split()


class Comparison:
    def __init__(self, folder):
        self.folder, self.equal, self.files, self.faults, self.refused = folder, 0, 0, 0, 0

    def file(self, path, expected, title=""):
        title = f"{path.name} {title}".strip()
        self.files += 1
        try:
            count, sentences = differences(path, expected)
        except weightmap.Error as error:
            self.refused += 1
            print(f"{title}: refused: {error}", flush=True)
            return
        self.equal += count
        print(f"{title}: {count} equal", flush=True)
        for sentence in sentences:
            self.fault(title, sentence)

    def fault(self, title, sentence):
        self.faults += 1
        print(f"  FAULT {title}: {sentence}", flush=True)

    def module(self, make, title):
        """A module that torch.save() has pickled whole."""
        module, path = make().eval(), self.folder / "module.pt"
        torch.save(module, path)
        self.file(path, listed(module), title)
        state = module.state_dict()
        with weightmap.open(path) as opened:
            if [name for name in opened if name in state] != list(state):
                self.fault(title, "names or order are not those of state_dict()")
            target = self.folder / "module.safetensors"
            try:
                weightmap.save_safetensors(opened, target, shared="copy")
                fresh = copy.deepcopy(module)
                missing = fresh.load_state_dict(safetensors.torch.load_file(target), strict=False)
                loaded = weightmap.torch.load_model(lambda: copy.deepcopy(module), path)
            except (weightmap.Error, RuntimeError) as error:
                self.fault(title, f"{error}"[:300])
                return
        if missing.missing_keys or list(loaded.state_dict()) != list(state):
            self.fault(title, f"lacks names as safetensors, or when loaded: {missing.missing_keys}")


def import_torchvision():
    # The wheels on PyPI are of CUDA; beside another torch their operators do not load.
    if torch.version.cuda is None and "torchvision" not in sys.modules:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import_torchvision.library = library
    import torchvision.models

    return torchvision.models


def torchvision(comparison):
    models = import_torchvision()
    with_backbone = {name for part in (models.detection, models.segmentation)
                     for name in models.list_models(part)}
    for name in TORCHVISION:
        options = {"weights_backbone": None} if name in with_backbone else {}
        comparison.module(
            lambda: models.get_model(name, weights=None, **options), f"torchvision {name}")


def timm(comparison):
    import_torchvision()
    import timm

    for name in [*timm.list_models("test_*"), *TIMM]:
        comparison.module(lambda: timm.create_model(name, pretrained=False), f"timm {name}")


def ultralytics(comparison):
    os.environ["YOLO_CONFIG_DIR"] = str(comparison.folder)
    import_torchvision()
    from ultralytics import YOLO

    for name in ULTRALYTICS:
        model, path = YOLO(f"{name}.yaml"), comparison.folder / f"{name}.pt"
        model.save(path)
        comparison.file(path, listed({"model": copy.deepcopy(model.model).half()}), "ultralytics")
        fresh = YOLO(f"{name}.yaml").model.half()
        report = weightmap.open(path).subtree("model").load_into(fresh)
        if report.missing or report.unexpected:
            comparison.fault(name, f"{report}")


def in_processes(work, folder, count=2):
    """Runs work(rank, folder) in processes that find each other."""
    multiprocessing.spawn(_one_of, (count, work, str(folder)), nprocs=count)


def _one_of(rank, count, work, folder):
    warnings.simplefilter("ignore")
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count),
                      DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT="29641")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank,
                            world_size=count)
    torch.manual_seed(0)
    work(rank, folder)
    dist.barrier()
    dist.destroy_process_group()


def deepspeed(comparison):
    for work in (zero_0, zero_1, zero_2, zero_3, pipeline):
        folder = comparison.folder / work.__name__
        folder.mkdir()
        in_processes(work, folder)
        paths = sorted(folder.rglob("*.pt"))
        if not paths:
            comparison.fault(work.__name__, "no file was written")
        for path in paths:
            loaded = torch.load(path, map_location="cpu", weights_only=False)
            comparison.file(path, listed(loaded), f"deepspeed {work.__name__}")


def zero_0(rank, folder):
    train_with_deepspeed(folder, 0)


def zero_1(rank, folder):
    train_with_deepspeed(folder, 1)


def zero_2(rank, folder):
    train_with_deepspeed(folder, 2)


def zero_3(rank, folder):
    train_with_deepspeed(folder, 3)


def pipeline(rank, folder):
    """A file for each layer, of two stages."""
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo")
    layers = [torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)]
    model = deepspeed.pipe.PipelineModule(
        layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss, partition_method="uniform")
    engine = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters()),
        config={"train_batch_size": 2, "train_micro_batch_size_per_gpu": 2})[0]
    batch = torch.ones(2, 8), torch.ones(2, 4)
    for _ in range(2):
        engine.train_batch(iter([batch]))
    engine.save_checkpoint(folder, client_state={"epoch": 3})


def train_with_deepspeed(folder, stage):
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo")
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    engine = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters()),
        config={"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage},
                "bf16": {"enabled": stage > 0}, "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False})[0]
    for _ in range(2):
        given = torch.ones(2, 8, dtype=torch.bfloat16 if stage else torch.float32)
        engine.backward(engine(given).float().sum())
        engine.step()
    engine.save_checkpoint(folder, client_state={"epoch": 3})


def megatron(comparison):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    for work in (one_layer_a_rank, halves_of_layers, optimizer_by_buffers, optimizer_by_parameters):
        folder = comparison.folder / work.__name__
        folder.mkdir()
        in_processes(work, folder)
        dcp_to_torch_save(folder / "saved", folder / "joined.pt")
        expected = listed(torch.load(folder / "joined.pt", weights_only=False))
        comparison.file(folder / "saved", expected, f"megatron {work.__name__}")
        for path in [folder / "saved" / "common.pt", *sorted(folder.glob("mp_rank_*/*.pt"))]:
            loaded = torch.load(path, map_location="cpu", weights_only=False)
            comparison.file(path, listed(loaded), f"megatron {work.__name__}")


def one_layer_a_rank(rank, folder):
    save_with_megatron(rank, folder, 1, 2)


def halves_of_layers(rank, folder):
    save_with_megatron(rank, folder, 2, 1)


def model_of_megatron(parts, stages):
    if not torch.cuda.is_available():  # Megatron-Core waits for CUDA, wherever the tensors are
        torch.cuda.synchronize = lambda *arguments: None
        torch.cuda.current_device = lambda: "cpu"
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    parallel_state.initialize_model_parallel(parts, stages)
    config = TransformerConfig(
        num_layers=2, hidden_size=16, num_attention_heads=2, use_cpu_initialization=True,
        pipeline_dtype=torch.float32, tensor_model_parallel_size=parts,
        pipeline_model_parallel_size=stages)
    return GPTModel(
        config, get_gpt_layer_local_spec(), vocab_size=32, max_sequence_length=8,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage())


class CallsItCuda(torch.overrides.TorchFunctionMode):
    """For what asks for CUDA by name, wherever there is none."""

    def __torch_function__(self, function, kinds, arguments=(), named=None):
        named = dict(named or {})
        if function is torch.Tensor.cuda:
            return arguments[0]
        if str(named.get("device")).startswith("cuda"):
            named["device"] = "cpu"
        made = function(*arguments, **named)
        is_name = function is torch.Tensor.type and isinstance(made, str)
        return made.replace("torch.", "torch.cuda.") if is_name else made


def optimizer_by_buffers(rank, folder):
    with CallsItCuda():
        save_distributed_optimizer(rank, folder, "dp_reshardable")


def optimizer_by_parameters(rank, folder):
    with CallsItCuda():
        save_distributed_optimizer(rank, folder, "fully_reshardable")


def save_distributed_optimizer(rank, folder, layout):
    """Each rank has a part of it."""
    model = model_of_megatron(1, 1)
    from megatron.core import dist_checkpointing
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    trained = DistributedDataParallel(
        model.config, DistributedDataParallelConfig(use_distributed_optimizer=True), model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=0.1, use_distributed_optimizer=True), [trained])
    for parameter in model.parameters():
        parameter.main_grad.copy_(torch.randn(parameter.shape))
    trained.finish_grad_sync()
    optimizer.step()
    state = model.sharded_state_dict(prefix="model.")
    state["optimizer"] = optimizer.sharded_state_dict(
        state, metadata={"distrib_optim_sharding_type": layout})
    if rank == 0:
        pathlib.Path(folder, "saved").mkdir()
    dist.barrier()
    dist_checkpointing.save({**state, "iteration": 7}, f"{folder}/saved")


def save_with_megatron(rank, folder, parts, stages):
    from megatron.core import dist_checkpointing

    model = model_of_megatron(parts, stages)
    if rank == 0:
        pathlib.Path(folder, "saved").mkdir()
    dist.barrier()
    dist_checkpointing.save(
        {**model.sharded_state_dict(prefix="model."), "iteration": 7, "checkpoint_version": 3.0},
        f"{folder}/saved")
    # The layout before that, which Megatron-LM's trainer writes with torch.save.
    old = pathlib.Path(folder, f"mp_rank_{rank:02}")
    old.mkdir()
    torch.save({"args": argparse.Namespace(hidden_size=16), "checkpoint_version": 3.0,
                "iteration": 7, "model": model.state_dict(),
                "rng_state": [{"torch_rng_state": torch.get_rng_state(),
                               "np_rng_state": numpy.random.get_state()}]},
               old / "model_optim_rng.pt")


def paddle(comparison):
    import paddle

    model = paddle.nn.Sequential(
        paddle.nn.Linear(4, 3), paddle.nn.BatchNorm1D(3), paddle.nn.Linear(3, 2))
    optimizer = paddle.optimizer.Adam(parameters=model.parameters())
    model(paddle.ones([2, 4])).sum().backward()
    optimizer.step()
    halves = {name: each.astype("bfloat16") for name, each in model.state_dict().items()}
    saved = [("model.pdparams", model.state_dict(), 4), ("two.pdparams", model.state_dict(), 2),
             ("three.pdparams", model.state_dict(), 3),
             ("optimizer.pdopt", optimizer.state_dict(), 4),
             ("all.pdparams", {"model": model.state_dict(), "epoch": 3}, 4),
             ("halves.pdparams", halves, 4)]
    for name, value, protocol in saved:
        path = comparison.folder / name
        paddle.save(value, str(path), protocol=protocol)
        with open(path, "rb") as file:
            comparison.file(path, listed(numpy.load(file, allow_pickle=True)), "paddle")


class Tied(torch.nn.Module):
    """Its last layer has the matrix of its first."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Embedding(16, 8), torch.nn.LayerNorm(8)
        self.last = torch.nn.Linear(8, 16, bias=False)
        self.last.weight = self.first.weight

    def forward(self, given):
        return self.last(self.norm(self.first(given)))


def train(model, optimizer, backward):
    for given in torch.arange(8).split(4):
        backward(model(given).square().sum())
        optimizer.step()
        optimizer.zero_grad()


def files_in(comparison, folder, title):
    for path in sorted(path for path in folder.iterdir() if path.suffix != ".json"):
        expected = (safetensors.torch.load_file(path) if path.suffix == ".safetensors" else
                    listed(torch.load(path, map_location="cpu", weights_only=False)))
        comparison.file(path, expected, title)


def accelerate(comparison):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    model, optimizer, schedule = accelerator.prepare(
        model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1))
    train(model, optimizer, accelerator.backward)
    schedule.step()
    for is_safe in (True, False):
        folder = comparison.folder / f"state_{is_safe}"
        accelerator.save_state(str(folder), safe_serialization=is_safe)
        files_in(comparison, folder, "accelerate save_state()")
        folder = comparison.folder / f"shards_{is_safe}"
        accelerator.save_model(model, str(folder), max_shard_size=256, safe_serialization=is_safe)
        files_in(comparison, folder, "accelerate save_model()")
        state = model.state_dict()
        if is_safe:
            del state["last.weight"]
        comparison.file(folder, state, "accelerate save_model(), as a folder")


def lightning(comparison):
    import lightning

    class Trained(lightning.LightningModule):
        def __init__(self, width, words):
            super().__init__()
            self.save_hyperparameters()
            self.model = Tied()

        def training_step(self, batch, index):
            return self.model(batch).square().sum()

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    folder = comparison.folder / "lightning"
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
        callbacks=[lightning.pytorch.callbacks.ModelCheckpoint(folder, save_last=True)])
    batches = torch.utils.data.DataLoader(torch.arange(8), batch_size=4)
    trainer.fit(Trained(8, {"a": 1}), batches)
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    model = Tied()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters()))
    train(model, optimizer, fabric.backward)
    fabric.save(folder / "fabric.ckpt", {"model": model, "optimizer": optimizer, "step": 3})
    files_in(comparison, folder, "lightning")


WRITERS = {each.__name__: each for each in (
    torchvision, timm, ultralytics, deepspeed, megatron, paddle, accelerate, lightning)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=[], choices=[*WRITERS, []])
    names = parser.parse_args().names or list(WRITERS)
    warnings.simplefilter("ignore")
    total = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            comparison = Comparison(pathlib.Path(folder))
            WRITERS[name](comparison)
        print(f"{name}: {comparison.files} files, {comparison.equal} tensors equal, "
              f"{comparison.faults} faults, {comparison.refused} files refused", flush=True)
        total += comparison.faults or not comparison.files
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
