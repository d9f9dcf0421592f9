# SPDX-License-Identifier: Apache-2.0
"""Every proof holds, and fails around a block broken on purpose."""

from __future__ import annotations

import pytest

from weft.tb.formal.proofs import PROOFS
from weft.tb.formal.prove import Proof

BROKEN_IN_MAKE_TEST = {"stream_walker", "order_unit_queue", "round_robin", "tracker_simd", "splitter", "tap_streams"}
"""The breaks that the quick suite looks at too; all of them are `long`."""
FAST = {proof.name for proof in PROOFS if proof.fast}


def cases(quick: set[str]) -> list:
    return [pytest.param(proof, id=proof.name, marks=[] if proof.name in quick else [pytest.mark.long])
            for proof in PROOFS]


@pytest.mark.wide_cases("stream_program_reader", "stream_dram_reader", "stream_move_in", "stream_unit_queue",
                        "stream_fetch", "stream_gearbox*", "stream_csr", "stream_input_rescaler", "stream_requantizer",
                        "stream_ping_pong", "stream_register_slice", "turns", "decoder_ranges", "operations_*",
                        "order_unit_queue", "order_dram0_write", "order_ping_pong", "order_register_slice",
                        "order_stream_fifo", "blame_dram0_write", "local_memory", "tracker_*", "ring", "decoder_form",
                        "stream_dram_writer", "stream_move_out", "order_read_stream", "ring_odd", "turns_two_rows",
                        "rows_ahead", "port_read_order", "port_reads", "port_writes", "stream_simd", "stream_decoder",
                        "scaler_takes", "stream_read_stream", "signals_early", "accumulator_ports", "stream_walker",
                        "pairs_apart_no_residue", "pairs_apart_dsp48e2")
@pytest.mark.slow
@pytest.mark.parametrize("proof", cases(FAST))
def test_proof_holds(proof: Proof) -> None:
    outcome = proof.run()
    assert outcome.proved, f"{proof.name}: {outcome.failed} does not hold, see {outcome.trace}"


@pytest.mark.slow
@pytest.mark.parametrize("proof", cases(BROKEN_IN_MAKE_TEST))
def test_proof_fails_around_a_broken_block(proof: Proof) -> None:
    outcome = proof.run_broken()
    assert not outcome.proved and outcome.trace, f"{proof.name} holds although {', '.join(proof.broken)} is broken"


def test_names_are_unique() -> None:
    names = [proof.name for proof in PROOFS]
    assert len(names) == len(set(names))


@pytest.mark.slow
@pytest.mark.parametrize("proof", [case for case in cases(FAST) if case.values[0].reaches])
def test_what_a_proof_is_about_is_reached(proof: Proof) -> None:
    outcome = proof.run_cover()
    assert outcome.proved, f"{proof.name}: {outcome.log[-300:]}"
