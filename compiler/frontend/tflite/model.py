# SPDX-License-Identifier: Apache-2.0
"""Convert a TensorFlow Lite file to an ONNX model; the needed operators are converted by ``operators.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from weft.compiler.errors import refuse
from weft.compiler.frontend.onnx_reader import unknown_output
from weft.compiler.frontend.states import State, declare_states
from weft.compiler.frontend.tflite.open_shapes import OpenShapes, fits
from weft.compiler.frontend.tflite.operation import Operation
from weft.compiler.frontend.tflite.operators import convert
from weft.compiler.frontend.tflite.schema import Damaged, Subgraph, read_subgraphs
from weft.compiler.frontend.tflite.shape_check import check_told_shapes
from weft.compiler.frontend.tflite.states import NEXT, first_numbers, kept_states
from weft.compiler.frontend.tflite.writer import Writer
from weft.compiler.request import NO_SHAPES, Sizes

ASSIGN, CALL_ONCE, READ = "ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE"


def to_model(content: bytes, name: str, outputs: Sequence[str] = (),
             shapes: Sizes = NO_SHAPES) -> onnx.ModelProto:
    """Return the network up to the tensors ``outputs``, by default the file's own and all states.

    ``shapes``: sizes of inputs that the file leaves open. Raise Damaged, and WeftError for unsupported operators and
    unknown outputs."""
    graphs = read_subgraphs(content)
    writer = Writer(graphs[0])
    return _Network(graphs, writer, tuple(outputs), shapes).model(name)


class _Network:
    """The first of ``graphs``, while it is converted into the model that ``writer`` collects."""

    def __init__(self, graphs: Sequence[Subgraph], writer: Writer, outputs: tuple[str, ...],
                 shapes: Sizes) -> None:
        self.graphs, self.graph, self.writer, self.shapes = graphs, graphs[0], writer, shapes
        self.numbers = {value.name: number for number, value in enumerate(writer.values)}
        self.chosen = tuple(output.removesuffix(":0") for output in outputs)
        self.ends = [writer.values[number].name for number in self.graph.outputs]
        self.sizes: OpenShapes | None = None
        self.open = False
        for output in self.chosen:
            if output not in self.numbers and not output.endswith(NEXT):
                raise unknown_output(output, self.ends, list(self.numbers))

    def model(self, name: str) -> onnx.ModelProto:
        """Return the ONNX model."""
        targets = [self.numbers[output] for output in self.chosen if output in self.numbers] if self.chosen else list(
            self.graph.outputs)
        needed, read = self._needed(targets)
        for number in self.graph.inputs:
            if number in read or not self.chosen:
                self._input(number)
        if self.open:
            self.sizes = OpenShapes(self.writer)
        first: dict[str, np.ndarray] = {}
        for number, operator in enumerate(self.graph.operators):
            if operator.code == CALL_ONCE:
                first |= first_numbers(self.graphs, operator.option("InitSubgraphIndex"))
            elif number in needed:
                self._convert(Operation(self.writer, operator))
        states = self._outputs(targets, first)
        check_told_shapes(self.writer)
        model = self.writer.model(name, self.writer.constants)
        declare_states(model, states)
        return model

    def _needed(self, targets: Sequence[int]) -> tuple[set[int], set[int]]:
        """Return the operators that the targets need, and all tensors that these read.

        States are targets too, unless outputs were chosen and none of them is a state."""
        operators = self.graph.operators
        with_states = not self.chosen or any(output.endswith(NEXT) for output in self.chosen)
        makers: dict[int, int] = {}
        for number, operator in enumerate(operators):
            for made in operator.outputs:
                if makers.setdefault(made, number) != number:
                    raise Damaged(f"tensor {self.writer.values[made].name!r} is made twice")
        assigning = [number for number, operator in enumerate(operators) if operator.code == ASSIGN]
        needed: set[int] = set(assigning if with_states else [])
        read = set(targets)
        waiting = [*targets, *(source for number in needed for source in operators[number].inputs)]
        while waiting:
            tensor = waiting.pop()
            read.add(tensor)
            if tensor not in makers or makers[tensor] in needed:
                continue
            number = makers[tensor]
            needed.add(number)
            waiting += [source for source in operators[number].inputs if source >= 0]
            if operators[number].code == READ:  # what was assigned before it is what it reads
                for earlier in assigning:
                    if earlier < number and earlier not in needed:
                        needed.add(earlier)
                        waiting += operators[earlier].inputs
        return needed, read

    def _input(self, number: int) -> None:
        """Add an input, of the sizes that were told where the file leaves them open, else of those that it has."""
        value = self.writer.values[number]
        told, signature = self.shapes.get(value.name), value.tensor.signature
        if signature and told is not None and not isinstance(told, int):
            if not fits(told, signature):
                raise refuse(f"--shape {value.name}", ",".join(map(str, told)),
                             f"sizes that fit {','.join(map(str, signature))}, in which -1 is open",
                             "give the sizes that are open, and those of the file")
            value.shape = tuple(told)
        self.open |= -1 in signature[1:] or value.shape != value.tensor.shape
        self.writer.input(number)

    def _convert(self, op: Operation) -> None:
        """Convert an operator. The shapes of its results follow from its inputs where the file leaves sizes open."""
        if self.sizes is not None:
            self.sizes.before(op)
        convert(op)
        if self.sizes is not None:
            self.sizes.after(op)

    def _outputs(self, targets: Sequence[int], first: Mapping[str, np.ndarray]) -> list[State]:
        """Add the outputs; return the states among them."""
        writer = self.writer
        kept = {before.name + NEXT: (before, source) for before, source in (*kept_states(writer), *writer.kept)}
        states = []
        for output in self.chosen or (*(writer.values[number].name for number in targets), *kept):
            if output in self.numbers:
                number = self.numbers[output]
                writer.output(writer.made(number), writer.stored(number))
            elif output in kept:
                before, source = kept[output]
                begins = first.get(before.name)
                states.append(State(writer.output(before, source, output), before.name,
                                    begins is None or not begins.any()))
            else:
                raise unknown_output(output, self.ends, [*self.numbers, *kept])
        return states
