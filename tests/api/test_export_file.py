"""Files of exported graphs: loading restores the same graph, no code runs, and unsound files are refused."""

import collections
import json
import os
import pickletools
import zipfile

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import burnish
from burnish.errors import UserError
from burnish.export import allowed_operators

X = torch.randn(5, 3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "saved.burnish"


def reloaded(fn, args, path, kwargs=None):
    exported = burnish.export(fn, args, kwargs)
    exported.save(path)
    return burnish.load(path)


def same(got, want):
    got, want = pytree.tree_flatten(got), pytree.tree_flatten(want)
    assert got[1] == want[1]
    for a, b in zip(got[0], want[0], strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        else:
            assert repr(a) == repr(b)


def every_kind_of_value(x):
    y = x.new_zeros((5, 3), dtype=torch.float64).to(torch.float32, memory_format=torch.contiguous_format)
    y = y + torch.full((3,), float("inf")).clamp(max=1e6) * 0 + torch.arange(3, device="cpu")
    z = x[1:4, None, ..., -1].sum(dim=(0, 1), keepdim=True) + x[:, [0, 2]].T.mean()
    z = torch.where(torch.isnan(x), 0.5, x).mT.flatten() + z.flatten()
    return y, torch.nn.functional.pad(x, [1, 1], value=-0.0), torch.topk(z, k=2).values, torch.complex(x, x) * (1 + 2j)


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.recurrent = nn.LSTM(4, 4, batch_first=True)
        self.embedding = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10)
        self.head.weight = self.embedding.weight

    def forward(self, image, ids):
        x = self.norm(self.convolution(image)).flatten(2).transpose(1, 2)
        with torch.no_grad():
            state = self.embedding(ids)
        x, (h, _) = self.recurrent(torch.cat([x, state], dim=1))
        x = nn.functional.scaled_dot_product_attention(x, x, x)
        return self.head(nn.functional.gelu(x)), {"h": h}


@pytest.mark.parametrize(
    "fn, args",
    [
        (lambda x: x * 2, (X,)),
        (every_kind_of_value, (X,)),
        (Trained().eval(), (torch.randn(2, 3, 6, 6), torch.arange(4).view(2, 2))),
        (
            lambda x, n, s, d: (x * n, s, d, None, [1.5, float("nan")], (torch.float16, torch.device("cpu"))),
            (X, 3, "text", {"a": (1, 2)}),
        ),
        (lambda x: torch.max(x, 0), (X,)),
        (lambda x: collections.OrderedDict(b=x + 1, a=x), (X,)),
        (lambda x: torch.ops.aten.add.Tensor(x, x), (X,)),
        (lambda: torch.ones(0), ()),
    ],
)
def test_loaded_graph_computes_the_same(fn, args, path):
    loaded = reloaded(fn, args, path)
    for _ in range(2):
        same(loaded(*args), fn(*args))
    again = path.with_name("again")
    loaded.save(again)
    same(burnish.load(again)(*args), fn(*args))


def test_random_operations_draw_as_eager_does(path):
    module = nn.Dropout(0.5)
    loaded = reloaded(module, (X,), path)
    torch.manual_seed(2)
    want = module(X)
    torch.manual_seed(2)
    assert torch.equal(loaded(X), want)


def test_attributes_keep_names_kinds_strides_and_sharing(path):
    module = Trained().eval()
    loaded = reloaded(module, (torch.randn(2, 3, 6, 6), torch.arange(4).view(2, 2)), path).graph_module
    held = dict(loaded.named_parameters())
    assert isinstance(held["convolution.weight"], nn.Parameter) and held["convolution.weight"].requires_grad
    assert held["convolution.weight"].stride() == module.convolution.weight.stride()
    assert sum(tensor.shape == (10, 4) for tensor in held.values()) == 1
    assert "norm.running_mean" in dict(loaded.named_buffers())
    torch.testing.assert_close(loaded.state_dict(), {name: module.state_dict()[name] for name in loaded.state_dict()})


def test_views_of_one_memory_share_it_after_loading(path):
    memory = torch.zeros(6)
    first, second = memory[:3], memory[2:5]

    def fn(x):
        first.add_(x[0])
        return second + 0

    loaded = reloaded(fn, (X,), path)
    for _ in range(2):
        torch.testing.assert_close(loaded(X), fn(X))
    with zipfile.ZipFile(path) as archive:
        assert [name for name in archive.namelist() if name.startswith("storage")] == ["storage/0"]


def test_saved_tensors_are_not_those_of_the_module_any_more(path):
    linear = nn.Linear(3, 3)
    want = linear(X)
    loaded = reloaded(linear, (X,), path)
    with torch.no_grad():
        linear.weight.zero_()
    torch.testing.assert_close(loaded(X), want)


def test_loaded_graph_can_be_trained_and_compiled(path):
    loaded = reloaded(nn.Linear(3, 3), (X,), path)
    loaded(X).sum().backward()
    assert all(weight.grad is not None for weight in loaded.graph_module.parameters())
    compiled = burnish.compile(loaded.graph_module, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(X)[0], loaded(X))


def test_metadata_of_the_export_is_saved(path):
    def fn(x, n):
        print("left out")
        return x * n

    exported = burnish.export(fn, (X, 2))
    exported.save(path)
    loaded = burnish.load(path)
    assert str(loaded) == str(exported) and "Left out" in str(loaded)
    for wrong in ((X, 3), (X.double(), 2)):
        with pytest.raises(UserError, match="cannot be called with these arguments"):
            loaded(*wrong)


def test_file_holds_json_and_memory_and_nothing_else(path):
    reloaded(Trained().eval(), (torch.randn(2, 3, 6, 6), torch.arange(4).view(2, 2)), path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names[0] == "burnish.json" and all(name.startswith("storage/") for name in names[1:])
        text = json.loads(archive.read("burnish.json"))
        with pytest.raises(ValueError):
            list(pickletools.genops(archive.read("burnish.json")))
    assert {"torch.nn.functional.linear", "torch.nn.functional.conv2d"} & {node.get("target") for node in text["graph"]}


def test_saving_leaves_no_unfinished_file(path):
    path.write_text("as it was")
    exported = burnish.export(lambda x: x + 1, (X,))
    exported.name = object()  # what JSON has no form for
    with pytest.raises(TypeError):
        exported.save(path)
    assert path.read_text() == "as it was"
    assert os.listdir(path.parent) == [path.name]


# ---- graphs that cannot be written


@burnish.allow_in_graph
def opaque(x):
    return torch.sin(x)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@pytest.mark.parametrize(
    "fn, named",
    [
        (lambda x: opaque(x), r"the operation .*opaque.*which is not one of torch's own.*test_export_file.py"),
        (lambda x: Twice.apply(x), "the operation"),
    ],
)
def test_functions_outside_torch_are_named_and_not_written(fn, named, path):
    exported = burnish.export(fn, (X,))
    torch.testing.assert_close(exported(X), fn(X))
    with pytest.raises(UserError, match=f"(?s)cannot be saved: it holds {named}"):
        exported.save(path)
    assert not path.exists()


def test_tensor_of_another_layout_is_named_and_not_written(path):
    sparse = torch.eye(3).to_sparse()
    exported = burnish.export(lambda x: torch.mm(sparse, x.T), (X,))
    with pytest.raises(UserError, match="its attribute constant_sparse is a Tensor with layout torch.sparse_coo"):
        exported.save(path)


def test_result_of_a_class_of_the_users_is_not_written(path):
    Pair = collections.namedtuple("Pair", "left right")
    exported = burnish.export(lambda x: Pair(x, x + 1), (X,))
    assert exported(X).right.shape == X.shape
    with pytest.raises(UserError, match="its arguments or its result hold a .*Pair"):
        exported.save(path)


# ---- refused files


def rewritten(path, change):
    """The file with its description changed."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    description = json.loads(parts["burnish.json"])
    change(description)
    parts["burnish.json"] = json.dumps(description).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def node(description, op):
    return next(entry for entry in description["graph"] if entry["op"] == op)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda d: node(d, "call_function").update(target="os.system"), "the operation 'os.system'"),
        (lambda d: node(d, "call_function").update(target="torch.load"), "the operation 'torch.load'"),
        (lambda d: node(d, "call_function").update(target="torch.hub.load"), "no exported graph may use"),
        (lambda d: node(d, "call_function").update(target="torch.from_file"), "no exported graph may use"),
        (lambda d: node(d, "call_function").update(target="torch.ops.load_library"), "no exported graph may use"),
        (
            lambda d: node(d, "call_function").update(target="torch.ops.aten.from_file.default"),
            "no exported graph may use",
        ),
        (lambda d: node(d, "call_function").update(target="builtins.eval"), "no exported graph may use"),
        (lambda d: node(d, "call_method").update(target="__reduce_ex__"), "call_method' of '__reduce_ex__'"),
        (lambda d: node(d, "call_method").update(target="apply_"), "no exported graph may use"),
        (lambda d: node(d, "call_method").update(target="add(x); import os; x.add"), "no exported graph may use"),
        (lambda d: node(d, "call_method").update(args=["text", 1]), "no exported graph may use"),
        (
            lambda d: node(d, "placeholder").update(target="x=__import__('os').system('true')"),
            "stands where a name should",
        ),
        (lambda d: node(d, "placeholder").update(name="x; y"), "stands where a name should"),
        (lambda d: node(d, "placeholder").update(target="import"), "stands where a name should"),
        (lambda d: node(d, "call_method").update(kwargs={"alpha=1); f(": 1}), "stands where a name should"),
        (lambda d: node(d, "get_attr").update(target="__class__"), "no exported graph may use"),
        (lambda d: node(d, "get_attr").update(op="call_module"), "no exported graph may use"),
        (lambda d: node(d, "call_method").update(args=[{"module": "os"}]), "unknown kind 'module'"),
        (lambda d: node(d, "call_method").update(args=[{"struct": ["pytree_register_structseq", []]}]), "unknown kind"),
        (lambda d: d["attributes"][0].update(shape=[1000]), "does not fit into its memory"),
        (lambda d: d["attributes"][0].update(offset=-1), "-1 stands where an offset should"),
        (lambda d: d["attributes"][0].update(strides=[-1]), "-1 stands where a stride should"),
        (lambda d: d["attributes"][0].update(storage=7), "damaged"),
        (lambda d: d["attributes"][0].update(device="cuda:77"), "belongs on cuda:77, which is not there"),
        (lambda d: d["attributes"][0].update(dtype="sin"), "unknown kind 'dtype'"),
        (lambda d: d.update(format=99), "of format 99, and this version of Burnish reads format 2"),
        (lambda d: d.pop("graph"), "damaged"),
    ],
)
def test_file_that_was_tampered_with_is_refused(change, said, path):
    weight = torch.ones(3)
    reloaded(lambda x: torch.sin(x.add(1)) + weight, (X,), path)
    rewritten(path, change)
    with pytest.raises(UserError, match=said) as caught:
        burnish.load(path)
    assert str(path) in str(caught.value)


def test_other_files_are_refused(path):
    path.write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(UserError, match="is not a file that burnish.save wrote"):
        burnish.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", b"\x80\x04K\x01.")
    with pytest.raises(UserError, match="not one that burnish.save wrote"):
        burnish.load(path)
    with pytest.raises(FileNotFoundError):
        burnish.load(path.with_name("nowhere"))


def test_truncated_file_is_refused(path):
    reloaded(nn.Linear(3, 3), (X,), path)
    content = path.read_bytes()
    for length in (len(content) // 3, len(content) - 10):
        path.write_bytes(content[:length])
        with pytest.raises(UserError):
            burnish.load(path)


def test_every_name_in_the_table_is_read_back_as_the_function_it_names():
    assert len(allowed_operators.operations()) > 500
    for name, function in allowed_operators.operations().items():
        assert allowed_operators.operation(allowed_operators.name_of(function)) == function, name
    for danger in ("torch.load", "torch.save", "torch.from_file", "torch.Tensor.apply_", "torch.set_num_threads"):
        assert danger not in allowed_operators.operations()
    assert not {"item", "numpy", "apply_", "map_", "__reduce_ex__", "set_", "resize_"} & allowed_operators.methods()
    assert allowed_operators.methods() >= allowed_operators.COMMON
