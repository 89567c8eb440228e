"""Checks of compiled kernels against float64, one kind of kernel each."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

import burnish

from .place import Place

HALF = torch.bfloat16


def first_kernel(place: Place) -> None:
    x = place.randn(place.size(1 << 20, 100))
    place.agrees(lambda x: torch.relu(x * 2 + 1) - x, x)


def elementwise(place: Place) -> None:
    n = place.size(1000, 5)
    for dtype in (torch.float32, HALF, torch.float16):
        x, y = place.randn(n, 333, dtype=dtype), place.randn(333, dtype=dtype)

        def chain(x, y):
            return torch.where(x > y, F.gelu(x) * y, torch.sigmoid(x) - y.abs().sqrt()), (x * y).to(torch.float32)

        place.agrees(chain, x, y, name=str(dtype))
    whole = place.randint(1000, n, 33) - 500
    place.agrees(lambda x: (x // 7, x % 7, x << 2, ~x, x.to(torch.float32) / 3), whole, name="int64")


def functions(place: Place) -> None:
    """Each function over its range: the largest error in units in the last place."""
    x = torch.linspace(-30, 30, place.size(1 << 20, 301), device=place.device)
    positive = x.abs() + 1e-6
    small = torch.linspace(-0.999, 0.999, len(x), device=place.device)
    table = {
        x: "exp exp2 expm1 tanh sigmoid erf erfc sin cos tan atan sinh cosh asinh".split(),
        positive: "log log2 log10 log1p sqrt rsqrt lgamma digamma reciprocal".split(),
        small: "asin acos atanh erfinv tan".split(),
    }
    failed = []
    for inputs, names in table.items():
        fn = burnish.compile(lambda x, names=names: [getattr(torch, name)(x) for name in names], fullgraph=True)
        with torch.no_grad():
            fn(inputs)
            got = fn(inputs)
        for name, result in zip(names, got, strict=True):
            truth = getattr(torch, name)(inputs.double())
            eager = ulps(getattr(torch, name)(inputs), truth)
            ours = ulps(result, truth)
            place.figure(**{name: f"{ours:.3g} (eager {eager:.3g})"})
            if place.computes and not ours <= 2 * eager + 3:
                failed.append(f"{name}: {ours:.3g} units, eager {eager:.3g}")
    assert not failed, "; ".join(failed)


def ulps(x: torch.Tensor, truth: torch.Tensor) -> float:
    unit = torch.finfo(torch.float32).eps * truth.abs().clamp(min=torch.finfo(torch.float32).tiny)
    error = ((x.double() - truth).abs() / unit)[truth.isfinite() & x.isfinite()]
    return error.max().item() if error.numel() else 0.0


def reductions(place: Place) -> None:
    rows, long = place.size(500, 3), place.size(300_001, 9001)
    for dtype in (torch.float32, HALF):
        x = place.randn(rows, 257, dtype=dtype)
        place.agrees(lambda x: (x.sum(1), x.mean(0), x.amax(1), x.var(1), x.sum()), x, name=str(dtype))
    place.agrees(lambda x: (x.argmax(1), x.argmin(0), x.min(1), x.norm()), place.randn(rows, 257), name="positions")
    place.agrees(lambda x: (x.sum(1), x.amax(1), x.argmax(1)), place.randn(3, long), name="long rows")
    place.agrees(lambda x: (x.cumsum(1), x.cummax(1)[0]), place.randn(rows, 100), name="running")


def softmax(place: Place) -> None:
    for length in (100, place.size(8192, 300), place.size(50_257, 9000)):
        x = place.randn(place.size(300, 2), length, scale=3)
        place.agrees(lambda x: torch.softmax(x, -1), x, name=f"rows of {length}")
        x = x.to(HALF).requires_grad_()
        place.agrees(lambda x: torch.log_softmax(x, -1), x, gradients=True, name=f"bf16 rows of {length}")
    place.agrees(lambda x: torch.softmax(x, 0), place.randn(64, place.size(1000, 5)), name="columns")


def norms(place: Place) -> None:
    for dtype in (torch.float32, HALF):
        for width in (place.size(768, 64), place.size(12_288, 8200)):
            x, w, b = (
                place.randn(*shape, dtype=dtype).requires_grad_() for shape in ((3, 5, width), (width,), (width,))
            )
            fn = lambda x, w, b: F.layer_norm(x, w.shape, w, b)  # noqa: E731
            place.agrees(fn, x, w, b, gradients=True, name=f"layer norm {dtype} {width}")
    x, w = place.randn(64, 256).requires_grad_(), place.randn(256).requires_grad_()
    place.agrees(lambda x, w: F.rms_norm(x, w.shape, w), x, w, gradients=True, name="rms norm")
    image = place.randn(2, 32, place.size(28, 6), 6).requires_grad_()
    place.agrees(lambda x: F.silu(F.group_norm(x, 8)), image, gradients=True, name="group norm")
    place.agrees(lambda x: F.relu(F.batch_norm(x, None, None, training=True)), image, gradients=True, name="batch norm",
                 fewest=0)  # fmt: skip


def cross_entropy(place: Place) -> None:
    tokens, words = place.size(512, 6), place.size(50_257, 9001)
    labels = place.randint(words, tokens)
    labels[1] = -100
    for dtype in (torch.float32, HALF):
        x = place.randn(tokens, words, dtype=dtype, scale=2).requires_grad_()
        place.agrees(F.cross_entropy, x, labels, gradients=True, name=str(dtype))
    x = place.randn(tokens, 100).requires_grad_()
    weight, few = torch.rand(100).to(place.device), place.randint(100, tokens)
    if place.computes:  # eager reads a size from memory
        fn = lambda x, y, w: F.cross_entropy(x, y, w, label_smoothing=0.1)  # noqa: E731
        place.agrees(fn, x, few, weight, gradients=True, name="weights")
    place.agrees(lambda x, y: F.cross_entropy(x, y, reduction="none"), x, few, gradients=True, name="none")


def index_add(place: Place) -> None:
    rows, table = place.size(10_000, 40), place.size(1000, 8)
    index = place.randint(table, rows)
    base, x = place.randn(table, 33), place.randn(rows, 33)
    place.agrees(lambda base, x: base.index_add(0, index, x.sin()), base, x, name="index_add")
    place.agrees(lambda base, x: base.scatter_add(0, index[:, None].expand(-1, 33), x * 2), base, x, name="scatter_add")
    weight = place.randn(table, 33).requires_grad_()
    place.agrees(lambda w: F.embedding(index, w).tanh(), weight, gradients=True, name="embedding")
    place.agrees(lambda x: x[index] * 2 + x[index - table], weight.detach(), name="index")


def transposes(place: Place) -> None:
    n = place.size(1000, 20)
    x, y = place.randn(n, n + 3), place.randn(n + 3, n)
    place.agrees(lambda x, y: (x.t() * 2 + y).contiguous(), x, y, name="mixed")
    place.agrees(lambda x: (x * 3).t().contiguous(), x, name="transpose")
    place.agrees(lambda x, y: (torch.cat([x.t(), y.sin()], 1), F.pad(x, (1, 2)) + 1), x, y, name="cat and pad")
    image = place.randn(2, 8, 12, 10).to(memory_format=torch.channels_last)
    place.agrees(lambda x: x.permute(0, 2, 3, 1).reshape(2, -1).exp(), image, name="channels last")
    place.agrees(lambda x: (x + 1) * x, place.randn(n * n + 1)[1:], name="unaligned")


def dropout(place: Place) -> None:
    x = place.randn(place.size(4096, 40), 100).abs() + 1
    x.requires_grad_()
    run = burnish.compile(lambda x: F.dropout(x, 0.25) * 2, fullgraph=True)
    run(x)
    torch.manual_seed(5)
    first = run(x)
    torch.manual_seed(5)
    second, third = run(x), run(x)
    (grad,) = torch.autograd.grad(first.sum(), x)
    if not place.computes:
        return
    assert torch.equal(first, second) and not torch.equal(first, third), (
        "the seed decides, and each call draws new numbers"
    )
    assert torch.equal(first != 0, grad != 0), "backward drops what forward dropped"
    kept = (first != 0).double().mean().item()
    assert abs(kept - 0.75) < 5 * (0.1875 / x.numel()) ** 0.5, f"{kept} is kept, and 0.75 expected"
    torch.testing.assert_close(first[first != 0], (x * 2 / 0.75)[first != 0])
    place.figure(kept=kept)


def attention(place: Place) -> None:
    length, group = place.size(200, 8), (2, 4)
    for dtype in (torch.float32, HALF):
        q, k, v = (place.randn(2, 4, length, 64, dtype=dtype).requires_grad_() for _ in range(3))

        def scaled(q, k, v, causal=False, mask=None):
            return F.scaled_dot_product_attention(q.sin(), k, v, attn_mask=mask, is_causal=causal)

        place.agrees(lambda *x: scaled(*x), q, k, v, gradients=True, name=f"{dtype}")
        place.agrees(lambda *x: scaled(*x, causal=True), q, k, v, gradients=True, name=f"{dtype} causal")
        mask = place.randn(length, length, dtype=dtype)
        place.agrees(lambda *x: scaled(*x[:3], mask=x[3]), q, k, v, mask, gradients=True, name=f"{dtype} mask")
        few = (place.randn(2, group[0], length, 64, dtype=dtype) for _ in range(2))
        place.agrees(lambda q, k, v: F.scaled_dot_product_attention(q.sin(), k, v, enable_gqa=True), q.detach(), *few,
                     name=f"{dtype} grouped")  # fmt: skip
        place.agrees(lambda x: projected(x), place.randn(2, length, 192, dtype=dtype).requires_grad_(), gradients=True,
                     name=f"{dtype} of one projection")  # fmt: skip


def projected(x: torch.Tensor) -> torch.Tensor:
    """As in a model: heads are views of one tensor."""
    q, k, v = (x * 1.5).view(*x.shape[:2], 3, 1, 64).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2).sin()


def mlp(place: Place) -> None:
    for dtype in (torch.float32, HALF):
        width = place.size(512, 32)
        model = nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 10))
        model = model.to(place.device, dtype)
        truth = nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 10))
        truth = truth.to(place.device, torch.float64)
        truth.load_state_dict(model.state_dict())
        x = place.randn(place.size(256, 8), 64, dtype=dtype)
        want = stepped(model, model, x)
        right = stepped(truth, truth, x.double())
        compiled = burnish.compile(model, fullgraph=True)
        for call in range(3):
            place.same(stepped(compiled, model, x), want, right, f"{dtype} call {call}")


def stepped(run: nn.Module, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    out = run(x)
    out.square().mean().backward()
    return [out.detach(), *(p.grad.clone() for p in model.parameters())]


def convolutions(place: Place) -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, 2)).to(place.device)
    images = place.randn(4, 3, place.size(64, 12), 12)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        want = stepped(model, model, images)
        truth = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, 2))
        truth = truth.to(place.device, torch.float64)
        truth.load_state_dict(model.state_dict())
        right = stepped(truth, truth, images.double())
        compiled = burnish.compile(model, fullgraph=True)
        for call in range(3):
            place.same(stepped(compiled, model, images), want, right, f"call {call}")


def optimizer_step(place: Place) -> None:
    def trained(wrap) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).to(place.device)
        opt = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss.detach()

        run = wrap(step)
        x, y = torch.randn(24, 16).to(place.device), torch.randint(4, (24,)).to(place.device)
        return [torch.stack([run(x, y) for _ in range(5)]), *(p.detach() for p in model.parameters())]

    want, got = trained(lambda step: step), trained(burnish.compile)
    if place.computes:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def sizes_that_change(place: Place) -> None:
    def fn(x, y):
        return torch.softmax(x @ y, -1).sum(0) + x.sin().mean()

    compiled, y = burnish.compile(fn, dynamic=True), place.randn(16, 40)
    for rows in (7, 12, 33, place.size(5000, 50), 16, 1):
        x = place.randn(rows, 16)
        with torch.no_grad():
            got, want, truth = compiled(x, y), fn(x, y), fn(x.double(), y.double())
        place.same(got, want, truth, f"{rows} rows")


def large_tensor(place: Place) -> None:
    """Positions beyond 32 bits."""
    x = torch.ones(place.size((1 << 31) + 4096, 4096), dtype=torch.uint8, device=place.device)
    with torch.no_grad():
        run = burnish.compile(lambda x: (x + 1) * 2, fullgraph=True)
        run(x)
        got = run(x)
    if place.computes:
        assert bool((got == 4).all()), "a number is wrong"
        assert got[-1].item() == 4


def own_products(place: Place) -> None:
    n = place.size(512, 32)
    for dtype in (HALF, torch.float16):
        x, w, b = (
            place.randn(n, n, dtype=dtype),
            place.randn(n, n, dtype=dtype, scale=0.05),
            place.randn(n, dtype=dtype),
        )
        place.agrees(
            lambda x, w, b: F.gelu(F.linear(x, w, b)) + x, x, w, b, mode="max-autotune", fewest=0, name=str(dtype)
        )


def wrong_index(place: Place) -> None:
    """As in eager, the error makes the GPU unusable for the process: this check runs separately, and last."""
    table, index = place.randn(10, 8), place.randint(10, 20)
    run = burnish.compile(lambda table, index: table[index] * 2, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            run(table, index)
        place.wait()
        index[3] = 10
        try:
            run(table, index)
            place.wait()
        except (RuntimeError, IndexError) as error:
            place.figure(error=str(error).splitlines()[0][:80])
        else:
            assert not place.computes, "no error was raised"


def recurrent(place: Place) -> None:
    torch.backends.cudnn.enabled = not place.is_rehearsal  # the pretended GPU has no call that packs its weights
    model = nn.LSTM(8, 16, 2, batch_first=True).to(place.device)
    truth = nn.LSTM(8, 16, 2, batch_first=True).to(place.device, torch.float64)
    truth.load_state_dict(model.state_dict())
    x = place.randn(2, 5, 8)
    compiled = burnish.compile(lambda x: model(x)[0].sin())
    with torch.no_grad():
        want, right = model(x)[0].sin(), truth(x.double())[0].sin()
        for call in range(3):
            place.same(compiled(x), want, right, f"call {call}")
