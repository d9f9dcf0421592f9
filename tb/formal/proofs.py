# SPDX-License-Identifier: Apache-2.0
"""The list of all proofs."""

from weft.tb.formal import (
    bus,
    decoder,
    fifos,
    interlock,
    memories,
    ports,
    rings,
    scaled,
    signals,
    streams,
    tables,
    taps,
    turns,
)
from weft.tb.formal.prove import Proof

PROOFS: list[Proof] = [*streams.PROOFS, *fifos.PROOFS, *memories.PROOFS, *rings.PROOFS, *interlock.PROOFS,
                        *bus.PROOFS, *decoder.PROOFS, *scaled.PROOFS, *tables.PROOFS,
                        *turns.PROOFS, *taps.PROOFS, *ports.PROOFS, *signals.PROOFS]
