"""Two processes with gloo: compiled training equals eager, whether the module is compiled before or after wrapping."""

import contextlib
import copy
import os

import pytest
import torch
from torch import distributed, nn
from torch.multiprocessing.spawn import spawn

import burnish
from burnish import events
from burnish.frontend.compiled_module import CompiledModule

RANKS = 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.tanh(self.inner(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(4, 8, generator=generator), torch.randint(0, 3, (4,), generator=generator)


def in_two_processes(check, tmp_path):
    """Run ``check(rank)`` in each; an error in one of them is an error here."""
    spawn(_work, (check, str(tmp_path / "store")), nprocs=RANKS)


def _work(rank, check, store):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    try:
        check(rank)
    finally:
        distributed.destroy_process_group()


def trained(rank, model, steps=3, step_of=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for i in range(steps):
        optimizer.zero_grad()
        x, y = batch(rank, i)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def check_data_parallel(rank):
    from torch.nn.parallel import DistributedDataParallel

    net = Net()
    plain = DistributedDataParallel(copy.deepcopy(net))
    wanted = trained(rank, plain)
    ways = {
        "before": lambda m: DistributedDataParallel(burnish.compile(m)),
        "after": lambda m: burnish.compile(DistributedDataParallel(m)),
        "in place": lambda m: DistributedDataParallel(burnish.compile_(m)),
        "in place after": lambda m: burnish.compile_(DistributedDataParallel(m)),
        "both": lambda m: burnish.compile(DistributedDataParallel(burnish.compile(m))),
        "regions": lambda m: DistributedDataParallel(burnish.compile_regions(m)),
    }
    for name, wrap in ways.items():
        model = wrap(copy.deepcopy(net))
        found = trained(rank, model)
        torch.testing.assert_close(found, wanted, msg=lambda text, name=name: f"{name}: {text}")
        for parameter, other in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(parameter, other, msg=lambda text, name=name: f"{name}: {text}")
        assert burnish.was_compiled(model), name
        first = next(model.parameters()).detach().clone()
        distributed.broadcast(first, 0)
        assert torch.equal(first, next(model.parameters()).detach()), f"{name}: the ranks drifted apart"


@pytest.mark.slow
def test_data_parallel_trains_as_eager_whichever_is_wrapped_first(tmp_path):
    in_two_processes(check_data_parallel, tmp_path)


def check_called_from_compiled_code(rank):
    from torch.nn.parallel import DistributedDataParallel

    net = Net()
    plain = DistributedDataParallel(copy.deepcopy(net))
    wrapped = DistributedDataParallel(copy.deepcopy(net))

    def loss_of(model, x, y):
        return nn.functional.cross_entropy(2 * model(x), y)

    loss_of_compiled = burnish.compile(loss_of)
    given_up, breaks, graphs = [], [], []

    def hear(event):
        if event.kind == "breaks":
            breaks.append(event.data["text"])
        elif event.kind == "guards.given_up":
            given_up.append(event.data["text"])
        elif event.kind == "graph":
            graphs.append(event.data["graph_module"].code)

    stop = events.subscribe(hear)
    results = []
    for model, loss_of_model in ((plain, loss_of), (wrapped, loss_of_compiled)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(4):
            with contextlib.nullcontext() if i % 2 else model.no_sync():
                loss = loss_of_model(model, *batch(rank, i))
                loss.backward()
            if i % 2:
                optimizer.step()
                optimizer.zero_grad()
        results.append((loss.detach(), model.state_dict()))
    stop()
    torch.testing.assert_close(results[1], results[0])
    assert burnish.was_compiled(loss_of_compiled) and not given_up
    assert breaks and all("DistributedDataParallel.forward" in text for text in breaks), breaks
    # The wrapped module ran compiled and is unchanged afterwards.
    assert any("tanh" in code for code in graphs) and wrapped.module._compiled_call_impl is None


@pytest.mark.slow
def test_data_parallel_called_from_compiled_code_is_one_break_and_compiled_inside(tmp_path):
    in_two_processes(check_called_from_compiled_code, tmp_path)


def check_fully_sharded(rank):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))
    net = Net()

    def sharded(model):
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def whole(model):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return {
            name.replace("_orig_mod.", ""): value
            for name, value in get_model_state_dict(model, options=options).items()
        }

    plain = sharded(copy.deepcopy(net))
    wanted = trained(rank, plain)
    for name, wrap in {
        "in place": lambda m: burnish.compile_(sharded(m)),
        "after": lambda m: burnish.compile(sharded(m)),
        "before": lambda m: sharded(burnish.compile_regions(m)),
    }.items():
        model = wrap(copy.deepcopy(net))
        torch.testing.assert_close(trained(rank, model), wanted, msg=lambda text, name=name: f"{name}: {text}")
        found, right = whole(model), whole(plain)
        assert list(found) == list(right), name
        torch.testing.assert_close(found, right, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.slow
def test_fully_sharded_modules_train_as_eager_and_keep_their_keys(tmp_path):
    in_two_processes(check_fully_sharded, tmp_path)


def check_fabric(rank):
    from lightning.fabric import Fabric

    distributed.destroy_process_group()
    os.environ["MASTER_PORT"] = os.environ["FABRIC_PORT"]
    fabric = Fabric(accelerator="cpu", devices=RANKS, strategy="ddp")
    fabric.launch()
    net = Net()
    results = []
    for compile_ in (lambda m: m, burnish.compile):
        for reapply in (True, False):
            model = compile_(copy.deepcopy(net))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = fabric.setup(model, optimizer, _reapply_compile=reapply)
            for i in range(4):
                x, y = batch(rank, i)
                with fabric.no_backward_sync(model, enabled=i % 2 == 0):
                    fabric.backward(nn.functional.cross_entropy(model(x), y))
                if i % 2:
                    optimizer.step()
                    optimizer.zero_grad()
            state = model.state_dict()
            if reapply:  # put back around the wrapper of the strategy, so the model inside has its own keys
                assert list(state) == list(net.state_dict())
                assert (type(model._forward_module) is CompiledModule) is (compile_ is burnish.compile)
            results.append({k.replace("_orig_mod.", ""): v.clone() for k, v in state.items()})
            assert burnish.was_compiled(model) is (compile_ is burnish.compile)
    for found in results[1:]:
        torch.testing.assert_close(found, results[0])


@pytest.mark.slow
def test_fabric_trains_as_eager(tmp_path, monkeypatch):
    monkeypatch.setenv("FABRIC_PORT", str(free_port()))
    in_two_processes(check_fabric, tmp_path)


def check_trainer(rank):
    from lightning.pytorch import LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    class Trained(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, batch_idx):
            x, y = batch
            loss = nn.functional.cross_entropy(self(x), y)
            self.log("train_loss", loss, sync_dist=True, on_step=False, on_epoch=True)
            return loss

        def validation_step(self, batch, batch_idx):
            self.log("val_loss", nn.functional.cross_entropy(self(batch[0]), batch[1]), sync_dist=True)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    distributed.destroy_process_group()
    os.environ["MASTER_PORT"] = os.environ["FABRIC_PORT"]
    # Each process gets every second sample.
    data = TensorDataset(torch.randn(16, 8), torch.randint(0, 3, (16,)))
    breaks = []
    stop = events.subscribe(lambda event: breaks.append(event.data["text"]) if event.kind == "breaks" else None)
    results = []
    for compile_ in (lambda m: m, burnish.compile):
        torch.manual_seed(0)
        model = Trained()
        trainer = Trainer(
            accelerator="cpu",
            devices=RANKS,
            strategy="ddp",
            max_epochs=2,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            default_root_dir=os.environ["TRAINER_ROOT"],
        )
        loader = DataLoader(data, batch_size=2)
        trainer.fit(compile_(model), loader, loader)
        trainer.save_checkpoint(os.path.join(os.environ["TRAINER_ROOT"], "last.ckpt"))
        assert trainer.world_size == RANKS
        assert burnish.was_compiled(model) is (compile_ is burnish.compile)
        kept = torch.load(os.path.join(os.environ["TRAINER_ROOT"], "last.ckpt"), weights_only=False)["state_dict"]
        assert list(kept) == list(Trained().state_dict())
        results.append((kept, dict(trainer.callback_metrics)))
    stop()
    torch.testing.assert_close(results[1], results[0])
    assert set(results[0][1]) == {"train_loss", "val_loss"} and not breaks, breaks


@pytest.mark.slow
def test_lightnings_trainer_trains_as_eager(tmp_path, monkeypatch):
    monkeypatch.setenv("FABRIC_PORT", str(free_port()))
    monkeypatch.setenv("TRAINER_ROOT", str(tmp_path))
    in_two_processes(check_trainer, tmp_path)


def check_accelerate(rank):
    from accelerate import Accelerator

    from burnish.integrations.accelerate import BurnishPlugin

    net = Net()
    results = []
    for plugin in (BurnishPlugin(backend="no"), BurnishPlugin(), BurnishPlugin(use_regional_compilation=True)):
        accelerator = Accelerator(cpu=True, dynamo_plugin=plugin)
        assert accelerator.num_processes == RANKS
        inner = copy.deepcopy(net)
        model, optimizer = accelerator.prepare(inner, torch.optim.SGD(inner.parameters(), lr=0.1))
        for i in range(3):
            x, y = batch(rank, i)
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        results.append(dict(inner.state_dict()))
        if not plugin.use_regional_compilation:
            assert burnish.was_compiled(model) is (plugin.backend.value != "NO")
        assert accelerator.unwrap_model(model, keep_torch_compile=False) is inner
        accelerator.state._reset_state()
    for found in results[1:]:
        torch.testing.assert_close(found, results[0])


@pytest.mark.slow
def test_accelerate_trains_as_eager(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    in_two_processes(check_accelerate, tmp_path)


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
