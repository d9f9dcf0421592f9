# SPDX-License-Identifier: Apache-2.0
"""Breaks of the reader of TensorFlow Lite files."""

from weft.tb.mutations import Break

TESTS = "tb/compile/test_tflite.py"
MACHINE = "tb/compile/test_tflite_machine.py"
LITERT = f"{TESTS}::test_the_model_gives_what_litert_gives"
FOLDER = "compiler/frontend/tflite"

BREAKS = [
    Break("tflite_odd_pad", f"{FOLDER}/convolutions.py", "return [pads[0] // 2, pads[1] // 2, pads[0] - pads[0] // 2",
          "return [pads[0] - pads[0] // 2, pads[1] // 2, pads[0] // 2", "the odd row of SAME comes before the image",
          f"{LITERT}[CONV_2D, groups]"),
    Break("tflite_axis", f"{FOLDER}/operation.py", "return axis if layout == FILE else ORDER[PLANES].index(axis)",
          "return axis", "an axis of the file is taken for one of planes", f"{LITERT}[SOFTMAX]"),
    Break("tflite_sparse_leaves", f"{FOLDER}/sparsity.py", "np.repeat(there, children) for there in places",
          "there for there in places", "numbers of a sparse row all lie in the first ones",
          f"{LITERT}[sparse rows]"),
    Break("tflite_requantise", f"{FOLDER}/writer.py", "if value.is_bytes and rounds:", "if value.is_bytes and False:",
          "what an operator makes of bytes is not rounded",
          f"{MACHINE}::test_a_machine_of_bytes_gives_the_bytes_of_the_file[a network of int8]"),
    Break("tflite_half_nibbles", f"{FOLDER}/numbers.py", "np.stack([content & 15, content >> 4], 1)",
          "np.stack([content >> 4, content & 15], 1)", "weights of four bits are swapped in pairs",
          f"{TESTS}::test_weights_of_four_bits"),
    Break("tflite_shapes", f"{FOLDER}/model.py", "        check_told_shapes(self.writer)\n", "",
          "shapes that a file tells wrongly are believed", f"{TESTS}::test_what_no_file_should_say_is_refused"),
    Break("tflite_open_planes", f"{FOLDER}/open_shapes.py", "(sizes[axis] for axis in ORDER[FILE])", "sizes",
          "open sizes of planes are taken for those of the file's layout",
          f"{TESTS}::test_open_sizes_are_those_that_are_told[sizes0]"),
    Break("tflite_open_rule", f"{FOLDER}/open_shapes.py", "whole - begin if size == -1", "whole if size == -1",
          "a slice to the end of an open size is too long", f"{TESTS}::test_a_slice_to_the_end_of_an_open_size"),
    Break("state_zero", "runtime/streaming.py", "else tensor.made(np.zeros(tensor.shape or ()))",
          "else np.zeros(tensor.shape or (), tensor.type)", "a state of bytes begins at the byte 0",
          "tb/unit/runtime/test_streaming.py::test_a_state_of_bytes_begins_at_the_real_0"),
]
