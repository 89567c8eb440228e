"""Text in memory: StringIO and BytesIO objects made in the program, and print() that goes to one."""

import contextlib
import io
import sys

import torch

import burnish

from .harness import program


@program(breaks=0)
def test_text_is_written_and_read_in_the_graph():
    def fn(x, k):
        text = io.StringIO()
        text.write("shape ")
        print(tuple(x.shape), k, file=text, end="!")
        data = io.BytesIO(b"abc")
        data.seek(1)
        data.write(b"z")
        return x * 2, text.getvalue(), data.getvalue(), data.tell()

    return fn, lambda i: (torch.ones(2 + i % 2), i)


@program(breaks=0)
def test_a_stream_leaves_the_graph_with_its_text_and_position():
    def fn(x):
        text = io.StringIO("one two")
        text.read(4)
        return x + 1, text

    def read(x):
        y, text = fn(x)
        return y, text.tell(), text.read(), text.getvalue()

    return read, lambda i: (torch.ones(2),)


@program(breaks=0)
def test_redirected_output_goes_to_a_stream_made_here():
    def fn(x):
        print("before")
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            print("inside", x.shape[0])
        print("after")
        return x * 2, shown.getvalue()

    return fn, lambda i: (torch.ones(2),)


@program
def test_redirected_output_goes_to_an_outside_stream():
    outside = io.StringIO()

    def fn(x):
        print("before")
        with contextlib.redirect_stdout(outside):
            print("inside", x.shape[0])
        return x * 2

    def read(x):
        y = fn(x)
        return y, outside.getvalue()

    return read, lambda i: (torch.ones(2),)


@program
def test_printing_to_a_file_object_of_the_program():
    class Lines:
        def __init__(self):
            self.lines = []

        def write(self, text):
            self.lines.append(text)

    lines = Lines()

    def fn(x):
        print("a", "b", file=lines)
        return x * 2

    return fn, lambda i: (torch.ones(2),), lines


@program
def test_standard_output_is_replaced_across_a_break():
    def fn(x):
        kept, sys.stdout = sys.stdout, io.StringIO()
        try:
            print("first")
            y = x * 2 if x.sum() > 0 else x
            print("second")
            return y, sys.stdout.getvalue()
        finally:
            sys.stdout = kept

    return fn, lambda i: (torch.ones(2),)


@program
def test_a_stream_is_given_the_data_of_an_array():
    def fn(x):
        y = x * 2
        return y, io.BytesIO(y.numpy()).getvalue()

    return fn, lambda i: (torch.ones(2) + i,)


@program
def test_a_stream_is_given_an_outside_buffer():
    data = bytearray(b"ab")

    def fn(x):
        stream = io.BytesIO()
        stream.write(data)
        data[0] += 1
        return x * 2, stream.getvalue()

    return fn, lambda i: (torch.ones(2),), data


@program
def test_lines_of_an_iterable_of_the_program_are_written():
    class Lines:
        count = 0

        def __iter__(self):
            self.count += 1
            return iter([str(self.count)])

    lines = Lines()

    def fn(x):
        stream = io.StringIO()
        stream.writelines(["a", "b"])
        stream.writelines(str(k) for k in range(x.shape[0]))
        stream.writelines(lines)
        return x * 2, stream.getvalue()

    return fn, lambda i: (torch.ones(2 + i),), lines


@program
def test_data_is_read_into_an_outside_buffer():
    data = bytearray(2)

    def fn(x):
        data[:] = b"00"
        return x * 2, io.BytesIO(b"ab").readinto(data), bytes(data)

    return fn, lambda i: (torch.ones(2),), data


@program
def test_a_stream_keeps_its_attributes_across_a_break():
    def fn(x):
        stream = io.StringIO("ab")
        stream.tag, stream.of = [x + 1], stream
        y = x * 2 if x.sum() > 0 else x
        return y, stream.tag, stream.of is stream, stream.read()

    return fn, lambda i: (torch.ones(2),)


@program
def test_a_stream_with_a_method_of_the_program():
    def fn(x):
        written = []
        stream = io.StringIO()
        stream.write = written.append
        print("a", file=stream)
        stream.writelines(["b"])
        return x * 2, len(written), stream.getvalue()

    return fn, lambda i: (torch.ones(2),)


def test_a_global_stream_that_was_the_standard_output():
    first, second = io.StringIO(), io.StringIO()

    @burnish.compile(backend="eager")
    def fn(x):
        print("a", file=first)
        return x * 2

    for stream in (first, second, second):
        with contextlib.redirect_stdout(stream):
            fn(torch.ones(2))
    assert (first.getvalue(), second.getvalue()) == ("a\na\na\n", "")


def test_a_standard_output_of_the_program():
    class Tee:
        def __init__(self):
            self.lines = []

        def write(self, text):
            self.lines.append(text)

    tee = Tee()

    @burnish.compile(backend="eager")
    def fn(x):
        print("a")
        return x * len(tee.lines)

    for i in range(4):
        with contextlib.redirect_stdout(tee if i else io.StringIO()):
            assert fn(torch.ones(2)).tolist() == [2.0 * i] * 2


def test_printing_to_a_stream_that_is_closed_later():
    stream = io.StringIO()

    @burnish.compile(backend="eager")
    def fn(x):
        try:
            print("a", file=stream)
        except ValueError:
            return x * 0
        return x * 2

    for i in range(4):
        if i == 2:
            stream.close()
        assert fn(torch.ones(2)).tolist() == [2.0 if i < 2 else 0.0] * 2


def test_a_standard_output_whose_class_is_given_a_write():
    class Lines(io.StringIO):
        pass

    lines, written = Lines(), []

    @burnish.compile(backend="eager")
    def fn(x):
        print("a")
        return x * len(written)

    for i in range(4):
        if i == 2:
            Lines.write = lambda self, text: written.append(text)
        with contextlib.redirect_stdout(lines):
            assert fn(torch.ones(2)).tolist() == [2.0 * max(0, i - 1)] * 2
