# SPDX-License-Identifier: Apache-2.0
"""Breaks of the golden machine, and of its checks on a whole program."""

from weft.tb.mutations import Break

INSTRUCTIONS = "tb/unit/golden/test_instructions.py"
LOOPS = "tb/unit/golden/test_loops.py"
STOP = "tb/unit/golden/test_stop.py"
SIMD = "tb/unit/golden/test_simd.py"
LEGALITY = "tb/unit/golden/test_legality.py"

BREAKS = [
    Break("golden_store", "hw/contract/schemes/base.py", "return self.store(old + values)",
          "return self.store(saturate(old, self.scalar.width) + values)",
          "what is accumulated to is cut to a scalar", f"{INSTRUCTIONS}::test_each_repeated_addition_saturates"),
    Break("golden_weights", "golden/machine.py", "np.concatenate([bias, rows, self.weights])",
          "np.concatenate([rows, bias, self.weights])", "the row of zeros comes in before the weights",
          f"{INSTRUCTIONS}::test_zero_bias_shifts_one_row_of_zeros_in_last"),
    Break("golden_window", "golden/machine.py", 'if flow.far_memory == "dram0" else Register.DRAM1_OFFSET',
          "if flow is DataFlow.DRAM0_TO_LOCAL else Register.DRAM1_OFFSET", "writes to DRAM0 use DRAM1's window",
          f"{INSTRUCTIONS}::test_moves_to_and_from_dram_use_their_window_offset"),
    Break("golden_relu", "hw/contract/schemes/base.py", "np.maximum(scalars, 0) if relu", "np.abs(scalars) if relu",
          "a ReLU makes negative numbers positive",
          f"{INSTRUCTIONS}::test_relu_on_the_way_out_clips_below_zero"),
    Break("golden_scale", "hw/contract/schemes/int8.py", "saturate(values + biases, SCALED_WIDTH)", "(values + biases)",
          "a sum with its bias is not saturated before it is multiplied",
          "tb/unit/golden/test_int8.py::test_a_move_out_is_bias_saturation_product_rounding_zero_and_saturation"),
    Break("golden_weight", "hw/contract/schemes/int8.py", "np.maximum(weights, -LARGEST_WEIGHT)", "weights",
          "a weight of -128 counts as such",
          "tb/unit/golden/test_int8.py::test_a_weight_of_minus_128_counts_as_minus_127"),
    Break("golden_reset", "golden/machine.py", "        self.simd_registers[...] = 0\n", "",
          "SIMD registers outlive a soft reset",
          f"{INSTRUCTIONS}::test_soft_reset_clears_registers_and_keeps_memories"),
    Break("golden_range", "golden/check.py", "walk.last >= self.depths[memory]", "walk.last > self.depths[memory]",
          "one vector beyond a memory is let through",
          f"{STOP}::test_refused_instruction_has_no_effect_and_is_reported"),
    Break("golden_cause", "golden/check.py", "cause = min(causes,", "cause = max(causes,",
          "of several causes the highest is reported",
          f"{STOP}::test_the_lowest_cause_is_reported_when_several_apply"),
    Break("golden_iterations", "golden/check.py", "Walk(address, iterations, stride)",
          "Walk(address, 1, stride)", "a loop may write beyond the accumulators",
          f"{STOP}::test_a_loop_reaches_as_far_as_its_last_iteration"),
    Break("golden_hold", "golden/decode.py", '0 if instruction.flag("hold") else read.stride', "read.stride",
          "a held address moves", f"{LOOPS}::test_hold_keeps_the_read_address"),
    Break("golden_loop_registers", "golden/simd.py", "registers = machine.simd_registers.copy()",
          "registers = machine.simd_registers", "an iteration sees the registers of the one before",
          f"{LOOPS}::test_a_loop_means_its_body_written_out"),
    Break("golden_independent", "golden/simd.py", "[*combinations(writes, 2), *(", "[*(",
          "writes of two instructions that meet are not seen",
          f"{LOOPS}::test_disjoint_and_identical_sequences_run_together_and_others_one_by_one"),
    Break("golden_lookup_half", "golden/alu.py", "((1 << shift) >> 1)", "(((1 << shift) >> 1) - 1)",
          "half way between two keys goes down", f"{SIMD}::test_lookup_gives_difference_and_value"),
    Break("golden_greater", "golden/alu.py", "logical(number, left >= right)", "logical(number, left > right)",
          "equal numbers are not greater or equal", f"{SIMD}::test_simd_operation"),
    Break("golden_sign", "hw/contract/numerics.py", "& ((1 << self.width) - 1)) - (1 << (self.width - 1))",
          "& ((1 << self.width) - 1))", "scalars read from DRAM have half of the range added",
          "tb/unit/golden/test_dram.py::test_scalars_narrower_than_storage_are_sign_extended_when_written_and_cut_"
          "when_read"),
    # -- the check of a whole program --
    Break("legality_counter", "golden/legality.py", "index - int(sets[-1]) - 1 if", "index - int(sets[-1]) if",
          "behind a Configure of it the program counter is one too large",
          f"{LEGALITY}::test_the_program_counter_may_be_set"),
    Break("legality_body", "golden/legality.py", "self._forms() | (self.in_body & (self.opcode != Opcode.SIMD))",
          "self._forms()", "a loop's body may hold any instruction",
          f"{LEGALITY}::test_every_cause_is_found_where_golden_finds_it"),
    Break("legality_hold", "golden/legality.py",
          'np.where(self._flag(Opcode.SIMD, "hold"), 1, iterations)', "iterations",
          "a held address is taken to move", f"{LEGALITY}::test_a_held_address_reaches_no_further_than_itself"),
    Break("legality_rows", "golden/legality.py", "Walk(base, size, stride, rows, pitch)",
          "Walk(base, size, stride, rows + 1, pitch)",
          "the last row is taken to lie a pitch further", f"{LEGALITY}::test_legal_programs_are_let_through"),
    Break("legality_range", "golden/legality.py", "self._last(1, size, rows, far) >= far_depth",
          "self._last(1, size, rows, far) > far_depth", "one vector beyond a memory is let through",
          f"{LEGALITY}::test_every_cause_is_found_where_golden_finds_it"),
]
