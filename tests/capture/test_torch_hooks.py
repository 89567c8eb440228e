"""Hooks of modules and tensors: their order, what they replace, and their coming and going between calls."""

import pytest
import torch
from torch import nn
from torch.nn.modules import module as nn_module

import burnish

from .caller_programs import program_with_caller
from .harness import Keywords, program


@program
def test_forward_hook_replaces_the_output():
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda m, args, out: out * 2)
    return layer, lambda i: (torch.randn(1, 2),)


@program
def test_forward_pre_hook_replaces_the_arguments():
    layer = nn.Linear(2, 2)
    layer.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    layer.register_forward_pre_hook(lambda m, args: args[0] * 2)
    return layer, lambda i: (torch.randn(1, 2),)


@program
def test_hooks_with_keyword_arguments():
    class Model(nn.Module):
        def forward(self, x, *, scale=1.0):
            return x * scale

    model = Model()
    model.register_forward_pre_hook(lambda m, args, kw: (args, {"scale": kw.get("scale", 1.0) + 1}), with_kwargs=True)
    model.register_forward_hook(lambda m, args, kw, out: out - kw["scale"], with_kwargs=True)
    return model, [
        (torch.randn(2),),
        (torch.randn(2), Keywords(scale=3.0)),
        (torch.randn(2),),
        (torch.randn(2), Keywords(scale=5.0)),
    ]


@program
def test_hooks_run_in_their_order():
    log = []
    layer = nn.Linear(2, 2)
    for name in "abc":
        layer.register_forward_hook(lambda m, args, out, name=name: log.append(name))
    layer.register_forward_hook(lambda m, args, out: log.append("first"), prepend=True)
    layer.register_forward_pre_hook(lambda m, args: log.append("pre"))
    return layer, lambda i: (torch.randn(1, 2),), log


@program_with_caller
def test_hook_is_added_and_removed_between_calls():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    handles = []

    def caller(fn, x, change):
        if change == "add":
            handles.append(model[0].register_forward_hook(lambda m, args, out: out + 10))
        elif change == "remove":
            handles.pop().remove()
        return fn(x)

    return model, caller, [(torch.randn(1, 2), c) for c in ("", "add", "", "add", "remove", "remove", "")]


@program_with_caller
def test_hook_collects_activations_by_name():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    kept = {}

    def keep(name):
        def hook(m, args, out):
            kept[name] = out.detach()

        return hook

    for name, part in model.named_children():
        part.register_forward_hook(keep(name))

    def caller(fn, x):
        out = fn(x)
        return out, dict(kept)

    return model, caller, lambda i: (torch.randn(2, 2),)


@program_with_caller
def test_global_hooks_see_every_module():
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    log = []

    def caller(fn, x, watch):
        if not watch:
            return fn(x), list(log)
        pre = nn_module.register_module_forward_pre_hook(lambda m, args: log.append("pre " + type(m).__name__))
        post = nn_module.register_module_forward_hook(lambda m, args, out: log.append("post " + type(m).__name__))
        try:
            return fn(x), list(log)
        finally:
            pre.remove()
            post.remove()

    return model, caller, [(torch.randn(1, 2), w) for w in (False, True, False, True)]


@program
def test_exception_in_a_hook_reaches_the_caller():
    layer = nn.Linear(2, 2)

    def check(m, args, out):
        if args[0].shape[0] > 2:
            raise ValueError(f"batch of {args[0].shape[0]}")

    layer.register_forward_hook(check)
    return layer, [(torch.randn(n, 2),) for n in (1, 3, 2, 4)]


@program
def test_always_called_hook_runs_after_a_failure():
    log = []
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda m, args, out: log.append(out is None), always_call=True)

    def fn(x):
        try:
            return layer(x)
        except RuntimeError:
            return "failed"

    return fn, [(torch.randn(1, n),) for n in (2, 3, 2, 3)], log


@program
def test_hook_counts_in_an_attribute_and_branches_on_it():
    layer = nn.Linear(2, 2)
    layer.calls = 0

    def hook(m, args, out):
        m.calls += 1
        if m.calls % 2 == 0:
            return -out

    layer.register_forward_hook(hook)

    def fn(x):
        return layer(x), layer.calls

    return fn, lambda i: (torch.randn(1, 2),)


@program
def test_hook_that_removes_itself():
    layer = nn.Linear(2, 2)
    log = []

    def once(m, args, out):
        handle.remove()
        log.append("ran")
        return out * 0

    handle = layer.register_forward_hook(once)
    return layer, lambda i: (torch.randn(1, 2),), log


@program
def test_hook_reads_data_of_the_output():
    seen = []
    layer = nn.Linear(2, 1)
    layer.register_forward_hook(lambda m, args, out: seen.append(round(out.sum().item(), 4)))

    def fn(x):
        return layer(x) * len(seen)

    return fn, lambda i: (torch.randn(2, 2),), seen


@program
def test_hook_registered_inside_the_function_and_removed():
    layer = nn.Linear(2, 2)

    def fn(x):
        caught = []
        handle = layer.register_forward_hook(lambda m, args, out: caught.append(out * 2))
        try:
            layer(x)
        finally:
            handle.remove()
        return caught[0], layer(x), len(layer._forward_hooks)

    return fn, lambda i: (torch.randn(1, 2),)


@program_with_caller
def test_full_backward_hook_changes_the_gradient():
    layer = nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda m, grad_in, grad_out: (grad_in[0] * 10,))

    def fn(x):
        return layer(x).sin()

    def caller(fn, x):
        layer.zero_grad()
        fn(x).sum().backward()
        return x.grad, layer.weight.grad

    return fn, caller, lambda i: (torch.randn(3, 2, requires_grad=True),)


@program_with_caller
def test_full_backward_pre_hook_is_added_between_calls():
    layer = nn.Linear(2, 2)
    log = []

    def caller(fn, x, hooked):
        handle = layer.register_full_backward_pre_hook(lambda m, grad: log.append(grad[0].sum())) if hooked else None
        fn(x).sum().backward()
        if handle:
            handle.remove()
        return x.grad, list(log)

    return layer, caller, [(torch.randn(1, 2, requires_grad=True), h) for h in (False, True, False, True)]


@program_with_caller
def test_backward_hook_runs_for_a_backward_inside():
    layer = nn.Linear(2, 1)
    log = []
    layer.register_full_backward_hook(lambda m, grad_in, grad_out: log.append(grad_out[0].clone()))

    def fn(x):
        layer(x).sum().mul(3).backward()
        return layer.weight.grad

    def caller(fn, x):
        layer.zero_grad()
        return fn(x).clone(), len(log), log[-1]

    return fn, caller, lambda i: (torch.randn(2, 2, requires_grad=True),)


@program_with_caller
def test_tensor_hook_on_an_intermediate_scales_its_gradient():
    def fn(x, k):
        y = x * 2
        y.register_hook(lambda grad: grad * k)
        return y.sin()

    def caller(fn, x, k):
        fn(x, k).sum().backward()
        return x.grad

    return fn, caller, [(torch.randn(3, requires_grad=True), k) for k in (2, 3, 2, 0.5)]


@program_with_caller
def test_tensor_hook_on_an_argument_from_outside():
    def fn(x):
        return (x * x).sum()

    def caller(fn, x, hooked):
        if hooked:
            x.register_hook(lambda grad: grad.clamp(-1, 1))
        fn(x).backward()
        return x.grad

    return fn, caller, [(torch.randn(4, requires_grad=True), h) for h in (False, True, False, True)]


@program
def test_tensor_hook_inside_with_backward_inside():
    def fn(x):
        log = []
        y = x * 2
        handle = y.register_hook(lambda grad: log.append(grad.sum()))
        y.pow(2).sum().backward(retain_graph=True)
        handle.remove()
        y.sum().backward()
        return log, x.grad

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program_with_caller
def test_hook_after_accumulation_steps_the_parameter():
    layer = nn.Linear(2, 1, bias=False)

    def step(p):
        with torch.no_grad():
            p.sub_(0.1 * p.grad)
        p.grad = None

    layer.weight.register_post_accumulate_grad_hook(step)

    def caller(fn, x):
        fn(x).sum().backward()
        return layer.weight, layer.weight.grad

    return layer, caller, lambda i: (torch.randn(2, 2),)


@program_with_caller
def test_retain_grad_on_an_intermediate():
    def fn(x):
        y = x * 2
        y.retain_grad()
        return y, y.pow(2).sum()

    def caller(fn, x):
        y, loss = fn(x)
        loss.backward()
        return y.grad, x.grad

    return fn, caller, lambda i: (torch.randn(3, requires_grad=True),)


@program
def test_state_dict_hooks_run_inside():
    layer = nn.Linear(2, 2)
    layer.register_state_dict_post_hook(lambda m, state, prefix, meta: state.update({prefix + "extra": torch.ones(1)}))

    def fn(x):
        state = layer.state_dict(prefix="layer.")
        return list(state), x @ state["layer.weight"]

    return fn, lambda i: (torch.randn(1, 2),)


@program_with_caller
def test_hook_on_the_compiled_module_itself():
    model = nn.Sequential(nn.Linear(2, 2))
    model.register_forward_hook(lambda m, args, out: {"out": out, "batch": args[0].shape[0]})

    def caller(fn, x):
        found = fn(x)
        return found["out"] * 2, found["batch"]

    return model, caller, [(torch.randn(n, 2),) for n in (1, 3, 1, 2)]


@pytest.mark.parametrize(
    "returned", [lambda gm: gm, lambda gm: gm.forward, lambda gm: lambda *inputs: gm.forward(*inputs)]
)
def test_a_hook_for_all_modules_does_not_see_a_graph(returned):
    handle = nn_module.register_module_forward_hook(
        lambda m, args, out: (*out, *out) if type(out) is tuple else out * 2
    )
    try:
        compiled = burnish.compile(nn.ReLU(), backend=lambda gm, example_inputs: returned(gm))
        for _ in range(3):
            assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    finally:
        handle.remove()
