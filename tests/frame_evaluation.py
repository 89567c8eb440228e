"""The function that evaluates the frames of this process.

Dynamo leaves its own in that place when it has raised an error. From then on each call of a Python function takes a
third longer and nests a call in C, whose number Python 3.12 and 3.13 limit: deep recursion of later tests fails.
"""

import ctypes

api = ctypes.pythonapi
process = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyInterpreterState_Get", api))
read = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(("_PyInterpreterState_GetEvalFrameFunc", api))
write = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(("_PyInterpreterState_SetEvalFrameFunc", api))
PYTHONS = ctypes.cast(api._PyEval_EvalFrameDefault, ctypes.c_void_p).value


def is_pythons() -> bool:
    return read(process()) == PYTHONS


def restore() -> None:
    if not is_pythons():
        write(process(), PYTHONS)
