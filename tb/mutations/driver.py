# SPDX-License-Identifier: Apache-2.0
"""Breaks of the driver: links, bridge, registers, layouts."""

from weft.tb.mutations import Break

BRIDGE = "tb/unit/driver/test_bridge.py"
DEVICE = "tb/unit/driver/test_device.py"
TRIES = "tb/unit/driver/test_out_of_tries.py"
MATRIX = "tb/unit/driver/test_fault_matrix.py"
LAYOUTS = "tb/unit/runtime/test_layouts.py"

BREAKS = [
    # -- bridge --
    Break("bridge_one_reading", "runtime/driver/bridge.py", "pieces = [self._agreed(at, size)",
          "pieces = [self._once(at, size)", "what is read once is believed", f"{BRIDGE}::test_a_thousand_faults"),
    Break("bridge_equal_words", "runtime/driver/bridge.py",
          "first, last = int(differing[0]), int(differing[-1])", "first, last = 0, len(words) - 1",
          "words are written that are there, and hide that the write went elsewhere",
          f"{BRIDGE}::test_a_write_that_went_elsewhere_is_seen_though_most_words_were_there"),
    Break("bridge_no_repair", "runtime/driver/bridge.py", "        self._put(address, words)\n        self.settle()",
          "        self._put(address, words)", "what a stray damaged stays damaged",
          f"{BRIDGE}::test_what_a_stray_write_damaged_is_put_right"),
    Break("bridge_believes", "runtime/driver/bridge.py", "if self._sure and self.shadow.holds(",
          "if self.shadow.holds(", "words that may be lost are taken to be there",
          f"{BRIDGE}::test_what_was_lost_meanwhile_is_written_again"),
    Break("udp_number", "runtime/driver/etherbone.py", " or base != number:", ":",
          "an answer to an old question is taken", f"{BRIDGE}::test_late_answers_are_known"),
    # -- with a witness --
    Break("witness_reads", "runtime/driver/witness.py", "            reads = fold(reads, address, words)\n",
          "            pass\n", "what was read is not compared", f"{BRIDGE}::test_writes_and_reads_share_one_exchange"),
    Break("witness_prefix", "runtime/driver/checked_bridge.py", "writes = writes[marks.index(self._witness.writes):]",
          "writes = writes[marks.index(self._witness.writes) + 1:]", "a write that was lost is left out",
          f"{BRIDGE}::test_a_lost_packet_is_no_stray"),
    Break("witness_stray", "runtime/driver/checked_bridge.py", "self.strays, writes = self.strays + 1, []",
          "writes = []", "a write that went elsewhere is not noticed", f"{BRIDGE}::test_a_thousand_faults"),
    Break("witness_once", "runtime/driver/witness.py", "for address, words in writes:\n            marks.append",
          "for address, words in writes[:0]:\n            marks.append", "nothing says how far the writes came",
          f"{BRIDGE}::test_a_load_goes_over_the_link_once"),
    Break("noticed_late", "runtime/driver/register_machine.py", "self.bridge.pause(min(max(NOTICED * elapsed,",
          "self.bridge.pause(min(max(elapsed,", "the pauses double",
          "tb/unit/driver/test_speed.py::test_an_end_is_noticed_soon"),
    Break("start_of_the_answer", "runtime/driver/register_machine.py", "looked = seconds() - self._look_seconds",
          "looked = seconds()", "a program is taken to start when the start was answered",
          "tb/unit/driver/test_speed.py::test_an_end_that_is_expected_is_noticed_at_once"),
    # -- what lasts --
    Break("flush_no_repair", "runtime/driver/checked_bridge.py",
          "        if self.strays != before:\n            self.repair()\n", "",
          "an answer comes from memory that a stray damaged", f"{TRIES}::"
          "test_a_stray_within_a_flush_is_repaired_before_its_answer"),
    Break("constants_overlap", "runtime/driver/register_machine.py", "                del self._there[other]",
          "                pass", "constants count as there that others were written over",
          f"{DEVICE}::test_constants_that_others_overwrote_in_part_are_written_again"),
    Break("programs_unbounded", "runtime/driver/register_machine.py", "while len(self._programs) >= MOST_PROGRAMS:",
          "while False:", "what is known of programs grows for ever",
          f"{DEVICE}::test_what_is_known_of_programs_is_bounded"),
    Break("disturbed_run", "runtime/driver/register_machine.py",
          "if self._last.strays == self.bridge.strays and None not in done:", "if None not in done:",
          "a run that a link disturbed counts", f"{TRIES}::test_faults_in_every_run"),
    Break("disturbed_reading", "runtime/driver/register_machine.py",
          "if self._last is None or self._last.strays == self.bridge.strays:", "if self._last:",
          "results are read though memory was disturbed", f"{TRIES}::test_faults_in_every_run"),
    Break("refused_at_once", "runtime/driver/etherbone.py",
          "                raise self._fault(error) from None\n            if words",
          "                raise LinkFault(reason(error)) from None\n            if words",
          "a system that refuses uses up all attempts", f"{TRIES}::test_a_system_that_refuses_to_receive"),
    Break("line_says_old", "runtime/driver/uartbone.py", "                self._why = str(error)\n", "",
          "a port that is gone is told as the fault before", f"{TRIES}::"
          "test_a_line_that_is_lost_again_while_it_is_opened"),
    Break("simulation_left", "runtime/driver/links.py", "            self.close()\n            transport = Sim",
          "            transport = Sim", "the simulation of another machine runs on",
          "tb/unit/driver/test_simulated.py::test_a_simulator_is_driven_as_a_board_is"),
    Break("witness_unused", "runtime/driver/links.py", "            self.watch(shell.witness)", "            pass",
          "a shell's witness is not asked", "tb/unit/driver/test_shell_file.py::"
          "test_a_shell_with_a_witness_is_driven_through_it"),
    # -- samples --
    Break("ring_stale", "runtime/driver/sample_ring.py", "for _ in range(3):", "for _ in range(1):",
          "what waited for room in a full ring counts for the next program", "tb/unit/driver/test_board_samples.py::"
          "test_a_full_ring_loses_samples_and_ends_where_the_program_did"),
    Break("ring_after_the_end", "runtime/driver/sample_ring.py", "[:cycles // interval]", "",
          "samples of a machine at rest count", "tb/unit/driver/test_board_samples.py::"
          "test_every_sample_of_a_program_comes_and_none_after_it"),
    Break("ring_full", "boards/shell/sample_ring.py", "self.ready.eq(room != 0)", "self.ready.eq(1)",
          "a full ring is written over", "tb/unit/boards/test_sample_ring.py::"
          "test_samples_come_out_once_and_in_order"),
    Break("openxc7_chip", "boards/openxc7/tools.py", "return content.find(chip.encode()) >= 0", "return True",
          "another chip's database is taken", "tb/unit/boards/test_openxc7.py::"
          "test_a_file_that_is_no_chip_database_of_the_chip"),
    Break("zynq_bridge", "boards/openxc7/zynq.py",
          "(has_address | registers.aw.ready) & (has_data | registers.w.ready)", "has_data | registers.w.ready",
          "a write's address is dropped that the registers take after its data", "tb/unit/boards/test_openxc7.py::"
          "test_bursts_reach_the_registers_word_by_word"),
    Break("nexus_carry", "hw/flow/nexus.py", 'cell["connections"].get("CIN", [None])[0] in zeros', "False",
          "a chain of carries begins with a constant", "tb/unit/boards/test_bitstream.py::"
          "test_a_chain_of_carries_on_nexus_begins_with_none"),
    # -- a Zynq under PYNQ --
    Break("pynq_not_flushed", "runtime/driver/pynq_board.py",
          '        self._cached(address, len(words), "flush")\n', "", "what is written stays in the cache",
          "tb/unit/driver/test_pynq_board.py::test_an_overlay_computes_what_golden_computes"),
    Break("pynq_old_lines", "runtime/driver/pynq_board.py",
          '        self._cached(address, len(words), "invalidate")\n', "",
          "words of the machine that share a line of the cache are undone", "tb/unit/driver/test_pynq_board.py::"
          "test_words_beside_the_ones_that_are_written_stay_the_machines"),
    # -- machine --
    Break("run_released", "runtime/driver/register_machine.py", "            self._restore(self._last)\n        raise",
          "            pass\n        raise", "a run is repeated on what the first one left",
          f"{DEVICE}::test_runs_through_link_faults"),
    Break("run_counts", "runtime/driver/register_machine.py", "if instructions != program.count:",
          "if instructions > program.count:",
          "a program that ran in part counts", f"{DEVICE}::test_a_run_that_was_started_again_is_repeated"),
    Break("lost_power", "runtime/driver/register_machine.py",
          "            self.bridge.doubt()\n        self.bridge.settle()",
          "            pass\n        self.bridge.settle()", "a board without power keeps its memory",
          f"{DEVICE}::test_a_board_that_lost_its_power_between_two_runs"),
    Break("forgotten_program", "runtime/driver/register_machine.py", " or not all(status & ALIVE for status in found)",
          "", "a board that lost its power while a program ran is waited for",
          f"{MATRIX}::test_a_board_that_loses_its_power_with_its_cable"),
    Break("length_with_a_silence", "runtime/driver/register_machine.py",
          " and self.bridge.faults == faults\n", "\n", "a link's silence counts as a program's length",
          f"{MATRIX}::test_a_pause_of_the_link_is_no_length_of_a_program"),
    Break("length_of_a_time_out", "runtime/driver/register_machine.py",
          "is_clean = elapsed <= self.seconds and ", "is_clean = ", "a program that hung is left alone as long again",
          f"{MATRIX}::test_a_time_out_is_no_length_of_a_program"),
    Break("registers_of_a_start", "runtime/driver/register_machine.py",
          "            self.bridge.settle()  # what the command", "            # what the command",
          "a start is repeated without the registers that it needs",
          f"{MATRIX}::test_a_board_that_loses_its_power_with_its_cable"),
    Break("network_out", "runtime/driver/etherbone.py", "        self._sleep(PATIENCE_SECONDS)\n", "",
          "a cable that is out for a second uses up all attempts", f"{MATRIX}::test_one_fault_in_one_phase"),
    Break("counted_late", "runtime/driver/device.py", "            self.counters.add(result)\n        return result",
          "            self._workers.submit(self.counters.add, result)\n        return result",
          "a run has ended before it is counted", f"{DEVICE}::test_a_run_that_has_ended_is_counted"),
    Break("other_machine", "runtime/driver/registers.py", "        if found != wanted:",
          "        if found < wanted:", "a larger machine is taken for the model's",
          f"{DEVICE}::test_another_machine_is_refused"),
    # -- layouts --
    Break("layout_rows", "runtime/layouts.py", "row, lane = np.divmod(self.start + c, self.lanes)",
          "row, lane = c // self.lanes, (self.start + c) % self.lanes", "the start lane does not count for rows",
          f"{LAYOUTS}::test_features_scattered_over_lanes"),
    Break("layout_per_lane", "runtime/layouts.py", "return -(-(self.start + self.shape.c) // self.lanes)",
          "return -(-self.shape.c // self.lanes)", "a batch begins within the one before", f"{LAYOUTS}::test_compact"),
]
