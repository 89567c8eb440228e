"""The launch function of GPU kernels, with a fake driver that records its arguments: no GPU is needed."""

import ctypes

import pytest

pytest.importorskip("triton")

from burnish.codegen.llvm.kernel_sequence import compile_sequence
from burnish.codegen.triton.launch_function import launching
from burnish.runtime.linking import cuda_module_loader

LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_uint32] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)


class Driver:
    """Remembers each launch: the function, the grid, the threads, the shared bytes, the stream, the parameters."""

    def __init__(self, parameters, answer=0):
        self.launches = []

        @LAUNCH
        def launch(function, x, y, z, threads, ty, tz, shared, stream, places, extra):
            at = ctypes.cast(places, ctypes.POINTER(ctypes.POINTER(ctypes.c_int64)))
            self.launches.append(
                (function, (x, y, z), (threads, ty, tz), shared, stream, [at[k][0] for k in range(parameters)])
            )
            return answer

        self.function = launch
        self.address = ctypes.cast(launch, ctypes.c_void_p).value


def words(kinds, grid=7, second=cuda_module_loader.CudaFunction(888, 32)):
    return cuda_module_loader.words_of(cuda_module_loader.CudaFunction(777, 2048), grid, 128, kinds, lambda: second)


@pytest.fixture(autouse=True)
def no_failure():
    cuda_module_loader.failure.value = 0
    yield
    cuda_module_loader.failure.value = 0


def test_the_driver_gets_addresses_numbers_and_null():
    driver = Driver(4)
    number = ctypes.c_double(2.5)
    described = words(
        [cuda_module_loader.POINTER, cuda_module_loader.NUMBER, cuda_module_loader.POINTER, cuda_module_loader.NOTHING]
    )
    kernel = launching("k", 3, driver.address)
    kernel(described.address, 4711, 1024, ctypes.addressof(number), 4096)
    bits = ctypes.c_int64.from_address(ctypes.addressof(number)).value
    assert driver.launches == [(777, (7, 1, 1), (128, 1, 1), 2048, 4711, [1024, bits, 4096, 0])]
    assert cuda_module_loader.failure.value == 0


def test_sizes_are_read_from_consecutive_words():
    driver = Driver(5)
    kinds = [
        cuda_module_loader.POINTER,
        cuda_module_loader.SIZE,
        cuda_module_loader.SIZE,
        cuda_module_loader.NOTHING,
        cuda_module_loader.SIZE,
    ]
    described = cuda_module_loader.words_of(
        cuda_module_loader.CudaFunction(777, 0),
        7,
        128,
        kinds,
        lambda: cuda_module_loader.CudaFunction(0, 0),
        [33, 1 << 40, -5],
    )
    launching("k", 1, driver.address)(described.address, 4711, 1024)
    assert driver.launches == [(777, (7, 1, 1), (128, 1, 1), 0, 4711, [1024, 33, 1 << 40, 0, -5])]


def test_the_maker_of_the_other_form_is_freed_with_the_words():
    described = words([cuda_module_loader.POINTER])
    address = described.address
    assert address in cuda_module_loader._launched
    del described
    assert address not in cuda_module_loader._launched


def test_a_buffer_that_begins_anywhere_gets_the_other_form_which_is_made_once():
    driver, made = Driver(1), []

    def second():
        made.append(1)
        return cuda_module_loader.CudaFunction(888, 32)

    described = cuda_module_loader.words_of(
        cuda_module_loader.CudaFunction(777, 2048), 7, 128, [cuda_module_loader.POINTER], second
    )
    kernel = launching("k", 1, driver.address)
    for address in (1024, 1028, 1032, 2048):
        kernel(described.address, 0, address)
    assert [(launch[0], launch[3]) for launch in driver.launches] == [(777, 2048), (888, 32), (888, 32), (777, 2048)]
    assert made == [1]


def test_where_that_cannot_be_made_nothing_is_launched_and_it_is_said(capsys):
    driver = Driver(1)
    described = cuda_module_loader.words_of(
        cuda_module_loader.CudaFunction(777, 0),
        7,
        128,
        [cuda_module_loader.POINTER],
        lambda: cuda_module_loader.CudaFunction(0, 0),
    )
    launching("k", 1, driver.address)(described.address, 0, 1028)
    assert driver.launches == [] and cuda_module_loader.failure.value == cuda_module_loader.MISALIGNED
    with pytest.raises(RuntimeError, match="multiple of 16 bytes"):
        cuda_module_loader.raise_launch_error()
    assert cuda_module_loader.failure.value == 0


def test_the_error_that_kept_it_from_being_made_is_the_cause():
    driver = Driver(1)

    def broken():
        raise ValueError("no code for this")

    described = cuda_module_loader.words_of(
        cuda_module_loader.CudaFunction(777, 0), 7, 128, [cuda_module_loader.POINTER], broken
    )
    launching("k", 1, driver.address)(described.address, 0, 1028)
    with pytest.raises(RuntimeError, match="multiple of 16 bytes") as caught:
        cuda_module_loader.raise_launch_error()
    assert str(caught.value.__cause__) == "no code for this" and driver.launches == []


def test_driver_errors_are_stored_for_python_to_raise():
    driver = Driver(1, answer=701)
    described = words([cuda_module_loader.POINTER])
    launching("k", 1, driver.address)(described.address, 0, 1024)
    assert cuda_module_loader.failure.value == 701


def test_a_thread_without_a_context_gets_that_of_the_kernels_gpu_and_launches_once_more(monkeypatch):
    asked = []
    monkeypatch.setattr(cuda_module_loader, "make_context_current", asked.append)
    driver = Driver(1, answer=cuda_module_loader.NO_CONTEXT)
    described = cuda_module_loader.words_of(
        cuda_module_loader.CudaFunction(777, 0), 7, 128, [cuda_module_loader.POINTER], lambda: None, device=1
    )
    launching("k", 1, driver.address)(described.address, 0, 1024)
    assert asked == [1] and len(driver.launches) == 2 and driver.launches[0] == driver.launches[1]
    assert cuda_module_loader.failure.value == cuda_module_loader.NO_CONTEXT  # the driver refused again


def test_why_no_context_could_be_made_current_is_the_cause(monkeypatch):
    def broken(device):
        raise RuntimeError("no such GPU")

    monkeypatch.setattr(cuda_module_loader, "make_context_current", broken)
    monkeypatch.setattr(cuda_module_loader, "explained", str)
    described = words([cuda_module_loader.POINTER])
    driver = Driver(1, answer=cuda_module_loader.NO_CONTEXT)
    launching("k", 1, driver.address)(described.address, 0, 1024)
    with pytest.raises(RuntimeError, match="201") as caught:
        cuda_module_loader.raise_launch_error()
    assert str(caught.value.__cause__) == "no such GPU"


def test_a_kernel_with_nothing_to_do_is_not_launched():
    driver = Driver(1)
    described = words([cuda_module_loader.POINTER], grid=0)
    launching("k", 1, driver.address)(described.address, 0, 1024)
    assert driver.launches == []


def test_launches_are_steps_of_a_sequence():
    driver = Driver(1)
    first, second = words([cuda_module_loader.POINTER]), words([cuda_module_loader.POINTER], grid=3)
    kernel = launching("k", 1, driver.address)
    # Slots: nothing, stream, a buffer. The words are written into the program, as numbers behind nothing.
    run = compile_sequence([(kernel, [(0, first), 1, 2]), (kernel, [(0, second), 1, (2, 512)])])
    run(run.table(0, 99, 1024))
    assert [(launch[1][0], launch[4], launch[5]) for launch in driver.launches] == [(7, 99, [1024]), (3, 99, [1536])]
