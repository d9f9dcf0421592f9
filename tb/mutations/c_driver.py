# SPDX-License-Identifier: Apache-2.0
"""Breaks of the driver in C."""

from weft.tb.mutations import Break

SOURCE = "boards/driver/c/weft_driver.c"
DRIVER = "tb/unit/driver/test_c_driver.py"
MATRIX = "tb/unit/driver/test_c_fault_matrix.py"
COVERAGE = "tb/unit/driver/test_c_coverage.py"
ONE_FAULT = f"{MATRIX}::test_one_fault_in_one_phase"

BREAKS = [
    Break("c_driver_stale_part", SOURCE,
          "    each_word(device, device->bus.invalidate, address, size);\n    store(", "    store(",
          "a word written in part takes its rest from the cache",
          f"{DRIVER}::test_a_word_that_the_machine_wrote_in_part_is_read_again"),
    Break("c_driver_not_clean", SOURCE,
          "    each_word(device, device->bus.clean, address, size);\n", "", "what was written stays in the cache",
          f"{DRIVER}::test_a_cache_is_kept_coherent"),
    Break("c_driver_cached_check", SOURCE,
          "    each_word(device, device->bus.invalidate, address, size);\n    return", "    return",
          "the cache is read back, and not memory", f"{DRIVER}::test_what_memory_does_not_hold_is_noticed"),
    Break("c_driver_stale_answer", SOURCE,
          "    each_word(device, device->bus.invalidate, first, count * WEFT_VECTOR_BYTES);\n", "",
          "an answer is the last image's", f"{DRIVER}::test_a_cache_is_kept_coherent"),
    Break("c_driver_interrupt", SOURCE,
          "    set(device, WEFT_CSR_INTERRUPT_STATUS, ENDED);\n    call", "    call", "an interrupt stays",
          f"{DRIVER}::test_a_program_runs_while_the_c_driver_does_something_else"),
    Break("c_driver_hash", SOURCE, "        {WEFT_CSR_ARCH_HASH, WEFT_VALUE_ARCH_HASH},\n", "",
          "a machine on which programs mean something else is taken",
          f"{MATRIX}::test_another_machine_is_refused_whatever_differs"),
    Break("c_driver_cycles_high", SOURCE, " | (uint64_t)get(device, WEFT_CSR_CYCLES_HIGH) << 32", "",
          "cycles beyond 2^32 are lost", ONE_FAULT),
    Break("c_driver_mark", SOURCE, "#define MARK (~WEFT_VALUE_IDENTITY)", "#define MARK 0",
          "a board that had no power shows the mark too", ONE_FAULT),
    Break("c_driver_lost_before", SOURCE, "    int result = unless_lost(device, WEFT_OK);", "    int result = WEFT_OK;",
          "a program starts on memory that was lost", ONE_FAULT),
    Break("c_driver_lost_waiting", SOURCE, "    return unless_lost(device, result);", "    return result;",
          "counters of a dead bus are believed", ONE_FAULT),
    Break("c_driver_lost_answer", SOURCE, "    return unless_lost(device, WEFT_OK);", "    return WEFT_OK;",
          "words of a dead bus are an answer", ONE_FAULT),
    Break("c_driver_one_look", SOURCE, "    if (!(device->status & ALIVE)) /* the cycle before an end, or no program "
          "*/\n        device->status = get(device, WEFT_CSR_STATUS);\n", "",
          "the cycle before an end is a lost program",
          f"{MATRIX}::test_a_machine_between_running_and_done_is_waited_for"),
    Break("c_driver_draining", SOURCE, "if (device->status & WEFT_STATUS_RUNNING)\n        return WEFT_BUSY;",
          "if (!(device->status & ENDED))\n        return WEFT_BUSY;", "a machine that drains has ended",
          f"{MATRIX}::test_every_cause_is_told_and_the_next_run_is_right"),
    Break("c_driver_tries", SOURCE, "#define COMMAND_TRIES 5u", "#define COMMAND_TRIES 1u",
          "a command that is lost once is not repeated", ONE_FAULT),
    Break("c_driver_kept", SOURCE, "    return get(device, offset) == value ? WEFT_OK : WEFT_NOT_WRITTEN;",
          "    return WEFT_OK;", "a register that keeps nothing is not noticed", ONE_FAULT),
    Break("c_driver_stale_counters", SOURCE, "    device->cycles = device->instructions = 0;\n", "",
          "a time-out tells the counters of the run before",
          f"{MATRIX}::test_nothing_of_the_run_before_is_told_of_a_run_without_an_end"),
    Break("c_driver_looks", SOURCE, "looks < device->looks;", "looks <= device->looks;", "one look too many",
          f"{MATRIX}::test_nothing_of_the_run_before_is_told_of_a_run_without_an_end"),
    Break("c_driver_nothing_read", SOURCE, "found[i] = (uint8_t)~bytes[at + i];", "found[i] = bytes[at + i];",
          "a bulk read that does nothing finds what was written", f"{MATRIX}::"
          "test_a_bulk_read_that_does_nothing_does_not_pass_for_the_words_before"),
    Break("c_driver_odd_registers", SOURCE, "registers % 4 || dram0", "dram0", "registers at an odd address are taken",
          f"{MATRIX}::test_addresses_and_sizes_that_the_driver_refuses"),
    Break("c_driver_program_bytes", SOURCE, "bytes > ALL_WORDS - sizeof prologue", "bytes > ALL_WORDS",
          "the length of a program overflows its register",
          f"{MATRIX}::test_addresses_and_sizes_that_the_driver_refuses"),
    Break("c_driver_untaken", SOURCE, "    return WEFT_SILENT;\n}\n\nint weft_start_group",
          "    return count > WEFT_CORES ? WEFT_UNALIGNED : WEFT_SILENT;\n}\n\nint weft_start_group",
          "a branch that no test takes", f"{COVERAGE}::test_every_branch_of_the_c_driver_is_taken"),
]
