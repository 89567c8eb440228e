"""``pickle`` of builtin data in the graph, and ``gc.collect()``, which breaks it."""

import collections
import gc
import pickle
import weakref

import torch

from .call_sequences import ordinary
from .harness import program


@program(breaks=0)
def test_builtin_data_is_pickled():
    def fn(x, names):
        found = []
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            data = pickle.dumps(names, protocol)
            found.append(pickle.loads(data))
        found[0].append("own")
        return x + len(data), found

    return fn, lambda i: (torch.randn(3), ["a", {"b": (1, 2.5, None)}, {i}, collections.deque([b"c"])])


@program(breaks=0)
def test_iterators_are_pickled_where_they_are():
    def fn(x):
        iterators = iter([1, 2, 3]), iter((1, 2, 3)), reversed([1, 2, 3]), iter({1: 2, 3: 4, 5: 6}), iter(range(3))
        found = []
        for iterator in iterators:
            first = next(iterator)
            found.append((first, list(pickle.loads(pickle.dumps(iterator))), next(iterator)))
        return x * 2, found

    return fn, ordinary


class Noted:
    loaded = 0

    def __setstate__(self, state):
        Noted.loaded += 1
        self.__dict__.update(state)


@program
def test_objects_of_the_user_are_pickled_by_plain_python():
    def fn(x):
        one = Noted()
        one.value = 3
        other = pickle.loads(pickle.dumps(one))
        return x + other.value, Noted.loaded > 0

    return fn, ordinary


@program
def test_pickles_tell_shared_parts_and_the_order_of_sets():
    text = "ab" * 20
    texts, numbers, data = [text, text], {0, 8}, bytearray(b"ab")

    def fn(x, again):
        if again == 2:
            texts[1] = "".join(["ab"] * 20)
            data[:] = b"cd"
            numbers.clear()
            numbers.update((8, 0))
        n = x.shape[0]
        nested = pickle.loads(pickle.dumps({"t": (n, [n])}))
        return x * n, nested, len(pickle.dumps(texts)), pickle.dumps(numbers), pickle.dumps(data)

    return fn, lambda i: (torch.ones(3 + i), i)


@program(breaks=0)
def test_pickle_that_is_cut_raises_its_error():
    def fn(x):
        try:
            pickle.loads(pickle.dumps([1, 2, 3])[:-2])
        except (EOFError, pickle.UnpicklingError) as error:
            return x + 1, type(error)

    return fn, ordinary


@program
def test_collection_runs_on_every_run():
    ended = []

    class Node:
        def __del__(self):
            ended.append(1)

    node = Node()
    held = [node]
    node.itself, reference = node, weakref.ref(node)
    del node

    def fn(x, i):
        if i == 2:
            held.clear()
        gc.collect()
        return (x * 2 if reference() is None else x), x * len(ended)

    return fn, lambda i: (torch.ones(2), i)


@program
def test_collection_finds_cycles_whose_end_is_seen():
    class Node:
        pass

    def fn(x):
        node = Node()
        node.itself, reference = node, weakref.ref(node)
        del node
        gc.collect()
        return x + 1, reference() is None

    return fn, ordinary
