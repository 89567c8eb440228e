"""Heap polyfills: ``heapq`` for elements that compare in Python, with the comparisons of C code, in its order.

heapq.heappush(heap, Task(3))        # Task.__lt__ is interpreted
"""

from __future__ import annotations


def is_less(heap, left, right):
    """A comparison, which may change the heap."""
    size = len(heap)
    answer = bool(left < right)
    if len(heap) != size:
        raise RuntimeError("list changed size during iteration")
    return answer


def move_to_root(heap, start, at):
    while at > start:
        parent = (at - 1) >> 1
        if not is_less(heap, heap[at], heap[parent]):
            break
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


def move_to_leaf(heap, at):
    """Down to a leaf along the smaller children, then up again as far as needed."""
    start, size = at, len(heap)
    while at < size >> 1:
        child = 2 * at + 1
        if child + 1 < size and not is_less(heap, heap[child], heap[child + 1]):
            child += 1
        heap[at], heap[child] = heap[child], heap[at]
        at = child
    move_to_root(heap, start, at)


def heapify(heap):
    for at in range((len(heap) >> 1) - 1, -1, -1):
        move_to_leaf(heap, at)


def heappush(heap, item):
    heap.append(item)
    move_to_root(heap, 0, len(heap) - 1)


def heappop(heap):
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    return heapreplace(heap, last) if heap else last


def heapreplace(heap, item):
    if not heap:
        raise IndexError("index out of range")
    first, heap[0] = heap[0], item
    move_to_leaf(heap, 0)
    return first


def heappushpop(heap, item):
    if not heap:
        return item
    is_larger = bool(heap[0] < item)
    if is_larger and not heap:
        raise IndexError("index out of range")
    return heapreplace(heap, item) if is_larger else item
