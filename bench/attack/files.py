"""Attack `burnish.load`: files that are almost sound, and no code may run.

    python -m bench.attack.files                            1,000,000 inputs, guided by coverage where atheris is there
    python -m bench.attack.files --inputs 20000 --seed 7    the same inputs again, with --plain
    pip install 'burnish[attack]'                           atheris

Sound files are changed in one to four places: a value, a name, a number or an entry of the archive becomes another one,
source code among them, or bytes of the file are turned. Each is loaded with `trust=False`, and has to hold:

* while it is loaded, Python reports no event but reading the file and mapping it (`sys.addaudithook`): no exec, no
  compile, no import, no process, no file that is written;
* it loads, or is refused with a `UserError`;
* the process takes no more memory than `MOST_MEMORY`;
* where it loads, the Python source that torch.fx prints of its graph holds nothing but what the graph holds.

What does not hold ends the run with status 1; the file is kept (`--keep`), and the seed and its number are printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import resource
import struct
import sys
import tempfile
import time
import traceback
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import burnish
from burnish import settings
from burnish.errors import UserError

try:
    import atheris
except ImportError:
    atheris = None

READERS = (
    *("file_format", "graph_to_json", "values_to_json", "nesting_to_json", "sizes_to_json", "tensor_storage"),
    "allowed_operators",
)
"""What coverage is counted of."""

if atheris is not None and "--plain" not in sys.argv:
    with atheris.instrument_imports(include=[f"burnish.export.{name}" for name in READERS]):
        import burnish.export.file_format

MOST_MEMORY = 6 << 30
"""Bytes of the process, torch among them."""

QUIET = frozenset(("open", "mmap.__new__", "object.__getattr__", "object.__setattr__", "sys._getframe", "builtins.id"))
"""What Python reports while a sound file is read. An `open` counts only if it is for reading."""

SOURCE = '__import__("os").system("true")'
WORDS = (
    SOURCE,
    f'x", exec({SOURCE!r}), getattr(self, "y',
    f"x; {SOURCE}",
    f"\n    {SOURCE}\n",
    f"x={SOURCE}, y",
    "__class__",
    "__import__",
    "torch.ops.aten.from_file.default",
    "torch.ops.prim.Print.default",
    "torch.ops.aten.add.Tensor",
    "torch.ops.aten.set_.source_Storage",
    "torch.load",
    "torch.ops.aten.sym_size.int",
    "torch.ops.higher_order.cond",
    "operator.mul",
    "operator.pow",
    "collections.namedtuple",
    "bench.attack.files.Pair",
    "b",
    "torch.hub.load",
    "os.system",
    "builtins.eval",
    "numpy",
    "__reduce_ex__",
    "apply_",
    "getattr",
    "self",
    "forward",
    "_parameters",
    "x.y.z",
    "..",
    "",
    "\0",
    "\x1b[2J",
    "é",
    "cpu",
    "cuda:0",
    "meta",
    "hpu",
    "float32",
    "int8",
    "quint8",
    "strided",
    "a" * 20_000,
    "node",
    "tuple",
    "call_module",
    "call_function",
    "call_method",
    "get_attr",
    "placeholder",
    "output",
    "lambda: 0",
    "{}",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    1 << 31,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    1 << 64,
    10**400,
    True,
    False,
    None,
    0.5,
    -0.0,
    1e308,
)
KINDS = (
    "node float complex bytes list tuple size slice dict ordered ellipsis device dtype layout memory_format struct "
    "class symbol add mod pow eq truth is_int"
)


# ---- sound files


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3)])
        self.register_buffer("scale", torch.ones(3).expand(2, 3))

    def forward(self, x: torch.Tensor, *, power: int = 2) -> Any:
        with torch.no_grad():
            y = self.layers[0](x).clamp(min=0.5)
        found = {"y": torch.sin(y)[1:, None, [0, 2]] ** power, "n": (3, None, 1.5)}
        return found, torch.topk(y, 2).values * self.scale[0, 0]


def every_kind(x: torch.Tensor) -> Any:
    y = x.new_zeros((2, 3), dtype=torch.float64).to(torch.float32, memory_format=torch.contiguous_format)
    z = torch.ops.aten.add.Tensor(y, x) * (1 + 2j) + torch.zeros(3, device=torch.device("cpu")) * float("inf")
    return z.T[..., 0], torch.empty(0, layout=torch.strided), torch.float16


@dataclasses.dataclass
class Pair:
    """A class that is registered, so that a file may name it."""

    left: torch.Tensor
    right: Any


def symbolic(x: torch.Tensor, pair: Pair) -> Any:
    """Symbolic sizes with conditions, a branch, and a registered class."""
    if x.is_contiguous() and x.shape[0] % 2 == 0 and x.shape[0] != pair.left.shape[0]:
        x = x.reshape(x.shape[0] // 2, -1)
    chosen = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    return Pair(chosen, pair.right + x.shape[0]), x.shape[0] * 2


def sound_files(folder: Path) -> list[dict[str, bytes]]:
    """By their entries."""
    x, found = torch.ones(2, 3), []
    for number, (fn, kwargs) in enumerate(((Model().eval(), {"power": 3}), (every_kind, {}), (lambda x: x + 1, {}))):
        path = folder / f"{number}.burnish"
        burnish.export(fn, (x,), kwargs).save(path)
        with zipfile.ZipFile(path) as archive:
            found.append({item.filename: archive.read(item) for item in archive.infolist()})
    torch.export.register_dataclass(Pair)
    auto = torch.export.Dim.AUTO
    sizes = ({0: 2 * torch.export.Dim("b", max=64)}, [{0: auto}, None])
    path = folder / "open.burnish"
    burnish.export(symbolic, (torch.ones(6, 3), Pair(torch.ones(4), torch.ones(3))), dynamic_shapes=sizes).save(path)
    with zipfile.ZipFile(path) as archive:
        found.append({item.filename: archive.read(item) for item in archive.infolist()})
    with torch.no_grad(), settings.patch(cache=True, cache_dir=folder / "cache"):
        burnish.save(lambda x: x.sin(), folder / "compiled.burnish", (x,))
    with zipfile.ZipFile(folder / "compiled.burnish") as archive:
        entries = {item.filename: archive.read(item) for item in archive.infolist()}
    # Of its machine code a piece will do: it is left aside.
    found.append({name: part[:2000] if name.startswith("program/") else part for name, part in entries.items()})
    return found


# ---- changes


class Choices:
    """Decisions read from bytes, which a fuzzer guided by coverage changes; zeros where they end."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def below(self, count: int) -> int:
        piece = self.data[self.at : self.at + 2]
        self.at += 2
        return int.from_bytes(piece, "little") % count if count else 0

    def of(self, options: Any) -> Any:
        return options[self.below(len(options))]


def changed(choices: Choices, sound: list[dict[str, bytes]]) -> bytes:
    """A file that is almost sound."""
    entries = dict(choices.of(sound))
    description = json.loads(entries["burnish.json"])
    for _ in range(1 + choices.below(4)):
        change_value(choices, description)
    entries["burnish.json"] = json.dumps(description).encode()
    kind = choices.below(16)
    if kind == 0:
        change_text(choices, entries)
    pairs = list(entries.items())
    if kind == 1:
        change_entries(choices, pairs)
    content = archive_of(pairs)
    return change_bytes(choices, content) if kind in (2, 3) else content


def change_value(choices: Choices, root: Any) -> None:
    """Somewhere below, by a walk that a few choices steer."""
    at, places = root, [root]
    for _ in range(12):
        inner = list(at.values()) if type(at) is dict else at
        inner = [part for part in inner if type(part) in (dict, list) and part]
        if not inner or at is not root and choices.below(4) == 0:
            break
        at = choices.of(inner)
        places.append(at)
    if not at:
        return
    key = choices.of(list(at)) if type(at) is dict else choices.below(len(at))
    match choices.below(9):
        case 0 | 1:
            at[key] = choices.of(WORDS)
        case 2 | 3:
            at[key] = choices.of(NUMBERS)
        case 4:
            at[key] = {choices.of(KINDS.split()): choices.of((at[key], [at[key]], [], choices.of(WORDS), [1, 2, 3]))}
        case 5:
            del at[key]
        case 6:
            at[key] = json.loads(json.dumps(choices.of(places)))
        case 7 if type(at) is dict:
            at[choices.of(WORDS)] = at.pop(key)
        case 7:
            at.append(at[key])
        case 8:
            for _ in range(choices.of((3, 40, 400))):
                at[key] = {choices.of(("list", "tuple", "slice")): [at[key]]}


def change_text(choices: Choices, entries: dict[str, bytes]) -> None:
    """The description as text, which may then be no JSON any more."""
    entries["burnish.json"] = change_bytes(choices, entries["burnish.json"])


def change_entries(choices: Choices, pairs: list[tuple[str, bytes]]) -> None:
    at = choices.below(len(pairs))
    name, content = pairs[at]
    match choices.below(4):
        case 0:
            pairs[at] = choices.of(("../x", "/etc/passwd", "storage/9", "data.pkl", "program/x", *WORDS[:3])), content
        case 1:
            pairs.append((name, content))
        case 2:
            del pairs[at]
        case 3:
            pairs[at] = name, change_bytes(choices, content)


def change_bytes(choices: Choices, content: bytes) -> bytes:
    found = bytearray(content)
    for _ in range(1 + choices.below(4)):
        if not found:
            break
        # Most of what steers a reader stands at the end of an archive.
        at = choices.below(len(found)) if choices.below(2) else max(0, len(found) - 1 - choices.below(400))
        match choices.below(4):
            case 0:
                found[at] = choices.below(256)
            case 1:
                found[at : at + 4] = choices.of((b"\xff\xff\xff\xff", bytes(4), b"\1\0\0\0", b"PK\1\2"))
            case 2:
                del found[at : at + 1 + choices.below(100)]
            case 3:
                del found[at:]
    return bytes(found)


def archive_of(pairs: list[tuple[str, bytes]]) -> bytes:
    """A zip archive, stored. Python's writer takes longer than all the rest."""
    parts, directory, at = [], [], 0
    for name, content in pairs:
        encoded = name.encode("utf-8", "replace")
        size = len(content)
        facts = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 33, zlib.crc32(content), size, size, len(encoded), 0)
        parts += (b"PK\3\4", facts, encoded, content)
        directory.append(b"PK\1\2" + struct.pack("<H", 20) + facts + struct.pack("<HHHII", 0, 0, 0, 0, at) + encoded)
        at += 4 + len(facts) + len(encoded) + len(content)
    index, count = b"".join(directory), len(pairs)
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, count, count, len(index), at, 0)
    return b"".join((*parts, index, end))


# ---- what has to hold


class Broken(Exception):
    """Something does not hold."""


class Watch:
    """Which events Python reports while a file is read."""

    def __init__(self) -> None:
        self.is_on, self.seen = False, []
        sys.addaudithook(self.notice)

    def notice(self, event: str, args: tuple) -> None:
        if self.is_on and (event not in QUIET or event == "open" and set(str(args[1])) & set("wax+")):
            self.seen.append((event, str(args)[:200]))


class Attack:
    def __init__(self, folder: Path, keep: Path, inputs: int, seed: int):
        self.sound = sound_files(folder)
        self.path, self.keep, self.inputs, self.seed = folder / "attack.burnish", keep, inputs, seed
        self.watch = Watch()
        self.count = 0
        self.outcomes: Counter[str] = Counter()
        self.began = time.perf_counter()
        for entries in self.sound:  # what reading needs is imported
            self.path.write_bytes(archive_of(list(entries.items())))
            loaded = burnish.load(self.path, trust=False)
            str(loaded), loaded.graph_module.graph.python_code("self")
        self.began = time.perf_counter()

    def one(self, data: bytes) -> None:
        content = changed(Choices(data), self.sound)
        self.path.write_bytes(content)
        try:
            self.outcomes[self.loaded()] += 1
        except Broken as error:
            kept = self.keep / f"broken-{self.seed}-{self.count}.burnish"
            kept.write_bytes(content)
            print(f"seed {self.seed}, input {self.count}: {error}\n  the file is {kept}", flush=True)
            os._exit(1)
        self.count += 1
        if self.count % 20_000 == 0 or self.count == self.inputs:
            self.report()

    def loaded(self) -> str:
        """What became of the file."""
        found, failure = None, None
        self.watch.is_on = True
        try:
            found = burnish.load(self.path, trust=False)
        except UserError as error:
            failure = error
        except BaseException as error:
            self.watch.is_on = False
            raise Broken(f"{type(error).__name__} in place of a UserError\n{traceback.format_exc(limit=-4)}") from error
        finally:
            self.watch.is_on = False
        if self.watch.seen:
            raise Broken(f"while it was loaded, Python reported {self.watch.seen[:3]}")
        if self.count % 64 == 0 and peak_memory() > MOST_MEMORY:
            raise Broken(f"the process takes {peak_memory() / 1e9:.1f} GB")
        if found is None:
            return "refused as damaged" if "is damaged" in str(failure) else "refused with the part that is wrong"
        try:
            found.graph_module.graph.python_code("self")
        except BaseException as error:
            raise Broken(f"its graph was taken, and its source is refused: {error}") from error
        return "loaded"

    def report(self) -> None:
        seconds = time.perf_counter() - self.began
        said = ", ".join(f"{count:,} {what}" for what, count in self.outcomes.most_common())
        print(
            f"{self.count:,} inputs in {seconds:.0f} s ({seconds / self.count * 1e6:.0f} µs each), no code run, no "
            f"crash: {said}",
            flush=True,
        )


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def plainly(attack: Attack) -> None:
    numbers = random.Random(attack.seed)
    while attack.count < attack.inputs:
        attack.one(numbers.randbytes(64))


def guided(attack: Attack) -> None:
    """By coverage: inputs that reach something new are changed further."""

    def one(data: bytes) -> None:
        if attack.count < attack.inputs:
            attack.one(data)

    options = [f"-seed={attack.seed}", f"-runs={attack.inputs}", "-max_len=96", "-len_control=0", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.attack.files", description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=None, help="of the inputs; one of its own where left out")
    parser.add_argument("--plain", action="store_true", help="at random, though atheris is there")
    parser.add_argument("--keep", type=Path, default=Path("."), help="folder for a file that breaks a rule")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 1 << 31)
    run: Callable[[Attack], None] = plainly if atheris is None or options.plain else guided
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        print(f"seed {seed}, {'at random' if run is plainly else 'guided by coverage (atheris)'}", flush=True)
        torch.set_num_threads(1)
        run(Attack(Path(folder), options.keep, options.inputs, seed))


if __name__ == "__main__":
    main()
