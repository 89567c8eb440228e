"""Global settings of torch that the function changes: set in order with the operations, and seen by what follows."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import burnish
from burnish.runtime.eager import setting_change_nodes

from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_deterministic_algorithms_are_asked_for_and_given_back():
    def fn(x, warns):
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True, warn_only=warns)
        try:
            inside = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
            y = x.sin() * 2
        finally:
            torch.use_deterministic_algorithms(before)
        return y, inside, torch.are_deterministic_algorithms_enabled()

    return fn, [(torch.randn(3), flag) for flag in (False, True, False)]


@program(breaks=0)
def test_default_dtype_decides_what_factories_make():
    def fn(x, dtype):
        before = torch.get_default_dtype()
        y = torch.ones(2)
        torch.set_default_dtype(dtype)
        z = torch.ones(2), torch.tensor(1.5), torch.arange(2) / 2
        torch.set_default_dtype(before)
        return y, z, torch.zeros(1) + x

    return fn, [(torch.randn(1), d) for d in (torch.float64, torch.float64, torch.float32, torch.float64)]


@program
def test_a_setting_that_stays_changed():
    def fn(x):
        torch.set_warn_always(True)
        return x * 2, torch.is_warn_always_enabled()

    return fn, [(torch.ones(2),)] * 3, lambda: (torch.is_warn_always_enabled(), torch.set_warn_always(False))[0]


@program
def test_a_break_between_setting_and_resetting():
    def fn(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(2)
        if x.sum() > 0:
            y = y * 2
        z = torch.ones(1)
        torch.set_default_dtype(torch.float32)
        return y, z, torch.ones(1)

    return fn, [(torch.ones(2),), (-torch.ones(2),), (torch.ones(2),)]


@program
def test_an_error_under_a_setting_leaves_what_eager_leaves():
    def fn(x, index):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(2)[index]
        torch.set_default_dtype(torch.float32)
        return y + x

    calls = [(torch.ones(1), torch.tensor(i)) for i in (0, 1, 7, 0)]
    return fn, calls, lambda: (torch.get_default_dtype(), torch.set_default_dtype(torch.float32))[0]


@program
def test_an_error_that_is_handled_sees_the_settings_of_eager():
    def fn(x, index):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            y = torch.ones(2)[index]
        except IndexError:
            y = torch.zeros(1)
        finally:
            torch.set_default_dtype(before)
        return y, torch.get_default_dtype()

    return fn, [(torch.ones(1), torch.tensor(i)) for i in (0, 1, 7, 0)]


@program_with_caller
def test_settings_of_the_caller_are_guarded_although_the_function_changes_them():
    def fn(x):
        before = torch.backends.mkldnn.deterministic
        torch._C._set_mkldnn_deterministic(True)
        inside = torch._C._get_mkldnn_deterministic()
        torch._C._set_mkldnn_deterministic(before)
        return x * (2 if before else 3), before, inside, torch._C._get_mkldnn_deterministic()

    def caller(fn, x, flag):
        torch._C._set_mkldnn_deterministic(flag)
        try:
            return fn(x)
        finally:
            torch._C._set_mkldnn_deterministic(False)

    return fn, caller, [(torch.ones(2), flag) for flag in (False, True, False, True)]


@program(breaks=0)
def test_kernels_of_attention_are_chosen_inside():
    def fn(x, kernels):
        with sdpa_kernel(kernels):
            y = F.scaled_dot_product_attention(x, x, x)
            inside = torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled()
        return y, inside, torch.backends.cuda.flash_sdp_enabled()

    math, flash = SDPBackend.MATH, SDPBackend.FLASH_ATTENTION
    return fn, [(torch.randn(1, 2, 4, 8), kernels) for kernels in ([math], [math, flash], [math], [math])]


@program(breaks=0)
def test_onednn_is_switched_off_for_a_product():
    def fn(x):
        with torch.backends.mkldnn.flags(enabled=False, allow_tf32=False):
            y = x @ x
        return y, x @ x

    return fn, [(torch.randn(3, 3),)] * 3


@program(breaks=0)
def test_precision_of_products_is_set_inside():
    def fn(x, precision):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        y = x @ x
        inside = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(before)
        return y, inside, torch.get_float32_matmul_precision()

    return fn, [(torch.randn(3, 3), p) for p in ("high", "highest", "high")]


@program(breaks=0)
def test_seed_is_set_between_draws():
    def fn(x, seed):
        before = torch.rand(2)
        torch.manual_seed(seed)
        return before, torch.rand(2) + x, torch.randn(3)

    return fn, [(torch.ones(2), s) for s in (3, 3, 4)]


@program(breaks=0)
def test_generator_that_manual_seed_returns_is_the_default_one():
    def fn(x):
        generator = torch.manual_seed(5)
        return torch.rand(2) + x, generator is torch.default_generator

    return fn, [(torch.ones(2),)] * 3


@program
def test_a_setting_with_sizes_that_change():
    def fn(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(x.shape)
        torch.set_default_dtype(torch.float32)
        return y, torch.ones(x.shape) + x

    return fn, [(torch.ones(n),) for n in (3, 4, 5, 6)]


def test_number_of_gpus_follows_the_environment(monkeypatch):
    def fn(x):
        return x + torch.cuda.device_count()

    assert burnish.explain(fn)(torch.ones(2)).graph_break_count == 0
    compiled = burnish.compile(fn, fullgraph=True)
    for visible in ("", "", "0", None, ""):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))


def test_kernels_for_attention_are_chosen_in_the_graph_of_another_backend():
    def fn(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = F.scaled_dot_product_attention(x, x, x)
        return y + 1

    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    before = setting_change_nodes.values()
    for size in (3, 3, 4, 5, 6):
        x = torch.linspace(0, 1, 8 * size).reshape(1, 2, size, 4)
        torch.testing.assert_close(compiled(x), fn(x))
    assert setting_change_nodes.values() == before
    assert len(graphs) == 2


def as_set(change, ask, values):
    """The results of queries of a setting, while the caller changes it."""
    compiled = burnish.compile(lambda x: (x * 2, ask()))
    before = ask()
    try:
        for value in values:
            change(value)
            assert compiled(torch.ones(1))[1] == ask()
    finally:
        change(before)


def test_switches_that_torch_keeps_in_its_modules_and_classes():
    from torch.distributions import Distribution

    as_set(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled, (False, True, False))
    as_set(Distribution.set_default_validate_args, lambda: Distribution._validate_args, (False, True, False))
    future = torch.__future__
    change, ask = future.set_overwrite_module_params_on_conversion, future.get_overwrite_module_params_on_conversion
    as_set(change, ask, (True, False, True))
    as_set(torch.hub.set_dir, torch.hub.get_dir, ("here", "there", "here"))


@pytest.mark.falls_back("refused")  # nested tensors
def test_the_switch_of_the_fast_path_decides_how_padding_is_computed():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval()
    compiled, x, padding = burnish.compile(encoder), torch.randn(2, 3, 8), torch.tensor([[False, False, True]] * 2)
    try:
        for is_fast in (True, False, True, False):
            torch.backends.mha.set_fastpath_enabled(is_fast)
            with torch.no_grad():
                torch.testing.assert_close(
                    compiled(x, src_key_padding_mask=padding), encoder(x, src_key_padding_mask=padding)
                )
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_checks_of_sparse_tensors_are_switched_inside_and_outside():
    checks = torch.sparse.check_sparse_tensor_invariants

    def inside(x, is_on):
        with checks(is_on):
            y = x * 2, checks.is_enabled()
        checks.enable()
        return y, checks.is_enabled()

    as_set(lambda value: checks.enable() if value else checks.disable(), checks.is_enabled, (True, False, True))
    compiled = burnish.compile(inside)
    try:
        for is_on in (True, False, True, True):
            checks.disable()
            assert compiled(torch.ones(1), is_on) == inside(torch.ones(1), is_on)
            checks.disable()
            compiled(torch.ones(1), is_on)
            assert checks.is_enabled()
    finally:
        checks.disable()


def test_default_tensor_type_is_set_in_each_call():
    def fn(x):
        torch.set_default_tensor_type(torch.DoubleTensor)
        return x * 2, torch.ones(1)

    compiled = burnish.compile(fn)
    try:
        for _ in range(3):
            torch.set_default_dtype(torch.float32)
            assert compiled(torch.ones(1))[1].dtype is torch.float64 is torch.get_default_dtype()
    finally:
        torch.set_default_dtype(torch.float32)
