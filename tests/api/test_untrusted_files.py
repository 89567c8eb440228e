"""Untrusted files: loading runs no code, allocates no claimed memory, and names what is wrong."""

import json
import struct
import sys
import zipfile
import zlib

import pytest
import torch
from torch import nn

import burnish
from burnish.errors import UserError
from burnish.export import allowed_operators, check_generated_code, values_to_json
from burnish.ops.operator_record import RECORDS

X = torch.linspace(-1, 1, 12).reshape(4, 3)
RUNS_CODE = ("exec", "compile", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "import", "ctypes.dlopen")

seen = None
"""Python's audit events about code, while a test records them."""


def notice(event, args):
    if seen is not None and (event in RUNS_CODE or event == "open" and set(str(args[1])) & set("wax+")):
        seen.append((event, args))


sys.addaudithook(notice)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "strange.burnish"


@pytest.fixture
def ran():
    """The untrusted code that ran, if it has written its mark."""
    found = []
    sys.modules["burnish_test_ran"] = type(sys)("burnish_test_ran")
    sys.modules["burnish_test_ran"].found = found
    yield found
    del sys.modules["burnish_test_ran"]


EVIL = '__import__("burnish_test_ran").found.append(1)'


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(3, 3)])
        self.named = nn.ModuleDict({"with-hyphen": nn.Linear(3, 3)})

    def forward(self, x):
        y = self.named["with-hyphen"](self.layers[0](x)).clamp(min=0.5)
        return {"y": torch.sin(y)[1:, [0, 2]], "n": 3}


def saved(path, fn=None, args=(X,)):
    burnish.export(Model().eval() if fn is None else fn, args).save(path)


def entries_of(path):
    with zipfile.ZipFile(path) as archive:
        return {item.filename: archive.read(item) for item in archive.infolist()}


def rewritten(path, change):
    entries = entries_of(path)
    description = json.loads(entries["burnish.json"])
    change(description)
    entries["burnish.json"] = json.dumps(description).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def node(description, op):
    return next(entry for entry in description["graph"] if entry["op"] == op)


def renamed(description, name):
    """An attribute and the node that reads it, under another name."""
    description["attributes"][0]["name"] = node(description, "get_attr")["target"] = name


def refused(path, said):
    with pytest.raises(UserError, match=said) as caught:
        burnish.load(path, trust=False)
    text = str(caught.value)
    assert str(path) in text and text.count("cannot be loaded") <= 1
    return text


# ---- names

NAMES = [
    f'weight", {EVIL}), getattr(self, "bias',
    f"weight; {EVIL}",
    f"weight\n    {EVIL}\n    x",
    "weight#",
    "a'b",
    "a\\b",
    f"layers.0.weight[{EVIL}]",
    "__class__.x",
    "layers.__dict__",
    "_parameters.x",
    "forward",
    "layers.0.forward",
    "",
    "layers..weight",
    "wéight",
    "a" * 300,
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_the_name_of_a_tensor_is_not_python_source(name, path, ran):
    saved(path)
    rewritten(path, lambda d: renamed(d, name))
    said = refused(path, "the tensor .*number 0 of its attributes.*(stands where|is a name that modules use)")
    assert "Nothing of it has run" in said and not ran


@pytest.mark.parametrize(
    "change",
    [
        lambda d, evil: node(d, "placeholder").update(name=evil),
        lambda d, evil: node(d, "placeholder").update(target=evil),
        lambda d, evil: node(d, "placeholder").update(target=f"x={evil}"),
        lambda d, evil: node(d, "call_function").update(name=evil),
        lambda d, evil: node(d, "call_function").update(target=evil),
        lambda d, evil: node(d, "call_method").update(target=f"clamp({evil}).clamp"),
        lambda d, evil: node(d, "call_method").update(kwargs={f"min={evil}, max": 1}),
        lambda d, evil: node(d, "output").update(target=evil),
        lambda d, evil: node(d, "output").update(type=evil),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {"float": evil}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {"dtype": evil}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {"memory_format": evil}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {"device": evil}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {"device": 0}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {"struct": [evil, []]}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {"struct": ["max", [1]]}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {"size": [evil]}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {"slice": [1]}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {evil: 1}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {"dict": [["a", 1], ["a", 2]]}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": {"dict": [[{"list": []}, 1]]}}),
        lambda d, evil: node(d, "call_method").update(kwargs={"min": 1.5}),
        lambda d, evil: d.update(arguments={evil: []}),
        lambda d, evil: d["inputs"][0].update(device=evil),
        lambda d, evil: d["inputs"][0].update(shape=[evil]),
        lambda d, evil: d["inputs"][0].update(node=7),
        lambda d, evil: d["outputs"][0].update(node=7),
        lambda d, evil: d["outputs"].append({"value": 1}),
        lambda d, evil: d.update(writes_inputs=evil),
        lambda d, evil: d.update(guards=[1]),
        lambda d, evil: d.update(name=1),
        lambda d, evil: d.update(format=True),
        lambda d, evil: d["graph"].append(dict(node(d, "placeholder"))),
        lambda d, evil: d["graph"].append(dict(node(d, "output"), name="another")),
        lambda d, evil: d["graph"].pop(),
        lambda d, evil: d["attributes"].append(dict(d["attributes"][0])),
        lambda d, evil: d["attributes"].append(dict(d["attributes"][0], name="layers.0.weight.x")),
        lambda d, evil: node(d, "placeholder").update(target="self"),
        lambda d, evil: node(d, "call_function").update(target="operator.getitem", args=[1]),
        lambda d, evil: node(d, "call_function").update(target="operator.getitem", kwargs={"x": 1}),
    ],
)
def test_fields_of_the_wrong_kind_are_refused(change, path, ran):
    saved(path)
    rewritten(path, lambda d: change(d, EVIL))
    refused(path, "cannot be loaded|damaged")
    assert not ran


def test_strings_stay_strings(path, ran):
    """A constant may hold anything: it is printed as one."""
    texts = [
        f'", {EVIL}, "',
        f"', {EVIL}, '",
        f"\\', {EVIL}, '",
        f'""", {EVIL}, """',
        f"\n{EVIL}\n",
        "\0",
        "\u2028",
        "{}%s",
    ]
    saved(path, lambda x, s: (x + 1, s), (X, "text"))
    for text in texts:

        def change(d, text=text):
            d["inputs"][1]["value"] = d["outputs"][1]["value"] = text
            node(d, "call_method" if any(n["op"] == "call_method" for n in d["graph"]) else "call_function")[
                "kwargs"
            ] = {"alpha": text}

        rewritten(path, change)
        loaded = burnish.load(path, trust=False)
        assert loaded.outputs[1].value == text
        with pytest.raises((TypeError, ValueError)):  # torch's own: alpha is a number
            loaded(X, text)
    assert not ran


def test_printed_text_contains_no_terminal_control_codes(path):
    saved(path)
    rewritten(path, lambda d: (d.update(name="a\x1b[2Jb"), d.update(guards=["\x1b]0;title\x07"])))
    assert "\x1b" not in str(burnish.load(path, trust=False))


# ---- operators


@pytest.mark.parametrize(
    "name",
    [
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.save.default",
        "torch.ops.prim.Print.default",
        "torch.ops.aten.item.default",
        "torch.ops.aten.set_.source_Storage",
        "torch.ops.aten.record_stream.default",
        "torch.ops.aten._local_scalar_dense.default",
        "torch.ops.aten._sparse_coo_tensor_unsafe.default",
        "torch.ops.aten.add.str",
        "torch.ops.aten.add.nothing",
        "torch.ops.aten.__class__.x",
        "torch.ops.__class__.x.y",
        "torch.ops.load_library",
        "torch.ops.aten.add.Tensor; x",
        "torch.ops.aten.add",
        "torch.from_file",
        "torch.autocast",
        "torch.save",
        "torch.Tensor.numpy",
        "operator.setitem",
        7,
        None,
    ],
)
def test_an_operator_that_does_more_than_compute_is_refused(name, path):
    saved(path)
    rewritten(path, lambda d: node(d, "call_function").update(target=name))
    assert "number" in refused(path, "it asks for the operation")


def test_operators_of_other_libraries_are_only_called_where_the_file_is_trusted(path):
    calls = []

    @torch.library.custom_op("strange_files::note", mutates_args=())
    def note(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    note.register_fake(torch.empty_like)
    saved(path, lambda x: torch.ops.strange_files.note.default(x) + 1)
    calls.clear()
    for trust in (None, False):
        with pytest.raises(UserError, match="of the library 'strange_files'.*trust=True"):
            burnish.load(path, trust=trust)
    assert not calls
    assert torch.equal(burnish.load(path, trust=True)(X), X * 2 + 1) and calls


def test_a_file_of_this_users_may_call_operators_of_other_libraries(path, tmp_path):
    @torch.library.custom_op("strange_files::halved", mutates_args=())
    def halved(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    halved.register_fake(torch.empty_like)
    with burnish.settings.patch(cache=True, cache_dir=tmp_path / "cache"):
        saved(path, lambda x: torch.ops.strange_files.halved.default(x))
        assert "signature" in entries_of(path)
        assert torch.equal(burnish.load(path)(X), X / 2)
    with (
        burnish.settings.patch(cache=True, cache_dir=tmp_path / "another user"),
        pytest.raises(UserError, match="trust=True"),
    ):
        burnish.load(path)


def test_pure_operators_take_and_return_tensors():
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    pure = []
    for name in names:
        packet, _, overload = name.removeprefix("aten::").partition(".")
        found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if isinstance(found, torch._ops.OpOverload) and allowed_operators.why_not_pure(found) is None:
            pure.append(found)
    assert len(pure) > 1500
    for found in pure:
        words = {a.name for a in found._schema.arguments if "str" in str(a.type)}
        assert words <= allowed_operators.WORDS and "filename" not in words, found
        assert not found._opname.startswith("_") or found._opname.startswith("__") or str(found) in RECORDS, found


# ---- sizes

HUGE = 1 << 40


@pytest.mark.parametrize("device", ["hpu", "ve:0", "privateuseone"])
def test_the_name_of_a_device_imports_nothing(device, path):
    global seen
    saved(path)
    rewritten(path, lambda d: d["attributes"][0].update(device=device))
    seen = []
    try:
        refused(path, "number 0 of its attributes: it belongs on .*, which is not there")
        assert not seen
    finally:
        seen = None


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [HUGE, HUGE], "strides": [HUGE, 1]},
        {"shape": [HUGE] * 5, "strides": [0] * 5},
        {"shape": [0], "strides": [1], "offset": HUGE},
        {"shape": [1] * 65, "strides": [1] * 65},
        {"shape": [3], "strides": []},
        {"shape": [1 << 63], "strides": [0]},
        {"shape": [True], "strides": [1]},
        {"dtype": "int64"},
        {"dtype": "quint8"},
        {"device": "meta"},
        {"device": "hpu"},
        {"storage": 1 << 40},
        {"parameter": 1},
    ],
)
def test_a_size_that_a_file_claims_allocates_nothing(change, path):
    saved(path)
    rewritten(path, lambda d: d["attributes"][0].update(change))
    refused(path, "cannot be loaded: the tensor 'layers.0.weight', number 0")


def test_an_archive_that_unpacks_to_more_than_it_holds_is_refused(path):
    saved(path)
    entries = entries_of(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content + bytes(1 << 20) if name == "burnish.json" else content)
    refused(path, "its entry 'burnish.json' is not as Exported.save writes it")


def test_overlapping_entries_are_refused(path):
    """A directory that names one piece of memory nine times: each would be copied where it cannot be mapped."""
    saved(path, nn.Linear(64, 64), (torch.ones(1, 64),))
    content = path.read_bytes()
    end = content.rindex(b"PK\5\6")
    size, start = struct.unpack("<II", content[end + 12 : end + 20])
    directory = content[start : start + size]
    one = next(b"PK\1\2" + part for part in directory.split(b"PK\1\2") if b"storage/0" in part)
    more = b"".join(one.replace(b"storage/0", b"storage/%d" % n) for n in range(2, 10))
    total = directory.count(b"PK\1\2") + 8
    path.write_bytes(
        content[:start]
        + directory
        + more
        + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, total, total, size + len(more), start, 0)
    )
    with zipfile.ZipFile(path) as archive:
        assert "storage/9" in archive.namelist()
    refused(path, "is not as Exported.save writes it")


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "storage/../burnish.json", "program/x", "data.pkl", "storage/x"]
)
def test_an_entry_of_another_name_is_refused(name, path):
    saved(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"x")
    refused(path, "is none that Exported.save writes")


def test_two_entries_of_one_name_are_refused(path):
    saved(path)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("burnish.json", b"{}")
    refused(path, "two entries 'burnish.json'")


@pytest.mark.parametrize("depth", [40, 300, 100_000])
def test_containers_that_nest_too_deep_are_refused(depth, path):
    saved(path)
    entries = entries_of(path)
    deep = '{"list": [' * depth + "]}" * depth
    entries["burnish.json"] = entries["burnish.json"].replace(b'"n"', deep.encode(), 1)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    refused(path, "nested more than|is damaged.*RecursionError")
    assert values_to_json.DEEPEST < 90, "Python's parser takes that many"


# ---- what runs


def test_reading_a_file_runs_no_code(path):
    global seen
    saved(path)
    burnish.load(path, trust=False)  # what reading needs is imported
    seen = []
    try:
        loaded = burnish.load(path, trust=False)
        happened, seen = seen, None
        assert not happened
    finally:
        seen = None
    torch.testing.assert_close(loaded(X)["y"], Model().eval()(X)["y"])


def test_the_printed_source_of_a_graph_is_checked_before_it_runs(path, ran, monkeypatch):
    """The second line of defence: if a name passes the first check, its printed form does not run."""
    saved(path)
    loaded = burnish.load(path, trust=False)
    assert isinstance(loaded.graph_module.graph._codegen, check_generated_code.CheckedCode)
    for name in (f'weight", {EVIL}), getattr(self, "bias', f"x{EVIL}"):
        graph = torch.fx.Graph()
        x, weight = graph.placeholder("x"), graph.get_attr("weight")
        graph.output((graph.call_function(torch.add, (x, weight)),))
        graph.set_codegen(check_generated_code.CheckedCode())
        module = torch.fx.GraphModule({"weight": X}, graph)
        weight.target = name
        with pytest.raises(UserError, match="which the graph does not"):
            module.recompile()
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.add, (x, x), {f"alpha={EVIL}, out": None}),))
    graph.set_codegen(check_generated_code.CheckedCode())
    with pytest.raises(UserError, match="holds the call .*burnish_test_ran"):
        torch.fx.GraphModule({}, graph)
    assert not ran


def printed(value):
    graph = torch.fx.Graph()
    graph.output(value)
    return graph.python_code("self").src


INFINITE = complex(0.0, float("inf"))
if "infj" in printed(INFINITE):  # a name that is defined nowhere, of torch.fx in 2.11
    INFINITE = 1j


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.new_zeros((2,), dtype=torch.float16), x.to(torch.float64, memory_format=torch.contiguous_format)),
        lambda x: x[1:, None, ..., -1] * (1 + 2j) + INFINITE - float("nan"),
        lambda x: torch.topk(x, 2).values + torch.zeros(2, device=torch.device("cpu")).expand(4, 2).T.mT,
        lambda x: torch.where(x > 0, -1.5, x).sum(dim=(0, 1), keepdim=True) * torch.ops.aten.add.Tensor(x, x)[:1].T,
    ],
)
def test_source_of_a_sound_graph_passes_the_check(fn, path):
    saved(path, fn)
    torch.testing.assert_close(burnish.load(path, trust=False)(X), fn(X), equal_nan=True)


@pytest.mark.parametrize("trust, left_on", [(False, True), (True, False)])
def test_a_strangers_graph_does_not_leave_torchs_switches_set(trust, left_on, path):
    def fn(x):
        with torch.no_grad():
            y = x * 2
        return y + x

    saved(path, fn)

    def change(description):
        switches = [n for n in description["graph"] if n.get("target") == "torch._C._set_grad_enabled"]
        switches[-1]["args"] = [False]

    rewritten(path, change)
    loaded = burnish.load(path, trust=trust)
    try:
        torch.testing.assert_close(loaded(X), fn(X))
        assert torch.is_grad_enabled() == left_on
    finally:
        torch.set_grad_enabled(True)


# ---- whatever else


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        b"PK\5\6" + bytes(18),
        b"PK\3\4" + bytes(100),
        b"\x80\x04K\x01.",
        bytes(1000),
        b"PK\5\6" + b"\xff" * 18,
    ],
    ids=["empty", "two letters", "no entries", "half a header", "pickle", "zeros", "an end that claims much"],
)
def test_non_archives_are_refused(content, path):
    path.write_bytes(content)
    refused(path, "is not a file|not one that|is damaged")


@pytest.mark.parametrize(
    "text",
    [
        "{}".encode("utf-16-be"),
        b"",
        b"[]",
        b"null",
        b"1",
        b'{"format": 1}',
        b'{"format": 1, "graph": {}}',
        b"\xff\xfe",
        b'{"format": ' + b"9" * 5000 + b"}",
        b'{"format": NaN}',
        b'{"format": 1e999}',
    ],
)
def test_a_description_of_something_else_is_refused(text, path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("burnish.json", text)
    refused(path, "cannot be loaded|is damaged")


@pytest.mark.parametrize(
    ("at", "value"),
    [(6, 101), (8, 0xFFFF), (10, 0xFFFF), (28, 0xFFFF), (30, 4), (42, 0xFFFF)],
    ids=["version", "flags", "packing", "length of the name", "length of the extra field", "offset"],
)
def test_a_damaged_directory_of_the_archive_is_refused(path, at, value):
    saved(path)
    content = bytearray(path.read_bytes())
    struct.pack_into("<H", content, content.index(b"PK\1\2") + at, value)
    path.write_bytes(content)
    refused(path, "is damaged|cannot be loaded")


def test_memory_that_is_not_where_the_archive_says_is_refused(path):
    saved(path)
    content = bytearray(path.read_bytes())
    at = content.index(b"storage/0") - 30
    content[at : at + 4] = b"PK\7\7"
    path.write_bytes(content)
    refused(path, "is not where the archive says")


def test_a_checksum_of_the_description_is_checked(path):
    saved(path)
    content = path.read_bytes()
    wrong = content.replace(b"torch.sin", b"torch.cos", 1)
    assert zlib.crc32(content) != zlib.crc32(wrong)
    path.write_bytes(wrong)
    refused(path, "is not a file that burnish.save wrote: Bad CRC-32")


# ---- symbolic sizes


def doubled(x, y):
    return x.repeat(x.shape[0] * 2, 1) if x.shape[0] != y.shape[0] else x


DEEP = {"symbol": "b"}
for _ in range(200):
    DEEP = {"neg": [DEEP]}


def change_size(value):
    return lambda d: d["inputs"][0]["shape"].__setitem__(0, {"size": value})


def change_term(value):
    return lambda d: d["conditions"][0].update(term=value)


def change_node(**values):
    return lambda d: next(node for node in d["graph"] if node["target"] == "operator.mul").update(values)


@pytest.mark.parametrize(
    "change, said",
    [
        (change_size([EVIL, 1, 0]), "speaks of the size"),
        (change_size(["b", 0, 0]), "the factor 0"),
        (change_size(["b", 1, 0.5]), "what is added to a size"),
        (change_term(EVIL), "a formula of sizes should"),
        (change_term({"eval": [1]}), "unknown operation 'eval'"),
        (change_term({"add": [1]}), "a list of 2"),
        (change_term(DEEP), "nested more than 100 deep"),
        (change_term({"symbol": "c"}), "does not declare"),
        (lambda d: d["sizes"].append(dict(d["sizes"][0], name="c")), "no input has the size 'c'"),
        (lambda d: d["sizes"].append(d["sizes"][0]), "two sizes of one name"),
        (lambda d: d["sizes"][0].update(most=3), "may only be from 0 to 3"),
        (change_node(args=[{"node": "sym_size_int"}]), "other things than 2 numbers"),
        (change_node(args=[{"node": "sym_size_int"}, "x"]), "other things than 2 numbers"),
        (change_node(target="operator.pow", args=[{"node": "sym_size_int"}, 1 << 40]), "not a small number"),
        (lambda d: d.update(result={"class": ["os.system", None, []]}), "not a class that this program registered"),
        (lambda d: d.update(result={"class": ["collections.deque", None, []]}), "not a class that this program"),
        (lambda d: d.update(graphs={"forward": d["graph"]}), "a name that modules use themselves"),
    ],
)
def test_symbolic_sizes_of_a_stranger_are_data(change, said, path):
    shapes = {"x": {0: torch.export.Dim("b")}, "y": {0: torch.export.Dim("d")}}
    burnish.export(doubled, (X, X[1:]), dynamic_shapes=shapes).save(path)
    assert torch.equal(burnish.load(path, trust=False)(X, X[1:]), doubled(X, X[1:]))
    rewritten(path, change)
    with pytest.raises(UserError, match=said):
        burnish.load(path, trust=False)
