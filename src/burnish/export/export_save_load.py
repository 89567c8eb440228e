"""``export``, ``save`` and ``load``: the public functions. Their first call imports what does the work.

burnish.save(model, "model.burnish", (x,))
burnish.load("model.burnish")(x)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..foundation.torch_private import why_not_usable
from ..settings import current

if TYPE_CHECKING:
    from .exported_program import Exported


def export(
    fn: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None
) -> Exported:
    """One graph of ``fn(*args, **kwargs)``, or an error that says why there is none.

    fn: what ``compile`` takes; of something compiled, its original is exported.
    args, kwargs: tensors, numbers, strings, ``None`` and dtypes, in lists, tuples and dictionaries. Tensors are copied
        first, so that the run does not change them. Other tensors and Python objects that the function reaches are
        restored afterwards, and so is torch's random state. This needs memory for one more copy of the tensors.
    dynamic_shapes: which sizes vary, as for ``torch.export.export``: by name or position of the arguments, and then by
        dimension, a ``torch.export.Dim`` or a hint (``Dim.AUTO``). Others are those of ``args`` and ``kwargs``.
    """
    from .exported_program import exported_program

    return exported_program(fn, args, kwargs, dynamic_shapes)


def save(
    fn: Any,
    path: str | os.PathLike[str],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    sign: str | os.PathLike[str] | None = None,
) -> Exported:
    """Save ``fn``, compiled for the inputs ``args`` and ``kwargs``, as one file. ``burnish.load`` returns a callable
    that captures and compiles nothing for such inputs.

    fn: what ``export`` takes, or what it returned. It is compiled for torch's current mode: under ``torch.no_grad()``
        for inference, else with gradients where parameters require them.
    sign: the file of a private key, which ``burnish keygen`` makes. With its public key, the file's machine code may
        run: ``burnish.load(path, trust="release.key.pub")``.
    """
    from .exported_program import Exported
    from .precompile import NativeGraph
    from .publisher_signature import read_private
    from .symbolic_sizes_for_compiler import open_inputs

    if sign is not None:
        read_private(sign)  # an error comes before anything is compiled
    exported = fn if isinstance(fn, Exported) else export(fn, args, kwargs, dynamic_shapes=dynamic_shapes)
    sizes = open_inputs(exported.inputs, exported.ranges)
    exported.native = exported.native or NativeGraph(exported.held, sizes=sizes)
    exported.native.prepare(exported.matched(tuple(args), dict(kwargs or {}))[0])
    exported.save(path, sign=sign)
    return exported


def load(
    path: str | os.PathLike[str],
    *,
    trust: bool | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
) -> Exported:
    """Load what ``save`` or ``Exported.save`` wrote.

    trust: whether machine code in the file may run, and operators of libraries other than torch may be called.
        ``None``: if this user's Burnish wrote it, which its signature shows; a file from elsewhere is compiled again.
        The file of a public key, or several: the file is refused unless one of them has signed it.
        Apart from that, a file names operations of torch that compute tensors from tensors, and nothing in it becomes
        Python code. A damaged file is refused with a ``UserError``. ``SECURITY.md`` says what that protects from.
    """
    from ..integrations.from_torch_export import is_archive, load_archive
    from .exported_program import Exported
    from .file_format import load as load_file
    from .publisher_signature import keys_in

    why = why_not_usable(current().untested_torch)
    if why is not None:
        raise UserError(why)
    if is_archive(path):
        if not trust or keys_in(trust) is not None:
            raise UserError(
                f"{os.fspath(path)} is a file of torch.export, which may run code when it is read. If you trust it as "
                f"you trust a program: burnish.load(path, trust=True), or burnish.compile(torch.export.load(path))."
            )
        return export(load_archive(path))
    loaded = load_file(path, trust)
    return Exported(**{field.name: getattr(loaded, field.name) for field in fields(loaded)})
