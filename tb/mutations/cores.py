# SPDX-License-Identifier: Apache-2.0
"""Breaks of what several cores share, and of how they wait for each other, in hardware, golden machine and cycles."""

from weft.tb.mutations import Break

SYNC_UNIT = "tb/unit/control/test_sync_unit.py::test_posts_are_counted_and_waits_last_until_their_counter_is_filled"
ARBITER = "tb/unit/bus/test_port_arbiter.py"
ORDER = "tb/unit/golden/test_order.py"
SYSTEM = "tb/system/test_system.py"
SIGNALS = "tb/system/test_signals.py"
WRITTEN = "tb/unit/schedule/test_write_cores.py::test_a_schedule_of_several_cores_gives_the_same_programs"
ALL_ORDERS = f"{ORDER}::test_the_checker_says_what_all_orders_show"

BREAKS = [
    # -- hardware --
    Break("sync_wait_early", "hw/control/sync_unit.py", "Array(counters)[counter] >= above",
          "Array(counters)[counter] + 1 >= above", "a wait ends one post too early", SYNC_UNIT),
    Break("sync_posts_at_once", "hw/control/sync_unit.py",
          "sum_of([each.valid & (each.counter == number) for each in self.posted])",
          "Cat(each.valid & (each.counter == number) for each in self.posted).any()",
          "of posts that come in one cycle one is counted", SYNC_UNIT),
    Break("sync_stopped_posts", "hw/control/sync_unit.py", "acts.eq(busy & ~self.stop)", "acts.eq(busy)",
          "a core that an error stopped goes on to post",
          "tb/unit/control/test_sync_unit.py::test_a_core_that_stopped_drains_and_posts_no_more"),
    Break("sync_reads", "hw/contract/units.py", '"sync": Unit((_writes(1, Memory.DRAM0), _writes(1, Memory.DRAM1)))',
          '"sync": Unit((_reads(1, Memory.DRAM0), _reads(1, Memory.DRAM1)))',
          "a post does not wait for loads, nor loads for a wait",
          "tb/unit/contract/test_units.py::test_each_pair_of_units_conflicts_exactly_where_the_table_says_so"),
    Break("writer_done_with_data", "hw/bus/dram_writer.py",
          "self.done.eq(self.b.valid & to_answer.o.payload.last)",
          "self.done.eq(self.w.valid & self.w.ready & self.w.payload.last & to_answer.o.payload.last)",
          "a save counts as done, and a post behind it goes, with its last beat instead of its response",
          "tb/unit/bus/test_dram_writer.py::test_done_follows_the_last_response"),
    Break("arbiter_swaps_answers", "hw/bus/port_arbiter.py", "order.i.payload.eq(asked),",
          "order.i.payload.eq(asked ^ 1),", "two cores get each other's answers",
          f"{ARBITER}::test_every_client_reads_its_own_in_its_own_order"),
    Break("joined_beat_lost", "hw/bus/port_arbiter.py", "valid & ready if joined else valid", "valid",
          "a core takes a beat of a joined burst before the others do, and once more with them",
          f"{SYSTEM}::test_one_burst_serves_all_cores_that_read_the_same_constants"),
    Break("joined_for_ever", "hw/bus/joined_reads.py", "waits_no_longer = self._waited == self._most",
          "waits_no_longer = Signal()", "a read waits for ever for cores that do not ask for the same",
          f"{SYSTEM}::test_random_programs_leave_what_golden_leaves_in_any_order"),
    Break("joined_anything", "hw/bus/joined_reads.py", "(first.addr == second.addr) & ", "",
          "bursts of other addresses are joined too", "tb/formal/test_proofs.py::test_proof_holds[port_joined_reads]"),
    Break("joined_without_leave", "hw/bus/joined_reads.py",
          "\n                       & (port.ar.payload.cache & MODIFIABLE).any()", "",
          "reads that nobody allowed to be joined wait for each other",
          f"{SYSTEM}::test_one_burst_serves_all_cores_that_read_the_same_constants"),
    Break("joined_with_idle_cores", "hw/system.py", "members.eq(registers.start)",
          "members.eq((1 << self._arch.cores) - 1)", "reads wait for cores that were not started",
          f"{SYSTEM}::test_one_burst_serves_all_cores_that_read_the_same_constants"),
    Break("joined_unmeasured", "compiler/backend/join.py",
          "return min(code, joined, key=lambda each: cycles_an_image([each.content] * arch.cores, arch))",
          "return joined", "reads are joined where that costs cycles",
          "tb/system/test_batch.py::test_reads_are_joined_where_that_takes_fewer_cycles"),
    Break("decoder_signal_range", "hw/control/decoder.py", "(1 << operand.stride_log2) - 1, 0)", "0, 0)",
          "a Signal's range ends before its last stride does",
          "tb/unit/control/test_decoder.py::test_random_words_are_judged_as_the_golden_machine_judges_them[cores]"),
    Break("system_post_to_all", "hw/system.py", "source.post.valid & source.post.cores[k]", "source.post.valid",
          "a post counts in every core",
          f"{SIGNALS}::test_random_signalled_programs_leave_what_golden_leaves_in_any_order"),
    # -- golden machines and checker --
    Break("golden_wait_early", "golden/sync.py", "< signal.above:", "< signal.above - 1:",
          "a golden wait ends one post too early", f"{ORDER}::test_golden_cores_wait_for_each_other_in_any_order"),
    Break("order_forgets_posters", "golden/order.py",
          "np.maximum(clock, self.clocks[poster][number], out=clock)", "pass",
          "a wait knows of no post, so that all that cores share is a race", ALL_ORDERS),
    Break("order_any_filling", "golden/order.py", "if self.clocks[other][further, poster] <= last:",
          "if self.clocks[other][further, poster] < last:", "some waits that two posts could fill are let through",
          ALL_ORDERS),
    Break("races_signal_elsewhere", "golden/races.py", '(part["memory"] == sent["dram1"][number]) & ', "",
          "a Signal orders accesses to the other DRAM too",
          f"{ORDER}::test_accesses_without_an_order_are_refused"),
    Break("races_one_more", "golden/races.py", "(latest > known[:, other])", "(latest > known[:, other] + 1)",
          "an access is taken to follow one Signal more than it does", ALL_ORDERS),
    Break("legality_signal_end", "golden/legality.py", "return base + (self.operands[2] + 1) * stride - 1",
          "return base + self.operands[2] * stride", "a Signal may reach beyond a DRAM with its last stride",
          "tb/unit/golden/test_legality.py::test_a_range_of_strides_ends_with_the_last_stride"),
    Break("auto_counts_one_image", "compiler/backend/split.py",
          "    return cycles_an_image([alone.content] * arch.cores, arch)",
          "    return cycles([alone], arch)", "for throughput an image on each core counts as long as one alone",
          "tb/compile/test_split.py::test_throughput_takes_what_gives_more_images"),
    # -- schedules --
    Break("schedule_own_core", "schedule/write.py", "core_id=producer.core, layer_name",
          "core_id=work.core, layer_name",
          "what another core sends is said to come from the reader's own", f"{WRITTEN}[residual]"),
    Break("schedule_late_room", "schedule/write.py", "if other.layer >= begins)", "if other.layer > begins)",
          "there is room for what others send only as the own share of their layer has run: cores wait for ever",
          f"{WRITTEN}[residual]"),
    # -- cycles --
    Break("cycles_posts_at_once", "cycles/system.py", "deliver_posts(states, cores)", "deliver_posts(states, 1)",
          "posts of other cores than the first are never counted",
          f"{SIGNALS}::test_random_signalled_programs_take_the_cycles_of_the_estimate"),
]
