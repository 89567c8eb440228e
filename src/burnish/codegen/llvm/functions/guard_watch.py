"""The native guard check: compares memory with recorded values, and returns objects if all are equal.

    compile_watchers()      C functions: (self, args, count) -> object, METH_FASTCALL as PyMethodDef has it; and
                            the same of a tuple, (self, args) -> object, METH_VARARGS

A segment's guards are about state that hardly ever changes. ``runtime.state_watch.native_watch`` records as numbers
where that state is and what was there; this function reads the numbers and compares. They are data, so there is one
such function in a process, compiled once. Its table is the content of ``self``, a bytes object:

    hits, count of arguments, counts of the sections, None, count of zeros, their base, then the sections
      calls      function, argument, further, mask, answer    torch's switches; further is two numbers of 32 bits
      pins       argument, address                            the argument must be the object at that address
      words      address, word                                ordered so that each keeps alive the next; padded to
                                                              a multiple of WORDS_AT_ONCE
      zeros    half a word each: the offset, in words from the base, of a word that must be 0; padded likewise
      tensors    object, where its description begins         an even number is an address, an odd one an argument
      inputs     object                                       the first tuple of the result
      values     object                                       the second
    descriptions of tensors
      type, offset of the implementation, offset of its autograd data, whether it may be without,
      number of blocks of the one, number of checks of the other,
      the blocks: offset, eight masks, eight words; the checks: offset, mask, word

The result is the pair of tuples, or None if something differs.
"""

from __future__ import annotations

import functools

from ....concurrency.compute_once import once
from ....runtime.program.native_kernels import NativeFunction
from ....runtime.state_watch.native_watch import TUPLE_ITEMS, WORDS_AT_ONCE, load_watchers, reference_count_bits
from ..compile_to_machine_code import object_code
from ..target_cpu import host

# The tuples are allocated before any comparison: allocation may run a garbage collection, and that any code. From the
# first comparison to the last reference taken, no code runs that could change the compared state.
TEMPLATE = """
declare ptr @PyTuple_New(i64)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)

define ptr @watch(ptr %self, ptr %args, i64 %count) {
entry:
  %table = getelementptr i8, ptr %self, i64 32
  %args.at = getelementptr i64, ptr %table, i64 1
  %wanted = load i64, ptr %args.at
  %calls.at = getelementptr i64, ptr %table, i64 2
  %n.calls = load i64, ptr %calls.at
  %pins.at = getelementptr i64, ptr %table, i64 3
  %n.pins = load i64, ptr %pins.at
  %words.at = getelementptr i64, ptr %table, i64 4
  %n.words = load i64, ptr %words.at
  %tensors.at = getelementptr i64, ptr %table, i64 5
  %n.tensors = load i64, ptr %tensors.at
  %inputs.at = getelementptr i64, ptr %table, i64 6
  %n.inputs = load i64, ptr %inputs.at
  %values.at = getelementptr i64, ptr %table, i64 7
  %n.values = load i64, ptr %values.at
  %none.at = getelementptr i64, ptr %table, i64 8
  %none = load ptr, ptr %none.at
  %n.zeros.at = getelementptr i64, ptr %table, i64 9
  %n.zeros = load i64, ptr %n.zeros.at
  %base.at = getelementptr i64, ptr %table, i64 10
  %base = load ptr, ptr %base.at
  %calls = getelementptr i64, ptr %table, i64 11
  %calls.length = mul i64 %n.calls, 5
  %pins = getelementptr i64, ptr %calls, i64 %calls.length
  %pins.length = shl i64 %n.pins, 1
  %words = getelementptr i64, ptr %pins, i64 %pins.length
  %words.length = shl i64 %n.words, 1
  %zeros = getelementptr i64, ptr %words, i64 %words.length
  %zeros.length = lshr i64 %n.zeros, 1
  %tensors = getelementptr i64, ptr %zeros, i64 %zeros.length
  %tensors.length = shl i64 %n.tensors, 1
  %inputs = getelementptr i64, ptr %tensors, i64 %tensors.length
  %values = getelementptr i64, ptr %inputs, i64 %n.inputs
  %first = call ptr @PyTuple_New(i64 %n.inputs)
  %second = call ptr @PyTuple_New(i64 %n.values)
  %pair = call ptr @PyTuple_New(i64 2)
  %no.first = icmp eq ptr %first, null
  %no.second = icmp eq ptr %second, null
  %no.pair = icmp eq ptr %pair, null
  %no.tuple = or i1 %no.first, %no.second
  %no.memory = or i1 %no.tuple, %no.pair
  br i1 %no.memory, label %drop, label %count.args

count.args:
  %same.count = icmp eq i64 %count, %wanted
  br i1 %same.count, label %call.head, label %drop

call.head:
  %c = phi i64 [0, %count.args], [%c.next, %call]
  %c.more = icmp ult i64 %c, %n.calls
  br i1 %c.more, label %call, label %pin.head
call:
  %c.offset = mul i64 %c, 5
  %c.function.at = getelementptr i64, ptr %calls, i64 %c.offset
  %c.function = load ptr, ptr %c.function.at
  %c.argument.at = getelementptr i64, ptr %c.function.at, i64 1
  %c.argument = load i64, ptr %c.argument.at
  %c.second.at = getelementptr i64, ptr %c.function.at, i64 2
  %c.second = load i32, ptr %c.second.at
  %c.third.at = getelementptr i32, ptr %c.second.at, i64 1
  %c.third = load i32, ptr %c.third.at
  %c.mask.at = getelementptr i64, ptr %c.function.at, i64 3
  %c.mask = load i64, ptr %c.mask.at
  %c.answer.at = getelementptr i64, ptr %c.function.at, i64 4
  %c.answer = load i64, ptr %c.answer.at
  %c.found = call i64 %c.function(i64 %c.argument, i32 %c.second, i32 %c.third)
  %c.masked = and i64 %c.found, %c.mask
  %c.same = icmp eq i64 %c.masked, %c.answer
  %c.next = add i64 %c, 1
  br i1 %c.same, label %call.head, label %drop

pin.head:
  %p = phi i64 [0, %call.head], [%p.next, %pin]
  %p.more = icmp ult i64 %p, %n.pins
  br i1 %p.more, label %pin, label %word.head
pin:
  %p.offset = shl i64 %p, 1
  %p.index.at = getelementptr i64, ptr %pins, i64 %p.offset
  %p.index = load i64, ptr %p.index.at
  %p.expected.at = getelementptr i64, ptr %p.index.at, i64 1
  %p.expected = load ptr, ptr %p.expected.at
  %p.found.at = getelementptr ptr, ptr %args, i64 %p.index
  %p.found = load ptr, ptr %p.found.at
  %p.same = icmp eq ptr %p.found, %p.expected
  %p.next = add i64 %p, 1
  br i1 %p.same, label %pin.head, label %drop

word.head:
  %w = phi ptr [%words, %pin.head], [%w.next, %word.{last}]
  %w.more = icmp ult ptr %w, %zeros
  br i1 %w.more, label %word.0, label %zero.head
{compare them}
  %w.next = getelementptr i64, ptr %w, i64 {length}
  br label %word.head

zero.head:
  %n = phi ptr [%zeros, %word.head], [%n.next, %zero]
  %n.more = icmp ult ptr %n, %tensors
  br i1 %n.more, label %zero, label %tensor.head
zero:
{look}
  %n.next = getelementptr i32, ptr %n, i64 {last}
  %n.same = icmp eq i64 %n.{last}.all, 0
  br i1 %n.same, label %zero.head, label %drop

tensor.head:
  %t = phi i64 [0, %zero.head], [%t.next, %tensor.passed]
  %t.more = icmp ult i64 %t, %n.tensors
  br i1 %t.more, label %tensor, label %passed
tensor:
  %t.offset = shl i64 %t, 1
  %t.who.at = getelementptr i64, ptr %tensors, i64 %t.offset
  %t.who = load i64, ptr %t.who.at
  %t.spec.at = getelementptr i64, ptr %t.who.at, i64 1
  %t.spec.offset = load i64, ptr %t.spec.at
  %t.spec = getelementptr i64, ptr %table, i64 %t.spec.offset
  %t.next = add i64 %t, 1
  %t.bit = and i64 %t.who, 1
  %t.is.argument = icmp ne i64 %t.bit, 0
  br i1 %t.is.argument, label %tensor.argument, label %tensor.fixed
tensor.argument:
  %t.index = lshr i64 %t.who, 1
  %t.argument.at = getelementptr ptr, ptr %args, i64 %t.index
  %t.argument = load ptr, ptr %t.argument.at
  br label %tensor.type
tensor.fixed:
  %t.address = inttoptr i64 %t.who to ptr
  br label %tensor.type
tensor.type:
  %object = phi ptr [%t.argument, %tensor.argument], [%t.address, %tensor.fixed]
  %type.at = getelementptr i64, ptr %object, i64 1
  %type = load i64, ptr %type.at
  %s.type = load i64, ptr %t.spec
  %type.same = icmp eq i64 %type, %s.type
  br i1 %type.same, label %tensor.start, label %drop
tensor.start:
  %s.impl.at = getelementptr i64, ptr %t.spec, i64 1
  %s.impl = load i64, ptr %s.impl.at
  %impl.at = getelementptr i8, ptr %object, i64 %s.impl
  %impl = load ptr, ptr %impl.at
  %s.meta.at = getelementptr i64, ptr %t.spec, i64 2
  %s.meta = load i64, ptr %s.meta.at
  %s.without.at = getelementptr i64, ptr %t.spec, i64 3
  %s.without = load i64, ptr %s.without.at
  %s.blocks.at = getelementptr i64, ptr %t.spec, i64 4
  %s.blocks = load i64, ptr %s.blocks.at
  %s.more.at = getelementptr i64, ptr %t.spec, i64 5
  %s.more = load i64, ptr %s.more.at
  %blocks = getelementptr i64, ptr %t.spec, i64 6
  %blocks.length = mul i64 %s.blocks, 17
  %blocks.end = getelementptr i64, ptr %blocks, i64 %blocks.length
  %further.length = mul i64 %s.more, 3
  %further.end = getelementptr i64, ptr %blocks.end, i64 %further.length
  br label %block.head
block.head:
  %b = phi ptr [%blocks, %tensor.start], [%b.next, %block]
  %b.is.end = icmp eq ptr %b, %blocks.end
  br i1 %b.is.end, label %meta.check, label %block
block:
  %b.offset = load i64, ptr %b
  %b.mask.at = getelementptr i64, ptr %b, i64 1
  %b.mask = load <8 x i64>, ptr %b.mask.at, align 8
  %b.expected.at = getelementptr i64, ptr %b, i64 9
  %b.expected = load <8 x i64>, ptr %b.expected.at, align 8
  %b.found.at = getelementptr i8, ptr %impl, i64 %b.offset
  %b.found = load <8 x i64>, ptr %b.found.at, align 8
  %b.difference = xor <8 x i64> %b.found, %b.expected
  %b.masked = and <8 x i64> %b.difference, %b.mask
  %b.differs = icmp ne <8 x i64> %b.masked, zeroinitializer
  %b.any = bitcast <8 x i1> %b.differs to i8
  %b.same = icmp eq i8 %b.any, 0
  %b.next = getelementptr i64, ptr %b, i64 17
  br i1 %b.same, label %block.head, label %drop
meta.check:
  %meta.at = getelementptr i8, ptr %impl, i64 %s.meta
  %meta = load ptr, ptr %meta.at
  %has.none = icmp eq ptr %meta, null
  br i1 %has.none, label %without, label %further.head
without:
  %may.be.without = icmp ne i64 %s.without, 0
  br i1 %may.be.without, label %tensor.passed, label %drop
further.head:
  %k = phi ptr [%blocks.end, %meta.check], [%k.next, %further]
  %k.is.end = icmp eq ptr %k, %further.end
  br i1 %k.is.end, label %tensor.passed, label %further
further:
  %k.offset = load i64, ptr %k
  %k.mask.at = getelementptr i64, ptr %k, i64 1
  %k.mask = load i64, ptr %k.mask.at
  %k.expected.at = getelementptr i64, ptr %k, i64 2
  %k.expected = load i64, ptr %k.expected.at
  %k.found.at = getelementptr i8, ptr %meta, i64 %k.offset
  %k.found = load i64, ptr %k.found.at
  %k.masked = and i64 %k.found, %k.mask
  %k.same = icmp eq i64 %k.masked, %k.expected
  %k.next = getelementptr i64, ptr %k, i64 3
  br i1 %k.same, label %further.head, label %drop
tensor.passed:
  br label %tensor.head

passed:
  %hits = load i64, ptr %table
  %hits.next = add i64 %hits, 1
  store i64 %hits.next, ptr %table
  br label %result.head
result.head:
  %r = phi i64 [0, %passed], [0, %result.next.tuple], [%r.next, %result.store]
  %r.from = phi ptr [%inputs, %passed], [%values, %result.next.tuple], [%r.from, %result.store]
  %r.to = phi ptr [%first, %passed], [%second, %result.next.tuple], [%r.to, %result.store]
  %r.count = phi i64 [%n.inputs, %passed], [%n.values, %result.next.tuple], [%r.count, %result.store]
  %r.more = icmp ult i64 %r, %r.count
  br i1 %r.more, label %result, label %result.end
result:
  %r.who.at = getelementptr i64, ptr %r.from, i64 %r
  %r.who = load i64, ptr %r.who.at
  %r.next = add i64 %r, 1
  %r.bit = and i64 %r.who, 1
  %r.is.argument = icmp ne i64 %r.bit, 0
  br i1 %r.is.argument, label %result.argument, label %result.fixed
result.argument:
  %r.index = lshr i64 %r.who, 1
  %r.argument.at = getelementptr ptr, ptr %args, i64 %r.index
  %r.argument = load ptr, ptr %r.argument.at
  br label %result.store
result.fixed:
  %r.address = inttoptr i64 %r.who to ptr
  br label %result.store
result.store:
  %r.object = phi ptr [%r.argument, %result.argument], [%r.address, %result.fixed]
{count it}  %r.items = getelementptr i8, ptr %r.to, i64 {items}
  %r.slot = getelementptr ptr, ptr %r.items, i64 %r
  store ptr %r.object, ptr %r.slot
  br label %result.head
result.end:
  %is.both = icmp eq ptr %r.to, %second
  br i1 %is.both, label %done, label %result.next.tuple
result.next.tuple:
  br label %result.head
done:
  %pair.first = getelementptr i8, ptr %pair, i64 {items}
  store ptr %first, ptr %pair.first
  %pair.second = getelementptr i64, ptr %pair.first, i64 1
  store ptr %second, ptr %pair.second
  ret ptr %pair

drop:
  call void @Py_DecRef(ptr %first)
  call void @Py_DecRef(ptr %second)
  call void @Py_DecRef(ptr %pair)
  br i1 %no.memory, label %failed, label %refused
failed:
  ret ptr null
refused:
  call void @Py_IncRef(ptr %none)
  ret ptr %none
}

define ptr @watch_tuple(ptr %self, ptr %args) {
  %count.at = getelementptr i64, ptr %args, i64 2
  %count = load i64, ptr %count.at
  %items = getelementptr i8, ptr %args, i64 {items}
  %answer = tail call ptr @watch(ptr %self, ptr %items, i64 %count)
  ret ptr %answer
}
"""


COMPARED = """
word.{k}:
  %w.{k}.address.at = getelementptr i64, ptr %w, i64 {address}
  %w.{k}.address = load ptr, ptr %w.{k}.address.at
  %w.{k}.expected.at = getelementptr i64, ptr %w, i64 {expected}
  %w.{k}.expected = load i64, ptr %w.{k}.expected.at
  %w.{k}.found = load i64, ptr %w.{k}.address
  %w.{k}.same = icmp eq i64 %w.{k}.found, %w.{k}.expected
  br i1 %w.{k}.same, label %word.{next}, label %drop
"""

ZERO_WORDS = """
  %n.{k}.at = getelementptr i32, ptr %n, i64 {k}
  %n.{k}.short = load i32, ptr %n.{k}.at
  %n.{k}.offset = zext i32 %n.{k}.short to i64
  %n.{k}.address = getelementptr i64, ptr %base, i64 %n.{k}.offset
  %n.{k}.found = load i64, ptr %n.{k}.address
  %n.{next}.all = or i64 %n.{k}.all, %n.{k}.found
"""

COUNTED = """
  %r.count.before = load {kind}, ptr %r.object
  %r.count.more = add {kind} %r.count.before, 1
  %r.is.immortal = icmp uge {kind} %r.count.before, {immortal}
  %r.count.after = select i1 %r.is.immortal, {kind} %r.count.before, {kind} %r.count.more
  store {kind} %r.count.after, ptr %r.object
"""
"""Like Py_INCREF: since 3.12 the count is half a word, and an object with such a count is immortal. No other object is
referred to as often."""


def text() -> str:
    last = WORDS_AT_ONCE
    words = "".join(COMPARED.format(k=k, address=2 * k, expected=2 * k + 1, next=k + 1) for k in range(last))
    immortal = 3 << 30 if reference_count_bits == 32 else -1
    counted = COUNTED.format(kind=f"i{reference_count_bits}", immortal=immortal)
    zeros = "".join(ZERO_WORDS.format(k=k, next=k + 1) for k in range(last)).replace("%n.0.all", "0")
    parts = {
        "compare them": f"{words}word.{last}:",
        "look": zeros,
        "last": str(last),
        "length": str(2 * last),
        "count it": counted,
        "items": str(TUPLE_ITEMS),
    }
    return functools.reduce(lambda made, part: made.replace(f"{{{part}}}", parts[part]), parts, TEMPLATE)


@once
def compile_watchers() -> tuple[NativeFunction, NativeFunction]:
    """Compiled once in a process and never freed: checks refer to them."""
    return load_watchers(object_code(text(), host()))
