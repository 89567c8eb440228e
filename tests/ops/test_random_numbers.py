"""Rules of random operators: Philox's bits, the named distributions, and eager's errors."""

import math

import numpy as np
import pytest
import torch

from burnish.codegen.math.expand_operations import expand
from burnish.compiler.adapters.eager_with_compiled_rng import bits_of, call_with_compiled_rng
from burnish.ops.operator_record import NoRule, record
from burnish.ops.random_numbers import OPERATORS
from burnish.ops.scalar_ir import Access, load, random_bits, walk
from burnish.runtime.eager import eager_philox as plain
from burnish.runtime.eager.drawing_calls import draws_nothing
from burnish.settings import patch
from tests.ops.scalar_ir_evaluator import evaluated

COUNT = 200_000


def drawn(function, *args, seed=0, **kwargs):
    torch.manual_seed(seed)
    return call_with_compiled_rng(function, args, kwargs)


def distance(sample, cumulative):
    """Kolmogorov and Smirnov's: the largest difference to the cumulative distribution, times the root of the count."""
    x = np.sort(sample.double().numpy())
    expected = cumulative(x)
    ranks = np.arange(len(x) + 1) / len(x)
    return float(max((ranks[1:] - expected).max(), (expected - ranks[:-1]).max())) * math.sqrt(len(x))


# One sample in a hundred thousand is further away; the seeds are fixed.
FAR = 2.5
normal_below = np.vectorize(lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2))))


# -- bits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key,counter,words",
    [
        # The test vectors that come with the authors' own code.
        ((0, 0), (0, 0), (0x6627E8D5, 0xE169C58D))
    ],
)
def test_bits_are_those_of_the_published_cipher(key, counter, words):
    seed = torch.tensor(key[0] | key[1] << 32)
    bits = plain.random_bits(seed, (1 + counter[0],))[counter[0]]
    assert (int(bits) & 0xFFFFFFFF, int(bits) >> 32 & 0xFFFFFFFF) == words


def philox(key, counter):
    """Written down once more from the paper, on Python's integers."""
    words, (k0, k1) = list(counter), key
    for _ in range(10):
        low, high = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [(high >> 32) ^ words[1] ^ k0, high & 0xFFFFFFFF, (low >> 32) ^ words[3] ^ k1, low & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return words


def test_the_reference_philox_gives_the_published_values():
    assert philox((0, 0), (0, 0, 0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox((ones, ones), (ones,) * 4) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox((0xA4093822, 0x299F31D0), (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)) == [
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    ]


@pytest.mark.parametrize("seed", [0, 1, 0x243F6A8885A308D3, (1 << 63) - 1, 1 << 32, 0xFFFFFFFF])
def test_expansion_and_plain_function_and_kernel_give_the_ciphers_bits(seed):
    counters = [0, 1, 2, 255, 4095, 16383, 16384, 40000]
    wanted = [philox((seed & 0xFFFFFFFF, seed >> 32), (n, 0, 0, 0)) for n in counters]
    wanted = torch.tensor([np.int64(np.uint64(w[0] | w[1] << 32)) for w in wanted])
    number, count = torch.tensor(seed), counters[-1] + 1
    assert torch.equal(plain.random_bits(number, (count,))[counters], wanted)
    assert torch.equal(bits_of(number, (count,))[counters], wanted)
    element = expand(random_bits(load("i64", Access(0, 0, (1,))), load("i64", Access(1, 0, (1,)))))
    buffers = [torch.full((len(counters),), seed), torch.tensor(counters)]
    assert torch.equal(evaluated(element, buffers), wanted)


def test_counters_beyond_32_bits_are_distinguished():
    element = expand(random_bits(load("i64", Access(0, 0, (1,))), load("i64", Access(1, 0, (1,)))))
    counters = [5, 5 + (1 << 32), 5 + (1 << 40)]
    found = evaluated(element, [torch.full((3,), 7), torch.tensor(counters)])
    wanted = [philox((7, 0), (n & 0xFFFFFFFF, n >> 32, 0, 0)) for n in counters]
    assert found.tolist() == [int(np.int64(np.uint64(w[0] | w[1] << 32))) for w in wanted]


def test_expansion_is_made_of_base_operations():
    element = expand(random_bits(load("i64", Access(0, 0, (0,))), load("i64", Access(1, 0, (1,)))))
    assert {x.op for x in walk(element)} <= {"load", "const", "add", "mul", "and", "or", "xor", "shl", "shr"}


# -- distributions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_uniform_numbers_are_uniform_and_below_one(dtype):
    x = drawn(torch.rand, COUNT, dtype=dtype)
    steps = 2 ** {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}[dtype]
    assert x.dtype is dtype and float(x.min()) >= 0 and float(x.max()) <= 1 - 1 / steps
    assert torch.equal(x.double() * steps, (x.double() * steps).round()), "not a multiple of the smallest step"
    # The steps themselves are a distance: half a step is added so that it counts once.
    assert distance(x.double() + torch.rand(COUNT, dtype=torch.float64) / steps, lambda x: np.clip(x, 0, 1)) < FAR


@pytest.mark.parametrize("low,high", [(-2.0, 3.0), (5.0, 5.5), (1.0, 1.0)])
def test_uniform_numbers_keep_between_their_bounds(low, high):
    x = drawn(torch.Tensor.uniform_, torch.empty(COUNT), low, high)
    assert float(x.min()) >= low and float(x.max()) <= high
    if low < high:
        assert distance(x, lambda x: np.clip((x - low) / (high - low), 0, 1)) < FAR


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_numbers_are_normal(dtype):
    x = drawn(torch.randn, COUNT, dtype=dtype)
    assert x.dtype is dtype and bool(torch.isfinite(x).all())
    assert distance(x, normal_below) < FAR
    assert abs(float(x.mean())) < 4 / math.sqrt(COUNT)
    assert abs(float(x.var()) - 1) < 4 * math.sqrt(2 / COUNT)
    assert abs(float((x.double() ** 4).mean()) - 3) < 4 * math.sqrt(96 / COUNT)


def test_normal_numbers_have_far_tails():
    x = drawn(torch.randn, 2_000_000)
    assert 4.4 < float(x.max()) < 7 and -7 < float(x.min()) < -4.4


def test_normal_numbers_have_the_requested_mean_and_deviation():
    x = drawn(torch.Tensor.normal_, torch.empty(COUNT), 3.0, 0.25)
    assert distance((x - 3) / 0.25, normal_below) < FAR
    y = drawn(torch.normal, torch.arange(4.0).repeat_interleave(COUNT // 4), 0.5)
    assert distance((y.view(4, -1) - torch.arange(4.0)[:, None]).flatten() / 0.5, normal_below) < FAR


@pytest.mark.parametrize("p", [0.0, 1e-4, 0.1, 0.5, 0.9, 1.0])
def test_chances_come_true_as_often_as_they_should(p):
    x = drawn(torch.Tensor.bernoulli_, torch.empty(COUNT), p)
    assert abs(float(x.double().mean()) - p) <= 4 * math.sqrt(p * (1 - p) / COUNT)
    assert set(x.unique().tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize(
    "low,high,dtype",
    [
        (0, 10, torch.int64),
        (-3, 4, torch.int32),
        (0, 256, torch.uint8),
        (0, 2, torch.int64),
        (5, 6, torch.int8),
        (0, 100, torch.float32),
        (-(1 << 40), 1 << 40, torch.int64),
        (0, (1 << 31) + 5, torch.int64),
    ],
)
def test_integers_come_equally_often_and_keep_between_their_bounds(low, high, dtype):
    x = drawn(torch.randint, low, high, (COUNT,), dtype=dtype)
    assert x.dtype is dtype and int(x.min()) >= low and int(x.max()) <= high - 1
    n = high - low
    if n <= 256:
        counts = torch.bincount(x.long() - low, minlength=n).double()
        chi = float(((counts - COUNT / n) ** 2 / (COUNT / n)).sum())
        assert abs(chi - (n - 1)) <= 5 * math.sqrt(2 * max(n - 1, 1)), "chi squared is off"
    else:
        assert distance((x.double() - low) / n, lambda x: np.clip(x, 0, 1)) < FAR


def test_neighbours_and_seeds_have_nothing_to_do_with_each_other():
    x, y = drawn(torch.randn, COUNT, seed=1).double(), drawn(torch.randn, COUNT, seed=2).double()
    bound = 4 / math.sqrt(COUNT)
    for a, b in ((x[1:], x[:-1]), (x[64:], x[:-64]), (x, y), (x[1:] ** 2 - 1, x[:-1] ** 2 - 1)):
        assert abs(float((a * b).mean())) < bound * float(a.std() * b.std())


def test_two_samples_differ_and_a_seed_repeats_them():
    a, b = drawn(torch.rand, 100), call_with_compiled_rng(torch.rand, (100,), {})
    assert not torch.equal(a, b)
    assert torch.equal(drawn(torch.rand, 100), a) and torch.equal(call_with_compiled_rng(torch.rand, (100,), {}), b)


# -- cases left to eager -----------------------------------------------------------------------------------------------


def test_a_generator_of_the_programs_own_gives_its_own_numbers():
    generator = torch.Generator().manual_seed(3)
    found = call_with_compiled_rng(torch.rand, (5,), {"generator": generator})
    assert torch.equal(found, torch.rand(5, generator=torch.Generator().manual_seed(3)))


def test_the_setting_gives_eagers_numbers():
    with patch(eager_random=True):
        found = drawn(torch.rand, 5)
    torch.manual_seed(0)
    assert torch.equal(found, torch.rand(5))


@pytest.mark.parametrize(
    "function,args",
    [
        (torch.Tensor.uniform_, (torch.empty(3), 2.0, 1.0)),
        (torch.Tensor.normal_, (torch.empty(3), 0.0, -1.0)),
        (torch.Tensor.bernoulli_, (torch.empty(3), 1.5)),
        (torch.randint, (5, 5, (3,))),
        (torch.randint, (0, 1000, (3,))),
        (torch.bernoulli, (torch.tensor([2.0]),)),
        (torch.nn.functional.dropout, (torch.ones(3), 1.5)),
    ],
)
def test_refused_calls_raise_eagers_errors(function, args):
    kwargs = {"dtype": torch.uint8} if function is torch.randint and args[1] == 1000 else {}
    with pytest.raises(Exception) as wanted:
        function(*args, **kwargs)
    with pytest.raises(type(wanted.value)) as found:
        call_with_compiled_rng(function, args, kwargs)
    assert str(found.value) == str(wanted.value)


def test_every_operator_with_a_rule_is_one_of_torch():
    for name in OPERATORS:
        _, packet, overload = name.split(".")
        target = getattr(getattr(torch.ops.aten, packet), overload)
        assert torch.Tag.nondeterministic_seeded in target.tags, name
        assert record(name).decompose is not None


def test_no_rule_applies_when_eagers_numbers_are_requested():
    class Builder:
        def apply(self, *args):
            pytest.fail("something was drawn")

    with patch(eager_random=True), pytest.raises(NoRule):
        record("aten.rand.default").decompose(Builder(), [3])


X, STEPS = torch.ones(4, 6), torch.ones(3, 2, 6)
F = torch.nn.functional


def recurrent(kind, dropout, training, is_packed=False):
    layer = getattr(torch.nn, kind)(6, 6, 2)
    state = torch.zeros(2, 2, 6)
    data = (STEPS.flatten(0, 1), torch.tensor([2, 2, 2])) if is_packed else (STEPS,)
    states = (state, state) if kind == "LSTM" else state
    rest = (True, 2, dropout, training, False) + (() if is_packed else (False,))
    return *data, states, layer._flat_weights, *rest


def attention(dropout, **kwargs):
    layer = torch.nn.MultiheadAttention(6, 2)
    weights = (layer.in_proj_weight, layer.in_proj_bias, None, None, False, dropout, layer.out_proj.weight, None)
    return F.multi_head_attention_forward, (STEPS, STEPS, STEPS, 6, 2, *weights), kwargs


@pytest.mark.parametrize(
    "call,draws",
    [
        ((torch.dropout, (X, 0.0, True), {}), False),
        ((torch.dropout, (X, 0.5, False), {}), False),
        ((torch.dropout, (X, 0.5, True), {}), True),
        ((F.dropout, (X,), {}), True),
        ((F.dropout, (X,), {"p": 0.0}), False),
        ((F.alpha_dropout, (X, 0.5), {"training": True}), True),
        ((F.feature_alpha_dropout, (X, 0, True), {}), False),
        ((F.dropout2d, (torch.ones(1, 2, 3, 3), 0.0), {}), False),
        ((torch.native_dropout, (X, 0.0, True), {}), True),
        ((torch.lstm, recurrent("LSTM", 0.0, True), {}), False),
        ((torch.lstm, recurrent("LSTM", 0.5, False), {}), False),
        ((torch.lstm, recurrent("LSTM", 0.5, True), {}), True),
        ((torch.lstm, recurrent("LSTM", 0.0, True, is_packed=True), {}), False),
        ((torch.lstm, recurrent("LSTM", 0.5, True, is_packed=True), {}), True),
        ((torch.gru, recurrent("GRU", 0.0, True), {}), False),
        ((torch.gru, recurrent("GRU", 0.5, True, is_packed=True), {}), True),
        ((torch.rnn_tanh, recurrent("RNN", 0.5, True), {}), True),
        ((torch.rnn_tanh, recurrent("RNN", 0.5, False, is_packed=True), {}), False),
        (attention(0.0), False),
        (attention(0.5, training=False), False),
        (attention(0.5), True),
        ((F.normalize, (X,), {}), False),
    ],
)
def test_calls_that_draw_nothing_are_known(call, draws):
    """They run unchanged where eager stands for compiled code, and so in its contest."""
    function, args, kwargs = call
    state = torch.get_rng_state()
    function(*args, **kwargs)
    assert torch.equal(torch.get_rng_state(), state) == (not draws)
    assert draws_nothing(function.__name__, args, kwargs) == (not draws)
