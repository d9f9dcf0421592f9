# SPDX-License-Identifier: Apache-2.0
"""The commands of ``weft debug``: one table, ``COMMANDS``. Each returns an answer, as data and as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from weft.cycles.program import program_counters_of
from weft.cycles.replay import Estimate, estimate
from weft.golden.legality import first_stop
from weft.hw.contract.assembly import instruction_text
from weft.hw.contract.dram import DramModel
from weft.hw.contract.registers import Register
from weft.hw.contract.units import UNIT_NAMES
from weft.runtime.session import Session
from weft.runtime.stepping import Stepper
from weft.support.errors import WeftError, explain, nearest

MOST_VECTORS = 1 << 12
"""The most vectors, instructions or rows in one answer."""

HERE = "say `help` for all commands"


class Answer(NamedTuple):
    """The answer to a command: ``data`` for ``--json``, ``lines`` for a person."""

    data: dict[str, Any]
    lines: list[str]


class Debugger:
    """A program of a network under the commands; ``breaks``: what the user typed -> the instructions to stop before."""

    def __init__(self, session: Session, program: int, inputs: Mapping[str, np.ndarray], dram: DramModel) -> None:
        """Stop before the first instruction. Raise WeftError for inputs that do not fit."""
        self.stepper = Stepper(session, program, inputs)
        self.breaks: dict[str, np.ndarray] = {}
        self._dram, self._told = dram, -1

    @cached_property
    def estimate(self) -> Estimate:
        """Return when each operation runs, by the estimator, from a reset of the memory.

        Raise MachineStop for a program that the machine refuses, WeftError for several cores."""
        program, arch = self.stepper.loaded.model.program, self.stepper.loaded.arch
        if arch.cores > 1:
            raise WeftError(explain("cycle", f"a machine of {arch.cores} cores, which share memory ports", "one core",
                                    "add --set cores=1 --set memory_ports=1, or use weft estimate for all"))
        stop = first_stop(program, arch)
        if stop is not None:
            raise stop
        return estimate(program, arch, self._dram)

    @cached_property
    def counters(self) -> np.ndarray:
        """The program counter of each instruction, int [count]."""
        opcode, _, *operands = self.stepper.isa.split(self.stepper.loaded.model.program).astype(np.int64)
        return program_counters_of(opcode, operands)

    def answer(self, line: str) -> Answer:
        """Run a command line. Raise WeftError for a wrong one, and at an instruction that the machine refuses."""
        name, *words = line.split()
        known = [name] if name in COMMANDS else [each for each in COMMANDS if each.startswith(name)]
        if len(known) != 1:
            raise WeftError(explain("command", repr(name), ", ".join(known or COMMANDS), nearest(name, COMMANDS, HERE)))
        command = COMMANDS[known[0]]
        if not command.least <= len(words) <= command.most:
            raise WeftError(explain(f"command {known[0]}", repr(line), command.usage, HERE))
        answer = command.run(self, words)
        return Answer({"command": known[0], **answer.data}, answer.lines)

    # -- running ---------------------------------------------------------------------------------------------------
    def run(self, words: Sequence[str]) -> Answer:
        """Run to the next break, or to the end."""
        stepper = self.stepper
        stops = [int(each[np.searchsorted(each, stepper.at):][0]) for each in
                 (positions[positions != self._told] for positions in self.breaks.values())
                 if len(each) and each[-1] >= stepper.at]
        return self._go(min(stops, default=stepper.count))

    def step(self, words: Sequence[str]) -> Answer:
        """Run so many instructions."""
        count = _number(words, 0, "instructions", 1, 1 << 32, 1)
        return self._go(min(self.stepper.at + count, self.stepper.count))

    def next(self, words: Sequence[str]) -> Answer:
        """Run to the next instruction of another layer, or to the end."""
        at, layers = self.stepper.at, self.stepper.layers
        others = np.flatnonzero(layers[at:] != layers[at]) if at < self.stepper.count else np.zeros(0, np.int64)
        return self._go(at + int(others[0]) if len(others) else self.stepper.count)

    def restart(self, words: Sequence[str]) -> Answer:
        """Go back to before the first instruction; breaks stay."""
        self.stepper.restart()
        self._told = -1
        return self.where(())

    def _go(self, number: int) -> Answer:
        """Run until before an instruction, and tell where that is."""
        self.stepper.run_to(number)
        self._told = self.stepper.at
        return self.where(())

    # -- breaks ----------------------------------------------------------------------------------------------------
    def set_break(self, words: Sequence[str]) -> Answer:
        """Set a break at a layer, an instruction, all instructions of a kind, or a program counter."""
        kind, value = words
        if kind not in BREAKS:
            raise WeftError(explain("break", repr(kind), ", ".join(BREAKS), "for example break layer conv1"))
        positions = np.sort(np.asarray(BREAKS[kind](self, value), np.int64))
        self.breaks[f"{kind} {value}"] = positions
        return Answer({"break": f"{kind} {value}", "instructions": positions[:MOST_VECTORS].tolist(),
                       "count": len(positions)}, [f"break {kind} {value}: {_places(positions)}"])

    def _at_layer(self, name: str) -> list[int]:
        """Return the first instruction of each layer of a name, or of a node that was joined with others."""
        stepper = self.stepper
        found = [first for layer, first in stepper.starts.items() if layer < len(stepper.names)
                 and name in (stepper.names[layer], *stepper.names[layer].split("+"))]
        if not found:
            raise WeftError(explain("layer", repr(name), ", ".join(dict.fromkeys(stepper.names)) or "none: the file "
                                    "does not say which there are", "name one of them; `layers` lists them"))
        return found

    def _at_instruction(self, text: str) -> list[int]:
        """Return the instruction of a number, or all of a name such as MatMul."""
        opcodes = self.stepper.opcodes()
        if text.lower() in opcodes:
            return self.stepper.of_opcode(opcodes[text.lower()])
        if not _is_number(text) or int(text) >= self.stepper.count:
            raise WeftError(explain("instruction", repr(text), f"0..{self.stepper.count - 1}, {', '.join(opcodes)}",
                                    "give one of them"))
        return [int(text)]

    def _at_counter(self, text: str) -> list[int]:
        """Return the instructions of a program counter."""
        found = np.flatnonzero(self.counters == int(text)).tolist() if _is_number(text) else []
        if not found:
            raise WeftError(explain("program counter", repr(text), f"{self.counters.min(initial=0)}.."
                                    f"{self.counters.max(initial=0)}", "give one of them; `list` shows them"))
        return found

    def list_breaks(self, words: Sequence[str]) -> Answer:
        """List the breaks."""
        return Answer({"breaks": {text: len(found) for text, found in self.breaks.items()}},
                      [f"{text}: {_places(found)}" for text, found in self.breaks.items()] or ["no breaks"])

    def delete(self, words: Sequence[str]) -> Answer:
        """Remove a break, or all."""
        text = " ".join(words)
        if text and text not in self.breaks:
            raise WeftError(explain("delete", repr(text), ", ".join(self.breaks) or "no breaks", "name one of them"))
        self.breaks = {each: found for each, found in self.breaks.items() if text and each != text}
        return self.list_breaks(())

    # -- looking ---------------------------------------------------------------------------------------------------
    def where(self, words: Sequence[str]) -> Answer:
        """Tell which instruction is next."""
        if self.stepper.at == self.stepper.count:
            return Answer({"instruction": self.stepper.at, "ended": True},
                          [f"the program has ended after {self.stepper.count} instructions"])
        row = self._row(self.stepper.at)
        return Answer({**row, "ended": False}, [_said(row)])

    def list(self, words: Sequence[str]) -> Answer:
        """List the next instructions."""
        count = _number(words, 0, "instructions", 1, MOST_VECTORS, 10)
        rows = [self._row(number) for number in range(self.stepper.at, min(self.stepper.at + count,
                                                                          self.stepper.count))]
        return Answer({"instructions": rows}, list(map(_said, rows)) or ["the program has ended"])

    def _row(self, number: int) -> dict[str, Any]:
        """Return an instruction's number, program counter, layer and text."""
        stepper = self.stepper
        return {"instruction": number, "program_counter": int(self.counters[number]), "layer": stepper.name(number),
                "text": instruction_text(stepper.isa, stepper.instruction(number))}

    def layers(self, words: Sequence[str]) -> Answer:
        """List the layers in the order of their first instructions."""
        stepper, sizes = self.stepper, np.bincount(self.stepper.layers[self.stepper.layers >= 0])
        rows = [{"layer": stepper.name(first), "first": first, "instructions": int(sizes[layer])}
                for layer, first in sorted(stepper.starts.items(), key=lambda entry: entry[1])]
        return Answer({"layers": rows}, [f"{row['first']:6d}  {row['instructions']:6d} instructions  {row['layer']}"
                                         for row in rows] or ["the file does not say which layers there are"])

    def registers(self, words: Sequence[str]) -> Answer:
        """Show the Configure registers."""
        values = {register.name.lower(): value for register, value in self.stepper.machine.registers.items()}
        return Answer({"registers": values}, [f"{name} {value}" for name, value in values.items()])

    def memory(self, name: str, words: Sequence[str]) -> Answer:
        """Show vectors of one of the machine's memories; several tables are one behind another."""
        content = getattr(self.stepper.machine, name)
        return self._vectors(name, words, content.reshape(-1, content.shape[-1]).__getitem__, content[..., 0].size)

    def dram(self, name: str, words: Sequence[str]) -> Answer:
        """Show vectors of a DRAM window, where its register says that it begins."""
        machine = self.stepper.machine
        offset = machine.registers[Register[f"{name.upper()}_OFFSET"]]
        return self._vectors(name, words, lambda each: machine.drams[name].read(each.start, each.stop - each.start,
                                                                                offset),
                             getattr(machine.arch, f"{name}_depth"))

    def _vectors(self, name: str, words: Sequence[str], read: Callable[[slice], np.ndarray], depth: int) -> Answer:
        """Show vectors of a memory of ``depth`` vectors."""
        if not depth:
            raise WeftError(explain(f"memory {name}", "none on this machine", "the memories that it has",
                                    "look at another memory; `help` lists them"))
        first = _number(words, 0, f"address of {name}", 0, depth - 1, 0)
        size = _number(words, 1, f"vectors of {name}", 1, min(depth - first, MOST_VECTORS), 1)
        values = read(slice(first, first + size)).tolist()
        return Answer({"memory": name, "address": first, "values": values},
                      [f"{name} {first + number}: {' '.join(map(str, row))}" for number, row in enumerate(values)])

    def cycle(self, words: Sequence[str]) -> Answer:
        """Tell what is under way in a cycle, by the estimator; default: that in which the next instruction issues."""
        found = self.estimate
        cycle = _number(words, 0, "cycle", 0, found.cycles, self._issued(found))
        times = found.operations
        rows = []
        for number in np.flatnonzero((times["issue_cycle"] <= cycle) & (times["finish_cycle"] >= cycle)).tolist():
            operation = times[number]
            rows.append({"unit": UNIT_NAMES[operation["unit"]],
                         "state": "waits" if cycle < operation["start_cycle"] else "works",
                         **{key: int(operation[key]) for key in ("issue_cycle", "start_cycle", "finish_cycle")},
                         **self._row(int(found.program.work["instruction"][number]))})
        lines = [f"{row['unit']:12} {row['state']} {row['start_cycle']}..{row['finish_cycle']}  {_said(row)}"
                 for row in rows]
        return Answer({"cycle": cycle, "cycles": found.cycles, "operations": rows},
                      [f"cycle {cycle} of {found.cycles}:" + ("" if lines else " nothing is under way"), *lines])

    def _issued(self, found: Estimate) -> int:
        """Return the cycle in which the next instruction that is an operation issues, or the last one."""
        number = int(np.searchsorted(found.program.work["instruction"], self.stepper.at))
        return int(found.operations["issue_cycle"][number]) if number < len(found.operations) else found.cycles

    def help(self, words: Sequence[str]) -> Answer:
        """List the commands."""
        table = {command.usage: command.text for command in COMMANDS.values()}
        width = max(map(len, table))
        return Answer({"commands": table}, [*(f"{usage:{width}}  {text}" for usage, text in table.items()),
                                            "A command may be cut where it stays clear. Addresses count vectors."])

    def quit(self, words: Sequence[str]) -> Answer:
        """End."""
        return Answer({}, [])


BREAKS: dict[str, Callable[[Debugger, str], list[int]]] = {
    "layer": Debugger._at_layer, "instruction": Debugger._at_instruction, "pc": Debugger._at_counter}
"""Kind of a break -> function that returns the instructions to stop before."""


@dataclass(frozen=True)
class Command:
    """A command: how it is typed, what it does, how many words may follow."""

    usage: str
    text: str
    run: Callable[[Debugger, Sequence[str]], Answer]
    least: int = 0
    most: int = 0


def _looks(name: str, text: str, show: Callable[[Debugger, str, Sequence[str]], Answer]) -> Command:
    """Return the command that shows a memory."""
    return Command(f"{name} [ADDRESS [COUNT]]", text, lambda debugger, words: show(debugger, name, words), 0, 2)


COMMANDS: dict[str, Command] = {
    "run": Command("run", "Run to the next break, or to the end.", Debugger.run),
    "step": Command("step [COUNT]", "Run so many instructions (1).", Debugger.step, 0, 1),
    "next": Command("next", "Run to the next layer.", Debugger.next),
    "restart": Command("restart", "Go back to before the first instruction.", Debugger.restart),
    "break": Command("break layer NAME | instruction NUMBER|KIND | pc NUMBER", "Stop before it.",
                     Debugger.set_break, 2, 2),
    "breaks": Command("breaks", "List the breaks.", Debugger.list_breaks),
    "delete": Command("delete [BREAK]", "Remove a break, such as `layer conv1`, or all.", Debugger.delete, 0, 2),
    "where": Command("where", "Which instruction is next.", Debugger.where),
    "list": Command("list [COUNT]", "The next instructions (10).", Debugger.list, 0, 1),
    "layers": Command("layers", "The layers, with their first instructions.", Debugger.layers),
    "registers": Command("registers", "The Configure registers.", Debugger.registers),
    "local": _looks("local", "Vectors of local memory.", Debugger.memory),
    "accumulators": _looks("accumulators", "Vectors of the accumulators.", Debugger.memory),
    "weights": _looks("weights", "Rows of weights in the array: 0 is the bias.", Debugger.memory),
    "dram0": _looks("dram0", "Vectors of the window in DRAM0.", Debugger.dram),
    "dram1": _looks("dram1", "Vectors of the window in DRAM1.", Debugger.dram),
    "simd_registers": _looks("simd_registers", "The SIMD unit's registers.", Debugger.memory),
    "luts": _looks("luts", "The lookup tables, keys first, one behind another.", Debugger.memory),
    "scales": _looks("scales", "The bytes of LoadScale.", Debugger.memory),
    "activation_tables": _looks("activation_tables", "The activation tables, one behind another.", Debugger.memory),
    "cycle": Command("cycle [CYCLE]", "What is under way then, by the estimator.", Debugger.cycle, 0, 1),
    "help": Command("help", "This list.", Debugger.help),
    "quit": Command("quit", "End.", Debugger.quit),
}


def _is_number(text: str) -> bool:
    """Return whether a text is a number that Python and numpy take: :func:`int` refuses more than 4300 digits."""
    return text.isdecimal() and len(text) < 19


def _number(words: Sequence[str], place: int, what: str, least: int, most: int, default: int) -> int:
    """Return the number at a place among words, or the default. Raise WeftError for anything else."""
    if len(words) <= place:
        return default
    text = words[place]
    if not _is_number(text) or not least <= int(text) <= most:
        raise WeftError(explain(what, repr(text), f"{least}..{most}", "give a number of this range"))
    return int(text)


def _places(positions: np.ndarray) -> str:
    """Return instructions in words, the first few of many."""
    first = ", ".join(map(str, positions[:8].tolist()))
    return f"{len(positions)} instructions: {first}" + (", .." if len(positions) > 8 else "")


def _said(row: Mapping[str, Any]) -> str:
    """Return an instruction as a line."""
    counter = "" if row["program_counter"] == row["instruction"] else f" (pc {row['program_counter']})"
    return f"{row['instruction']:6d}{counter}  {row['text']}" + (f"  [{row['layer']}]" if row["layer"] else "")
