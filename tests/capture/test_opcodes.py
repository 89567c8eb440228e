"""This CPython version's instruction set: complete, equal to CPython, resumable between any two instructions."""

from __future__ import annotations

import copy
import dis
import pathlib
import re
import types
from typing import Any

import pytest

from burnish.capture.interpreter import opcodes
from burnish.capture.interpreter.bytecode_decoder import decode, live_locals
from burnish.capture.interpreter.execute_with_given_result import CompletedInstruction
from burnish.capture.interpreter.frames import Generator
from burnish.capture.interpreter.generator_delegation import runs_code_when_closed
from burnish.capture.interpreter.opcodes import handler_registry, instruction_table

from .opcode_interpreters import Forgetting, Machine, Pushing, Rebuilding, start
from .opcode_programs import CASES, generators
from .opcode_programs.exceptions import chain

OPCODES = [name for name, number in dis.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED_")]

# All real opcodes of 3.11 to 3.14 (some in one of them only).
KNOWN = frozenset(
    """
    ASYNC_GEN_WRAP BEFORE_ASYNC_WITH BEFORE_WITH BINARY_OP BINARY_SLICE BINARY_SUBSCR BUILD_CONST_KEY_MAP
    BUILD_INTERPOLATION BUILD_LIST BUILD_MAP BUILD_SET BUILD_SLICE BUILD_STRING BUILD_TEMPLATE BUILD_TUPLE CACHE
    CALL CALL_FUNCTION_EX CALL_INTRINSIC_1 CALL_INTRINSIC_2 CALL_KW CHECK_EG_MATCH CHECK_EXC_MATCH CLEANUP_THROW
    COMPARE_OP CONTAINS_OP CONVERT_VALUE COPY COPY_FREE_VARS DELETE_ATTR DELETE_DEREF DELETE_FAST DELETE_GLOBAL
    DELETE_NAME DELETE_SUBSCR DICT_MERGE DICT_UPDATE END_ASYNC_FOR END_FOR END_SEND ENTER_EXECUTOR EXIT_INIT_CHECK
    EXTENDED_ARG FORMAT_SIMPLE FORMAT_VALUE FORMAT_WITH_SPEC FOR_ITER GET_AITER GET_ANEXT GET_AWAITABLE GET_ITER
    GET_LEN GET_YIELD_FROM_ITER IMPORT_FROM IMPORT_NAME IMPORT_STAR INTERPRETER_EXIT IS_OP JUMP_BACKWARD
    JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP KW_NAMES LIST_APPEND
    LIST_EXTEND LIST_TO_TUPLE LOAD_ASSERTION_ERROR LOAD_ATTR LOAD_BUILD_CLASS LOAD_CLASSDEREF LOAD_CLOSURE
    LOAD_COMMON_CONSTANT LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_FAST_AND_CLEAR LOAD_FAST_BORROW
    LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_FROM_DICT_OR_DEREF
    LOAD_FROM_DICT_OR_GLOBALS LOAD_GLOBAL LOAD_LOCALS LOAD_METHOD LOAD_NAME LOAD_SMALL_INT LOAD_SPECIAL
    LOAD_SUPER_ATTR MAKE_CELL MAKE_FUNCTION MAP_ADD MATCH_CLASS MATCH_KEYS MATCH_MAPPING MATCH_SEQUENCE NOP
    NOT_TAKEN POP_EXCEPT POP_ITER POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
    POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
    POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP
    PRECALL PREP_RERAISE_STAR PRINT_EXPR PUSH_EXC_INFO PUSH_NULL RAISE_VARARGS RERAISE RESERVED RESUME RETURN_CONST
    RETURN_GENERATOR RETURN_VALUE SEND SETUP_ANNOTATIONS SET_ADD SET_FUNCTION_ATTRIBUTE SET_UPDATE STORE_ATTR
    STORE_DEREF STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST STORE_GLOBAL STORE_NAME STORE_SLICE
    STORE_SUBSCR SWAP TO_BOOL UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE
    WITH_EXCEPT_START YIELD_VALUE
""".split()
)

# Only in code that is not a function's: type parameters in class bodies.
BODIES_ONLY = frozenset(("LOAD_FROM_DICT_OR_GLOBALS",))
# Never in co_code as Python shows it.
HIDDEN = frozenset(("CACHE", "EXIT_INIT_CHECK", "EXTENDED_ARG", "INTERPRETER_EXIT"))


# ---- completeness


@pytest.mark.parametrize("name", OPCODES)
def test_every_opcode_has_a_handler_or_a_reason(name):
    assert name in KNOWN
    assert (name in handler_registry.HANDLERS) != bool(instruction_table.why_not_handled(name))


def test_no_handler_is_for_an_opcode_that_no_version_has():
    assert set(handler_registry.HANDLERS) | set(handler_registry.REFUSED) | set(handler_registry.RESOLVERS) <= KNOWN
    assert handler_registry.LOCAL_READS | handler_registry.LOCAL_WRITES | handler_registry.NO_FALL_THROUGH <= KNOWN


def test_the_programs_use_every_handled_opcode():
    used: set[str] = set()
    for function, _ in CASES:
        used |= opcodes_of(function.__code__)
    handled = {name for name in OPCODES if name in handler_registry.HANDLERS}
    assert handled - used <= BODIES_ONLY | HIDDEN


def opcodes_of(co: types.CodeType) -> set[str]:
    found = {i.opname for i in dis.get_instructions(co)}
    for inner in co.co_consts:
        if isinstance(inner, types.CodeType):
            found |= opcodes_of(inner)
    return found


# ---- meaning


def runs() -> list:
    return [
        pytest.param(function, args, id=f"{function.__name__}-{i}")
        for function, calls in CASES
        for i, args in enumerate(calls)
    ]


@pytest.mark.parametrize("machine", [Machine, Pushing, Forgetting, Rebuilding])
@pytest.mark.parametrize("function, args", runs())
def test_interpreted_programs_behave_as_in_python(function, args, machine):
    expected = outcome(lambda: function(*fresh(args)))
    assert outcome(lambda: machine(start(function, fresh(args), {})).run()) == expected


@pytest.mark.parametrize("machine", [Machine, Pushing, Forgetting, Rebuilding])
def test_an_interpreted_generator_function_returns_a_generator(machine):
    def drive(made):
        seen = [next(made), made.send(10), made.send(20)]
        try:
            made.send(30)
        except StopIteration as stop:
            return seen, stop.value

    made = machine(start(generators.top_level, (1, 2, 3, 4), {})).run()
    assert type(made) is Generator
    assert drive(made) == drive(generators.top_level(1, 2, 3, 4))


def test_only_a_try_of_the_program_runs_code_when_a_generator_is_closed():
    def plain():
        yield from [1, 2]

    def guarded():
        try:
            yield from [1, 2]
        finally:
            len("closed")

    suspended = [Machine(start(function, (), {})).run() for function in (plain, guarded)]
    assert [next(made) for made in suspended] == [1, 1]
    assert [runs_code_when_closed(made) for made in suspended] == [False, True]


@pytest.mark.parametrize("function", [generators.coroutine, generators.async_generator])
def test_the_code_of_a_coroutine_is_refused(function):
    with pytest.raises(RuntimeError, match="has no meaning here"):
        Machine(start(function, (1,), {})).run()


def fresh(args: tuple) -> tuple:
    return copy.deepcopy(args) if not any(hasattr(a, "__next__") for a in args) else tuple(map(copy.copy, args))


def outcome(run: Any) -> Any:
    try:
        return "value", plain(run())
    except Exception as error:
        return "error", plain(error)


def plain(value: Any) -> Any:
    """What can be compared about a result."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value).__name__, [plain(v) for v in value]
    if isinstance(value, dict):
        return [(plain(k), plain(v)) for k, v in value.items()]
    if isinstance(value, BaseException):
        return type(value).__name__, chain(value)
    return type(value).__name__, re.sub(r" at 0x[0-9a-f]+", "", repr(value))


# ---- liveness


@pytest.mark.parametrize("function", [function for function, _ in CASES])
def test_operands_of_an_instruction_are_alive_before_it(function):
    code = decode(function.__code__)
    live = live_locals(code)
    for i, (name, (_, arg)) in enumerate(zip(code.opnames, code.instructions, strict=True)):
        uses, _, _, _ = instruction_table.flow(name, arg, code)
        assert live[i] & uses == uses


def test_a_local_is_dead_after_its_last_use():
    def function(a, b):
        c = a + 1
        return b * c

    code = decode(function.__code__)
    live = live_locals(code)
    multiplied = next(i for i, name in enumerate(code.opnames) if name == "BINARY_OP" and live[i] & 1 == 0)
    assert live[0] == 0b011 and live[multiplied + 1] & 1 == 0 and live[-1] == 0


# Methods of the machine that opcodes call to prepare or to store, or that no break comes after.
PREPARING = frozenset(
    """
    add answers_truth_by_frame append check_keys delete_global delete_name handled join_strings leave leave_to_python
    load_name made match_class new_cell push_truth_and_keep redo_with refuse_opcode return_from same special store_cell
    store_global store_name yield_from_frame
    """.split()
)


def test_completed_instruction_repeats_no_operation():
    called = set()
    for path in pathlib.Path(opcodes.__file__).parent.glob("*.py"):
        called.update(re.findall(r"\bm\.(\w+)\(", path.read_text()))
    assert called - set(vars(CompletedInstruction)) <= PREPARING
