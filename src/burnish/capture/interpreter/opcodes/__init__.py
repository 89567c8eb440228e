"""The opcode handlers: one handler per bytecode instruction, by family.

A handler is ``handler(machine, frame, arg) -> bool | None``; true means that another frame is current now. A break may
happen in any operation of the machine, so every handler keeps these rules:

* it takes nothing off the stack before the machine's operation has returned (so the state before the instruction is
  still complete when a break ends the segment there);
* it does at most one operation of the machine that may break, push a frame or raise.

``arg`` was resolved when the code was decoded: a constant, a name, a jump target. An instruction that changes in a
CPython version gets its own entry in ``versions``. Everything that stays the same is in the family files.
"""
