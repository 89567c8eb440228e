"""The operators of random programs. Each function adds a line to the program, or raises Rejected."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .program_builder import Maker, Rejected, name_of, numel

Grow = Callable[[Maker], object]
OPERATORS: list[tuple[int, Grow]] = []


def operator(weight: int) -> Callable[[Grow], Grow]:
    def register(grow: Grow) -> Grow:
        OPERATORS.append((weight, grow))
        return grow

    return register


# -- element by element ------------------------------------------------------------------------------------------------

SINGLE = """
-{x}; {x}.abs(); torch.relu({x}); {x} * {x}; torch.square({x}); {x}.clamp(-2, 1.5); {x}.clamp(min=0); {x}.neg();
F.leaky_relu({x}, 0.25); F.relu6({x}); F.hardtanh({x}, -1.0, 2.0); {x}.reciprocal(); {x}.positive(); {x} + 1; {x} * 2;
1 - {x}; {x} / 3; 2 / {x}; {x} - 0.5; {x}.clone(); torch.nan_to_num({x}); F.threshold({x}, 0.5, -1.0)
""".replace("\n", " ").split(";")
JUMPS = """
{x}.floor(); {x}.ceil(); {x}.trunc(); {x}.round(); {x}.sign(); {x}.frac(); {x} > 0; {x} <= 1; {x} == 0; {x} != 2;
{x}.isnan(); {x}.isfinite(); {x}.isinf(); {x}.signbit(); {x}.logical_not(); {x}.bool();
torch.heaviside({x}, {x} * 0 + 1);
F.hardshrink({x}, 0.5); {x} // 2; {x} % 3; {x}.fmod(2); torch.floor_divide({x}, 1.5); {x}.remainder(-2);
torch.div({x}, 2, rounding_mode="trunc"); torch.div({x}, 3, rounding_mode="floor")
""".replace("\n", " ").split(";")
FUNCTIONS = """
{x}.clamp(-5, 5).exp(); ({x}.abs() + 1).log(); {x}.sin(); {x}.cos(); {x}.tanh(); {x}.sigmoid(); torch.erf({x});
F.gelu({x}); F.gelu({x}, approximate="tanh"); F.silu({x}); F.softplus({x}); F.elu({x}); F.mish({x}); F.selu({x});
({x}.abs() + 0.5).rsqrt(); {x}.clamp(-5, 3).expm1(); {x}.abs().log1p(); {x}.atan(); {x}.asinh(); F.celu({x}, 0.7);
{x}.clamp(-5, 5).exp2(); ({x}.abs() + 1).log2(); ({x}.abs() + 2).log10(); F.hardswish({x}); F.hardsigmoid({x});
F.logsigmoid({x}); {x}.abs().pow(2.5); {x} ** 2; {x} ** 3; {x}.clamp(-0.9, 0.9).asin(); {x}.clamp(-1, 1).acos();
{x}.clamp(-4, 4).sinh(); {x}.clamp(-4, 4).cosh(); ({x}.abs() + 1).acosh(); {x}.clamp(-0.9, 0.9).atanh();
torch.erfc({x});
F.tanhshrink({x}); F.softsign({x}); ({x}.abs() + 0.5).lgamma(); {x}.sinc(); torch.logit({x}, eps=0.1);
{x}.clamp(-1, 1).tan(); {x}.abs().sqrt()
""".replace("\n", " ").split(";")
WHOLE = """
~{x}; {x} & 3; {x} | 4; {x} ^ 5; {x} << 1; {x} >> 1; {x} // 3; {x} % 4; {x} * {x}; {x} + 1; {x} - 2; {x}.abs();
{x} ** 2;
{x}.clamp(0, 3); {x} > 1; {x} / 2; {x}.sign(); {x}.fmod(3); {x}.remainder(-3); torch.div({x}, 2, rounding_mode="trunc")
""".replace("\n", " ").split(";")


def with_known_sign(m: Maker, text: str) -> str:
    """Which sign a computed NaN has is left open, in eager too: it depends on the place in memory."""
    if not m.is_special:
        return text
    return text.replace("{x}.signbit()", "{x}.nan_to_num().signbit()").replace(
        "copysign({x}, {y})", "copysign({x}, {y}.nan_to_num())"
    )


def filled(text: str, **names: str) -> str:
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text.strip()


@operator(8)
def single(m: Maker) -> object:
    return m.add(filled(m.one(SINGLE), x=m.pick()))


@operator(4)
def jump(m: Maker) -> object:
    return m.add(filled(with_known_sign(m, m.one(JUMPS)), x=m.pick(exact=True)))


@operator(8)
def function(m: Maker) -> object:
    return m.add(filled(m.one(FUNCTIONS), x=m.floating() if m.chance(95) else m.integral()), exact=False)


@operator(4)
def whole(m: Maker) -> object:
    return m.add(filled(m.one(WHOLE), x=m.integral()))


@operator(14)
def pair(m: Maker) -> object:
    x = m.pick()
    y = m.mate(x)
    text = m.one(
        "{x} + {y};{x} - {y};{x} * {y};{y} - {x};torch.maximum({x}, {y});torch.minimum({x}, {y});"
        "torch.add({x}, {y}, alpha=2);torch.fmax({x}, {y});torch.rsub({x}, {y})".split(";")
    )
    if m.is_special and ("max" in text or "min" in text):
        # Which of two zeros is the greater depends in eager on their place in memory.
        text = f"{text} + 0"
    return m.add(filled(text, x=x, y=y), exact=None if "alpha" not in text else False)


@operator(3)
def quotient(m: Maker) -> object:
    x = m.pick()
    y = m.mate(x)
    return m.add(m.one((f"{x} / ({y}.abs() + 1)", f"{x} / ({y} * {y} + 0.5)")))


@operator(5)
def comparison(m: Maker) -> object:
    x = m.pick(exact=True)
    y = m.mate(x, exact=True)
    text = m.one(
        "{x} < {y};{x} >= {y};{x} == {y};{x} != {y};torch.logical_and({x}, {y});torch.logical_xor({x}, {y});"
        "torch.floor_divide({x}, {y}.abs() + 1);torch.remainder({x}, {y}.abs() + 2);"
        "torch.copysign({x}, {y});torch.fmod({x}, {y}.abs() + 1)".split(";")
    )
    if "floor_divide" in text and torch.result_type(m.values[x], m.values[y]) is torch.bfloat16:
        raise Rejected  # eager rounds between its steps: 185 // 1.609375 is 113 there
    return m.add(filled(with_known_sign(m, text), x=x, y=y))


@operator(3)
def two_functions(m: Maker) -> object:
    x = m.floating()
    y = m.mate(x)
    text = m.one(
        "torch.atan2({x}, {y});torch.hypot({x}, {y});({x}.abs() + 0.1) ** {y}.clamp(-2, 2);"
        "torch.lerp({x}, {y}.to({x}.dtype), 0.3);torch.addcmul({x}, {y}, {y}, value=0.5);"
        "torch.addcdiv({x}, {x}, {y}.abs() + 1);torch.xlogy({x}, {y}.abs() + 1);"
        "torch.logaddexp({x}, {y}.to({x}.dtype))".split(";")
    )
    return m.add(filled(text, x=x, y=y), exact=False)


@operator(5)
def choice(m: Maker) -> object:
    x = m.pick()
    y = m.mate(x)
    condition = m.boolean(tuple(m.values[x].shape))
    text = m.one(
        (
            "torch.where({c}, {x}, {y})",
            "torch.where({c}, {x}, 0.5)",
            "{x}.masked_fill({c}, 2)",
            "torch.where({c}, 1, {x})",
        )
    )
    return m.add(filled(text, x=x, y=y, c=condition))


@operator(5)
def cast(m: Maker) -> object:
    x = m.pick()
    if m.chance(60):
        return m.add(f"{x}.to({m.one(('F32', 'F64', 'BF16', 'F16'))})")
    if not m.exact[x]:
        raise Rejected
    to = m.one(("int64", "int32", "uint8", "bool", "int16", "int8"))
    low = 0 if to == "uint8" else -50
    return m.add(f"torch.nan_to_num({x}).clamp({low}, 50).to(torch.{to})" if to != "bool" else f"{x}.to(torch.bool)")


# -- many to one -------------------------------------------------------------------------------------------------------


@operator(10)
def reduction(m: Maker) -> object:
    x = m.pick()
    over = m.one((f"dim={m.dim(x)}", f"dim={m.dims(x)}", f"dim={m.dims(x)}", ""))
    keep = f"keepdim={m.chance(50)}" if over else ""
    rest = ", ".join(part for part in (over, keep) if part)
    is_whole = not m.values[x].is_floating_point()
    name = m.one(
        (
            "sum",
            "sum",
            "mean",
            "amax",
            "amin",
            "any",
            "all",
            "var",
            "std",
            "logsumexp",
            "norm",
            "count_nonzero",
            "nansum",
        )
    )
    if name in ("any", "all", "count_nonzero") and not m.exact[x]:
        raise Rejected
    if name == "count_nonzero":
        rest = over
    if name == "logsumexp" and not over:
        raise Rejected
    if name in ("mean", "var", "std", "norm", "logsumexp") and is_whole:
        x = f"{x}.to(F32)"
    if name == "norm":
        order = m.one(("2", "1", "float('inf')", "3"))
        return m.add(f"torch.linalg.vector_norm({x}, {order}, {rest})", exact=False)
    if name in ("sum", "nansum") and m.chance(15):
        rest = ", ".join(part for part in (rest, f"dtype={m.one(('F32', 'F64'))}") if part)
    if name in ("var", "std") and m.chance(40):
        rest = ", ".join(part for part in (rest, f"correction={m.one((0, 1, 2))}") if part)
    stays = name in ("amax", "amin", "any", "all", "count_nonzero") or is_whole and name == "sum" and "F" not in rest
    return m.add(f"{x}.{name}({rest})", exact=None if stays else False)


@operator(3)
def one_dim(m: Maker) -> object:
    x = m.pick(exact=True)
    d, keep = m.dim(x), m.chance(50)
    name = m.one(("max", "min", "argmax", "argmin", "prod", "median", "argmax all", "cummax", "cummin"))
    match name:
        case "cummax" | "cummin":
            return m.add(f"{x}.{name}({d})", outputs=2)
        case "max" | "min":
            return m.add(f"{x}.{name}(dim={d}, keepdim={keep})", outputs=2)
        case "argmax" | "argmin":
            return m.add(f"{x}.{name}(dim={d}, keepdim={keep})")
        case "argmax all":
            return m.add(f"{x}.argmax()")
        case "median":
            # Eager's median over an expanded dimension reads uninitialized memory.
            return m.add(f"{x}.contiguous().median(dim={d}).values")
    return m.add(f"{x}.clamp(-2, 2).prod(dim={d}, keepdim={keep})", exact=not m.values[x].is_floating_point())


@operator(7)
def along_rows(m: Maker) -> object:
    x = m.floating(least=1)
    d = m.dim(x)
    text = m.one(
        (
            "torch.softmax({x}, {d})",
            "torch.log_softmax({x}, {d})",
            "F.normalize({x}, dim={d}, eps=0.1)",
            "{x} - {x}.mean({d}, keepdim=True)",
            "{x} / ({x}.abs().amax({d}, keepdim=True) + 1)",
            "torch.cumsum({x}, {d})",
            "{x}.clamp(-1, 1.5).cumprod({d})",
            "F.softmin({x}, {d})",
            "F.glu({x}, {d})",
            "torch.softmax({x}, {d}, dtype=F32)",
            "torch.var_mean({x}, dim={d})[0]",
            "({x} - {x}.amax({d}, keepdim=True)).exp().sum({d})",
        )
    )
    return m.add(filled(text, x=x, d=str(d)), exact=False)


@operator(6)
def normalisation(m: Maker) -> object:
    x = m.floating(least=2)
    shape, dtype = tuple(m.values[x].shape), str(m.values[x].dtype)
    name = {"torch.float32": "f32", "torch.float64": "f64", "torch.bfloat16": "bf16", "torch.float16": "f16"}[dtype]
    weight = bias = "None"
    kind = m.one(("layer", "layer", "rms", "group", "batch", "instance", "batch statistics"))
    over = shape[-m.integer(1, min(2, len(shape))) :] if kind in ("layer", "rms") else shape[1:2]
    if m.chance(70):
        weight = m.new_input(over, name)
        bias = m.new_input(over, name)
    match kind:
        case "layer":
            text = f"F.layer_norm({x}, {over}, {weight}, {bias}, eps={m.one(('1e-5', '0.1'))})"
        case "rms":
            text = f"F.rms_norm({x}, {over}, {weight}, eps=1e-3)"
        case "group":
            groups = m.one([g for g in range(1, shape[1] + 1) if shape[1] % g == 0] or [1])
            text = f"F.group_norm({x}, {groups}, {weight}, {bias}, eps=1e-2)"
        case "instance":
            text = f"F.instance_norm({x}, weight={weight}, bias={bias}, eps=1e-2)"
        case "batch statistics":
            text = f"F.batch_norm({x}, None, None, {weight}, {bias}, training=True, eps=1e-2)"
        case _:
            mean, variance = m.new_input(over, name), m.new_input(over, name)
            text = f"F.batch_norm({x}, {mean}, {variance}.abs() + 0.5, {weight}, {bias}, training=False)"
    return m.add(text, exact=False)


# -- the same elements otherwise ---------------------------------------------------------------------------------------


@operator(16)
def view(m: Maker) -> object:
    x = m.pick(lambda x: x.ndim > 0)
    shape = tuple(m.values[x].shape)
    d, e, rank = m.dim(x), m.dim(x), len(shape)
    n = shape[d]
    order = m.random.sample(range(rank), rank)
    start, step = m.integer(-n - 1, n), m.integer(1, 3)
    stop = m.integer(start, n)
    options = [
        f"{x}.transpose({d}, {e})",
        f"{x}.permute({tuple(order)})",
        f"{x}.reshape({reshaped(m, shape)})",
        f"{x}.flatten()",
        f"{x}.reshape(-1)",
        f"{x}.narrow({d}, {n // 2}, {n - n // 2})",
        f"{x}.unsqueeze({d})",
        f"{x}.squeeze()",
        f"{x}.squeeze({d})",
        f"{x}.select({d}, {max(n - 1, 0)})",
        f"{x}[{', '.join([':'] * (d % rank) + [f'{start}:{stop}:{step}'])}]",
        f"{x}[..., {start}:{stop}]",
        f"{x}[..., ::{step}]",
        f"{x}[None]",
        f"{x}[..., None]",
        f"{x}[0]",
        f"{x}[-1]",
        f"{x}.flip({m.dims(x)})",
        f"{x}.roll({m.integer(-3, 3)}, {d})",
        f"{x}.movedim({d}, {e})",
        f"{x}.unfold({d}, {m.integer(1, max(n, 1))}, {step})",
        f"{x}.diagonal({m.integer(-2, 2)}, {d}, {e})",
        f"{x}.repeat({', '.join(str(m.integer(1, 2)) for _ in range(rank + m.integer(0, 1)))})",
        f"{x}.contiguous()",
        f"{x}.mT",
        f"{x}.tril({m.integer(-1, 1)})",
        f"{x}.triu({m.integer(-1, 1)})",
        f"{x}.unflatten({d}, (-1, {m.integer(1, 3)}))",
        f"{x}.expand({expanded(m, shape)})",
        f"{x}.rot90(1, ({d}, {e}))",
        f"{x}.repeat_interleave({m.integer(1, 3)}, {d})",
        f"torch.atleast_3d({x})",
        f"{x}.swapaxes({d}, {e})",
        f"{x}.view({reshaped(m, shape)})",
        f"torch.broadcast_to({x}, {expanded(m, shape)})",
    ]
    return m.add(m.one(options))


def reshaped(m: Maker, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Another shape of as many elements."""
    factors: list[int] = []
    for n in shape:
        for p in (2, 3, 5, 7):
            while n and n % p == 0:
                factors.append(p)
                n //= p
        factors.append(n)
    if m.chance(50):
        m.random.shuffle(factors)
    found = [1]
    for f in factors:
        if m.chance(50):
            found.append(f)
        else:
            found[-1] *= f
    return tuple(found[:6]) if numel(found[:6]) == numel(shape) else (-1,)


def expanded(m: Maker, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*(m.integer(1, 3) for _ in range(m.integer(0, 2))), *(m.integer(1, 4) if n == 1 else n for n in shape))


@operator(4)
def parts(m: Maker) -> object:
    x = m.pick(lambda x: x.ndim > 0)
    d = m.dim(x)
    n = m.values[x].shape[d]
    match m.integer(0, 2):
        case 0 if n:
            size = m.integer(1, n)
            return m.add(f"{x}.split({size}, {d})", outputs=-(-n // size)) if -(-n // size) < 5 else None
        case 1 if 0 < n < 5:
            return m.add(f"{x}.unbind({d})", outputs=n)
        case 2 if n > 1:
            at = m.integer(1, n - 1)
            return m.add(f"{x}.split(({at}, {n - at}), {d})", outputs=2)
    raise Rejected


@operator(6)
def together(m: Maker) -> object:
    x = m.pick()
    shape = tuple(m.values[x].shape)
    same = [name for name, value in m.values.items() if tuple(value.shape) == shape]
    y, z = m.one(same), m.one(same)
    d = m.dim(x)
    if m.chance(50) or not shape:
        return m.add(f"torch.stack(({x}, {y}), {d})")
    if m.chance(50):
        wider = list(shape)
        wider[d] = m.size()
        y = m.new_input(tuple(wider)) if m.chance(50) else y
    return m.add(f"torch.cat(({x}, {y}, {z}), {d})")


@operator(4)
def padded(m: Maker) -> object:
    x = m.pick(lambda x: x.ndim > 0)
    rank = m.values[x].ndim
    widths = tuple(m.integer(-1, 3) for _ in range(2 * m.integer(1, min(rank, 3))))
    if m.chance(70):
        return m.add(f"F.pad({x}, {widths}, value={m.number()})")
    widths = tuple(m.integer(0, 2) for _ in range(2 * min(max(rank - 1, 1), 2)))
    return m.add(f"F.pad({x}, {widths}, mode={m.one(('replicate', 'reflect', 'circular'))!r})")


# -- by index ----------------------------------------------------------------------------------------------------------


@operator(7)
def indexed(m: Maker) -> object:
    x = m.pick(lambda x: x.ndim > 0)
    shape = tuple(m.values[x].shape)
    d = m.dim(x)
    n = shape[d]
    if not n:
        raise Rejected
    kind = m.integer(0, 9)
    if kind == 0:
        index = m.new_input((m.size(),), "i64", "indices", n)
        return m.add(f"{x}.index_select({d}, {index})")
    if kind == 1:
        like = tuple(m.integer(0, size) if k != d % len(shape) else m.size() for k, size in enumerate(shape))
        index = m.new_input(like, "i64", "indices", n)
        return m.add(f"torch.gather({x}, {d}, {index})")
    if kind == 2 and len(shape) == 2:
        index = m.new_input(m.shape(2), m.one(("i64", "i32")), "indices", shape[0])
        return m.add(f"F.embedding({index}, {x})")
    if kind == 3:
        index = m.new_input(m.shape(2), "i64", "indices", shape[0])
        return m.add(f"{x}[{index}]")
    if kind == 4 and len(shape) > 1:
        a = m.new_input((3, 1), "i64", "indices", shape[0])
        b = m.new_input((m.size(),), "i64", "indices", shape[1])
        return m.add(m.one((f"{x}[{a}, {b}]", f"{x}[{a}, :, {b}]" if len(shape) > 2 else f"{x}[:, {b}]")))
    if kind == 5:
        index = m.new_input(shape, "i64", "indices", n)
        return (
            m.add(f"{x}.scatter({d}, {index}, {m.number()})")
            if numel(shape) < 2
            else m.add(f"{x}.scatter_add({d}, {index}, {x})", exact=False)
        )
    if kind == 6:
        index = m.new_input((n,), "i64", "indices", n)
        return m.add(f"{x}.index_add({d}, {index}, {x})", exact=False)
    if kind == 7:
        return m.add(f"{x}.take_along_dim({x}.argsort({d}), {d})") if m.exact[x] else None
    if kind == 8:
        if not m.exact[x]:
            raise Rejected
        return m.add(f"{x}.sort({d}, descending={m.chance(50)}).values")
    index = m.new_input((m.size() or 1,), "i64", "indices", n)
    return m.add(f"F.one_hot({index}, {n})")


# -- products ----------------------------------------------------------------------------------------------------------


@operator(6)
def product(m: Maker) -> object:
    x = m.floating(least=1)
    value = m.values[x]
    dtype = {"torch.float32": "f32", "torch.float64": "f64", "torch.bfloat16": "bf16", "torch.float16": "f16"}[
        str(value.dtype)
    ]
    shape, n = tuple(value.shape), value.shape[-1]
    out = m.integer(1, 9)
    activation = m.one(("{y}", "{y}", "torch.relu({y})", "F.gelu({y})", "torch.tanh({y})", "F.silu({y})"))
    match m.integer(0, 6):
        case 0 | 1:
            weight = m.new_input((out, n), dtype)
            bias = m.new_input((out,), dtype) if m.chance(60) else "None"
            text = f"F.linear({x}, {weight}, {bias})"
        case 2:
            text = f"torch.matmul({x}, {m.new_input((n, out), dtype)})"
        case 3 if len(shape) >= 2:
            text = f"torch.matmul({x}, {m.new_input((*(shape[:-2] if m.chance(50) else ()), n, out), dtype)})"
        case 4 if len(shape) >= 2:
            text = f"{x} @ {x}.mT"
        case 5 if len(shape) == 2:
            c, w = m.new_input((shape[0], out), dtype), m.new_input((n, out), dtype)
            text = m.one((f"torch.addmm({c}, {x}, {w})", f"torch.addmm({c}[0], {x}, {w}, beta=0.5, alpha=2)"))
        case _:
            text = f"torch.einsum('...i,ij->...j', {x}, {m.new_input((n, out), dtype)})"
    return m.add(filled(activation, y=text), exact=False)


@operator(4)
def window(m: Maker) -> object:
    x = m.pick(lambda x: x.is_floating_point() and x.ndim in (3, 4))
    value = m.values[x]
    dtype = {"torch.float32": "f32", "torch.float64": "f64", "torch.bfloat16": "bf16", "torch.float16": "f16"}[
        str(value.dtype)
    ]
    channels, spatial = value.shape[1], value.ndim - 2
    out, size = m.integer(1, 5), m.integer(1, 3)
    match m.integer(0, 5):
        case 0 | 1 | 2:
            groups = channels if m.chance(20) and channels else 1
            weight = m.new_input((out * groups, channels // groups, *(size,) * spatial), dtype)
            bias = m.new_input((out * groups,), dtype) if m.chance(50) else "None"
            stride, padding = m.integer(1, 2), m.integer(0, 1)
            options = f"stride={stride}, padding={padding}, groups={groups}"
            return m.add(f"F.conv{spatial}d({x}, {weight}, {bias}, {options})", exact=False)
        case 3:
            return m.add(f"F.avg_pool{spatial}d({x}, {size}, stride={m.integer(1, 2)})", exact=False)
        case 4:
            return m.add(f"F.max_pool{spatial}d({x}, {size}, stride={m.integer(1, 2)})")
    return m.add(
        f"F.interpolate({x}, scale_factor=2, mode='nearest')"
        if m.chance(50)
        else f"F.adaptive_avg_pool{spatial}d({x}, {m.integer(1, 3)})",
        exact=False,
    )


# -- from nothing ------------------------------------------------------------------------------------------------------


@operator(3)
def fresh(m: Maker) -> object:
    x = m.pick()
    n = m.integer(0, 6)
    return m.add(
        m.one(
            (
                f"torch.zeros_like({x})",
                f"torch.ones_like({x})",
                f"torch.full_like({x}, 2)",
                f"torch.arange({n})",
                f"torch.arange({n}, dtype=F32) * 2",
                f"torch.eye({n})",
                f"torch.zeros({m.shape(2)})",
                f"{x}.new_ones({m.shape(2)})",
                f"torch.full({m.shape(2)}, 3)",
                f"torch.linspace(0, 1, {n})",
                f"torch.tensor({m.number()})",
                f"torch.ones({m.shape(2)}, dtype=BF16)",
            )
        ),
        exact=True,
    )


@operator(5)
def drawn(m: Maker) -> object:
    if not m.draws:
        raise Rejected
    x = m.floating()
    return m.add(
        m.one(
            (
                f"torch.rand_like({x})",
                f"F.dropout({x}, 0.5)",
                f"torch.randn({m.shape(2)})",
                f"torch.bernoulli(torch.full_like({x}, 0.5))",
            )
        )
    )


# -- in place ----------------------------------------------------------------------------------------------------------


def shown(m: Maker, x: str) -> str:
    """A value, or a view of it."""
    shape = tuple(m.values[x].shape)
    if not shape or m.chance(35):
        return x
    d, n = m.dim(x), shape[0]
    start = m.integer(0, n)
    return m.one(
        (
            f"{x}[{start}:]",
            f"{x}[..., ::2]",
            f"{x}.transpose(0, {d})",
            f"{x}[0]",
            f"{x}.unsqueeze({d})",
            f"{x}.diagonal()",
            f"{x}[:{start}].mT",
            f"{x}.select({d}, 0)",
            f"{x}.view(-1)",
            f"{x}.narrow({d}, 0, {shape[d] // 2})",
            f"{x}.flatten()",
            f"{x}.unfold({d}, 1, 2)",
            f"{x}[1::2]",
            f"{x}.permute({tuple(reversed(range(len(shape))))})",
        )
    )


@operator(9)
def in_place(m: Maker) -> object:
    x = m.pick()
    target = shown(m, x)
    y = m.mate(x)
    jumps = ("{t}.floor_()", "{t}.sign_()", "{t}.round_()")
    inexact = ("{t}.sigmoid_()", "{t}.tanh_()", "{t}.cos_()", "{t}.addcmul_({y}, {y})")
    text = m.one(
        (
            "{t}.add_(1)",
            "{t}.mul_(2)",
            "{t}.add_({y})",
            "{t}.mul_({y})",
            "{t}.sub_({y})",
            "{t}.copy_({y})",
            "{t}.fill_(3)",
            "{t}.zero_()",
            "{t}.clamp_(-1, 1)",
            "{t}.relu_()",
            "{t}.neg_()",
            "{t}.abs_()",
            "{t}.div_(2)",
            "{t}.masked_fill_({c}, 1)",
            "{t}.copy_({n})",
            "{t}.add_({s})",
            "{t}.mul_({s})",
            "{t}.t_()" if m.chance(5) else "{t}.add_(2)",
            *jumps,
            *inexact,
        )
    )
    if text in jumps and not m.exact[x]:
        raise Rejected
    if "{c}" in text:
        text = text.replace("{c}", m.boolean(tuple(m.values[x].shape)))
    text = filled(text, t=target, y=y, n=m.number(), s=target)
    rounds = any(part in text for part in ("sigmoid", "tanh", "cos_", "addcmul"))
    return m.change(x, text, exact=False if rounds else None)


@operator(4)
def stored_by_index(m: Maker) -> object:
    x = m.pick(lambda x: x.ndim > 0)
    d, shape = m.dim(x), tuple(m.values[x].shape)
    n = shape[d]
    if not n:
        raise Rejected
    count = m.integer(1, n + 1)
    index = m.new_input((count,), "i64", "indices", n)
    part = tuple(count if k == d % len(shape) else size for k, size in enumerate(shape))
    dtype = name_of(m.values[x])
    y = m.new_input(part, dtype)
    text = m.one(
        (
            f"{x}.index_copy_({d}, {index}, {y})",
            f"{x}.index_fill_({d}, {index}, 2)",
            f"{x}.index_add_({d}, {index}, {y})",
            f"{x}[{':, ' * (d % len(shape))}{index}] = {y}",
            f"{x}.index_put_(({index},), {m.new_input((), dtype)}, accumulate=True)",
            f"{x}.scatter_({d}, {m.new_input(part, 'i64', 'indices', n)}, 1)",
            f"{x}.scatter_add_({d}, {m.new_input(part, 'i64', 'indices', n)}, {y})",
        )
    )
    adds = "add_" in text or "accumulate" in text
    return m.change(x, text, exact=False if adds and m.values[x].is_floating_point() else None)


@operator(4)
def set_item(m: Maker) -> object:
    x = m.pick(lambda x: x.ndim > 0)
    shape = tuple(m.values[x].shape)
    n = shape[0]
    if not n:
        raise Rejected
    y = m.one((m.mate(x), m.number(), m.number()))
    where = m.one(
        (
            f"[{m.integer(-n, n - 1)}]",
            "[..., 0]",
            f"[{m.integer(0, n)}:]",
            "[::2]",
            "[...]",
            "[..., -1:]",
            f"[{m.boolean(shape)}]",
            f"[{m.new_input((2,), 'i64', 'indices', n)}]",
        )
    )
    return m.change(x, f"{x}{where} = {y}")
