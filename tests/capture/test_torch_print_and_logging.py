"""print, logging and warnings between torch calls: in order, with the values of that moment."""

import copy
import logging
import sys
import traceback
import warnings

import torch
from torch import nn

from .harness import program


class Kept(logging.Handler):
    """A handler that keeps what was logged, as text."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def logger_with_handler(name, level=logging.INFO):
    logger = logging.getLogger(f"{__name__}.{name}")
    logger.handlers[:], logger.propagate = [Kept()], False
    logger.setLevel(level)
    return logger, logger.handlers[0].lines


@program
def test_prints_of_plain_values():
    def fn(x, k):
        print("in", k, x.shape, x.dtype, sep=" | ")
        y = x * k
        print(f"out {tuple(y.shape)!r:>10} {k:.2f}", end="!\n")
        return y

    return fn, [(torch.ones(2), 1.0), (torch.ones(3), 2.0), (torch.ones(2), 1.0), (torch.ones(2), 7.5)]


@program
def test_prints_a_tensor_before_and_after_a_write():
    def fn(x):
        print("before", x)
        x.add_(1)
        print("after", x)
        view = x[0]
        x.zero_()
        print("view", view, "of", x)
        return x + 1

    return fn, lambda i: (torch.arange(2.0) + i,)


@program
def test_prints_intermediates_that_are_not_returned():
    def fn(x):
        y = x.cumsum(0)
        print(y, y.sum(), y.max().item(), y.tolist())
        z = y * y
        print(z.mean())
        return z - 1

    return fn, lambda i: (torch.arange(3.0) * (i + 1),)


@program
def test_prints_inside_a_loop_and_a_branch():
    def fn(x, n):
        for i in range(n):
            x = x * 2
            print(i, x[0].item())
        if x.sum() > 10:
            print("large")
        else:
            print("small")
        return x

    return fn, [(torch.ones(2), n) for n in (2, 5, 0, 2)]


@program
def test_prints_of_a_helper_and_a_hook_keep_their_order():
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    layer.register_forward_pre_hook(lambda m, args: print("pre", args[0].shape))
    layer.register_forward_hook(lambda m, args, out: print("post", out.detach()))

    def helper(x):
        print("helper in")
        try:
            return layer(x)
        finally:
            print("helper out")

    def fn(x):
        print("start")
        y = helper(x)
        print("end", y.detach() + 1)
        return y

    return fn, lambda i: (torch.ones(1, 1) * i,)


@program
def test_prints_an_object_that_changes_later():
    def fn(x):
        log = [x.shape[0]]
        print(log)
        log.append(x)
        print(log)
        x.mul_(2)
        log.append({"more": log[0]})
        print(log)
        return log

    return fn, lambda i: (torch.ones(2) * i,)


@program
def test_print_to_a_file_object_and_write():
    class Sink:
        def __init__(self):
            self.parts = []

        def write(self, text):
            self.parts.append(text)

    sink = Sink()

    def fn(x):
        print("value", x.sum().item(), file=sink)
        sys.stdout.write("written\n")
        print(repr(x * 2), str(x.dtype), flush=True)
        return x + len(sink.parts)

    return fn, lambda i: (torch.ones(2) * i,), sink


@program
def test_print_before_an_exception_is_preserved():
    def fn(x, y):
        print("adding", x.shape, y.shape)
        z = x + y
        print("added", z.shape)
        return z

    return fn, [(torch.ones(2), torch.ones(n)) for n in (2, 3, 2, 3)]


@program
def test_printed_modules_parameters_and_functions():
    model = nn.Sequential(nn.Linear(2, 1), nn.ReLU())

    def fn(x):
        print(model, sum(p.numel() for p in model.parameters()))
        print([n for n, _ in model.named_parameters()], torch.float32, torch.Size([1, 2]))
        return model(x)

    return fn, lambda i: (torch.randn(1, 2),)


@program
def test_logging_with_levels_and_arguments():
    logger, lines = logger_with_handler("levels")

    def fn(x, k):
        logger.info("shape %s times %d", tuple(x.shape), k)
        y = x * k
        logger.debug("hidden %s", y)
        if logger.isEnabledFor(logging.WARNING) and k > 2:
            logger.warning("sum is %.1f", y.sum())
        return y

    return fn, [(torch.ones(2), k) for k in (1, 3, 2, 3)], lines


@program
def test_logging_a_tensor_at_its_moment():
    logger, lines = logger_with_handler("moment")

    def fn(x):
        logger.info("before %s", x)
        x.add_(1)
        logger.info("after %s", x.tolist())
        return x

    return fn, lambda i: (torch.ones(2) * i,), lines


@program
def test_logged_exception_goes_on():
    logger, lines = logger_with_handler("trouble")

    def fn(x, y):
        try:
            return x @ y
        except RuntimeError:
            logger.exception("no product of %s and %s", tuple(x.shape), tuple(y.shape))
            return x

    return fn, [(torch.ones(2), torch.ones(n)) for n in (2, 3, 2, 3)], lines


class Placed(Kept):
    """... and from where."""

    def emit(self, record):
        error = record.exc_info and record.exc_info[1]
        frames = [at.name for at in traceback.extract_tb(error.__traceback__)] if error else None
        self.lines.append((record.filename, record.lineno, record.funcName, record.getMessage(), repr(error), frames))


@program
def test_records_name_the_line_that_logs_and_the_error_that_is_handled_there():
    logger, lines = logger_with_handler("places")
    logger.handlers[:] = [Placed()]
    lines = logger.handlers[0].lines

    def on_behalf_of_the_caller(text):
        logger.warning(text, stacklevel=2)

    def fails(x):
        raise ValueError(tuple(x.shape))

    def fn(x):
        logger.info("%d values", x.shape[0])
        on_behalf_of_the_caller("careful")
        try:
            fails(x)
        except ValueError:
            logger.exception("did not work")
            logger.error("nor did this", exc_info=True)
        if x.sum() > 0:
            logger.error("behind a break")
        return x + 1

    return fn, lambda i: (torch.ones(2),), lines


@program
def test_warnings_with_category_and_value():
    def fn(x, k):
        if k > 1:
            warnings.warn(f"k is {k}", UserWarning, stacklevel=2)
        y = x * k
        warnings.warn("deprecated", DeprecationWarning, stacklevel=1)
        return y

    return fn, [(torch.ones(2), k) for k in (1, 2, 1, 3)]


@program
def test_warnings_turned_into_errors_inside():
    def fn(x, k):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                if k:
                    warnings.warn("stop", stacklevel=1)
                x = x * 2
            except UserWarning as warning:
                return str(warning), x - 1
        return "went on", x

    return fn, [(torch.ones(2), k) for k in (0, 1, 0, 1)]


@program
def test_warnings_recorded_inside():
    def fn(x):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn(f"saw {x.shape[0]}", stacklevel=1)
            y = x.sum()
        return y, [str(w.message) for w in caught], [w.category.__name__ for w in caught]

    return fn, [(torch.ones(n),) for n in (1, 2, 1)]


@program
def test_print_options_set_inside_are_put_back():
    def fn(x, digits):
        torch.set_printoptions(precision=digits, sci_mode=False)
        try:
            print(x)
            return str(x / 3)
        finally:
            torch.set_printoptions(profile="default")

    return fn, [(torch.ones(2), d) for d in (2, 5, 2)]


@program
def test_text_of_a_tensor_is_used_as_data():
    def fn(x):
        text = f"{x.sum():.1f}/{x.max().item():5.2f}/{x.shape[0]}"
        return x * len(text), text, repr(x), "{}".format(x[0]), "%s" % x[1].item()

    return fn, [(torch.tensor(v),) for v in ([1.0, 2.0], [100.0, 2.5], [-1.0, 0.0])]


@program
def test_records_name_the_line_where_a_function_runs_eagerly():
    logger, _ = logger_with_handler("eagerly")
    logger.handlers[:] = [Placed()]

    def fn(x, i):
        copied = copy.deepcopy([x])
        logger.info("call %d: %d", i, len(copied))
        return x * i

    return fn, lambda i: (torch.ones(2), i), logger.handlers[0].lines
