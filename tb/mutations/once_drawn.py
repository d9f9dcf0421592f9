# SPDX-License-Identifier: Apache-2.0
"""Breaks that a seed drew and that the tests of that day passed: each has a test since."""

from weft.tb.mutations import Break

MEMORY = "tb/unit/cycles/test_memory_rules.py"
WIRES = "tb/unit/project/test_constant_wires.py::test_only_what_is_known_never_changes"

BREAKS = [
    Break("drawn_port", "hw/array/matrix_unit.py", "            connect(m, inner, flipped(outer))\n",
          "            pass\n", "the array has no memories", WIRES),
    Break("drawn_trace", "hw/core.py", "        if self._trace:\n            m.d.comb",
          "        if not self._trace:\n            m.d.comb", "the trace of operations is silent", WIRES),
    Break("drawn_burst", "cycles/board_dram.py", "program.beat | (program.max_burst - 1)",
          "program.beat | (program.max_burst + 1)", "a program's bursts do not end at their boundaries",
          f"{MEMORY}::test_a_programs_bursts_end_where_their_length_divides_the_address"),
    Break("drawn_read_time", "cycles/litedram.py", "max(dram.read_time - 1, 0) if state == READ else",
          "max(dram.read_time - 1, 0) if state != READ else", "a write waits until nobody reads",
          f"{MEMORY}::test_a_write_waits_for_other_banks_reads_only_so_long"),
    Break("drawn_last_beat", "cycles/system.py", "(program_bytes - 1) // beat if", "(program_bytes - 2) // beat if",
          "the last byte of a program stays unread", f"{MEMORY}::test_every_begun_beat_of_a_program_is_read"),
    Break("drawn_joins", "cycles/machine.py", "arch.join_cycles if arch.joins_reads else 0",
          "arch.join_cycles if arch.joins_reads else 1", "a machine that joins no reads joins some",
          f"{MEMORY}::test_a_machine_joins_reads_by_its_key_alone"),
    Break("drawn_slice", "cycles/interlock.py", "unit.ahead += walks - unit.asked\n    unit.asked = 0",
          "unit.ahead += walks - unit.asked\n    unit.asked = 1", "an address leaves the register slice unasked",
          f"{MEMORY}::test_a_register_slice_delays_operations_and_does_not_slow_them"),
    Break("drawn_axes", "compiler/lowering/axes.py", "channel.take([0, 1], axis)", "channel.take([0, 2], axis)",
          "axes of two channels have no step",
          "tb/compile/test_axes.py::test_axes_are_found_from_the_places_of_elements"),
    Break("drawn_slowest", "compiler/split/shares.py", "_, largest = max(((box.vectors",
          "_, largest = min(((box.vectors", "a cut costs what its fastest core costs",
          "tb/compile/test_split.py::test_a_cut_costs_what_its_slowest_core_costs"),
    Break("drawn_overhang", "compiler/tiling/shape.py", "return self.arch.row_taps - 1 if",
          "return self.arch.row_taps - 2 if", "a dropped result lies in another tile's accumulators",
          "tb/compile/test_depthwise.py::test_accumulators_have_room_for_all_that_a_pass_drops"),
    Break("drawn_end", "compiler/frontend/tflite/operation.py", "value.constant is None and not value.variable",
          "value.constant is None or not value.variable", "constants are named as ends of a network",
          "tb/compile/test_tflite.py::test_the_way_out_names_each_computed_input_once"),
    Break("drawn_shared", "golden/races.py", 'np.searchsorted(edges, part["end"]), -1)',
          'np.searchsorted(edges, part["end"]), 1)', "bytes that one core alone touches count as shared",
          "tb/unit/golden/test_races.py::test_shared_pieces_are_those_that_two_cores_touch_and_one_writes"),
    Break("drawn_counted", "runtime/images.py", "if tensor.shape is not None and", "if tensor.shape is None and",
          "an axis of images is not seen",
          "tb/unit/runtime/test_ways_out.py::test_an_axis_more_than_the_network_has_counts_images"),
    Break("drawn_number", "tmodel/schema.py", "le=1 << 48)]", "le=1 << 49)]", "a stride of a .tmodel may be larger",
          "tb/unit/runtime/test_bounds.py::test_a_number_of_a_compiled_model_is_within_its_range"),
]
