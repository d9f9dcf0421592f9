# SPDX-License-Identifier: Apache-2.0
"""The complete check of a schedule: the list of its rules."""

from __future__ import annotations

import itertools

from weft.compiler.frontend.graph import Graph
from weft.schedule import buffer_rules, layer_rules, order_rules, transfer_rules
from weft.schedule.faults import Fault, Rule
from weft.schedule.model import Schedule
from weft.schedule.network_rules import faults_of_network

MOST_FAULTS = 100
"""More are not told."""

RULES: tuple[Rule, ...] = (
    layer_rules.cores_are_of_the_mesh, layer_rules.workloads_ascend, layer_rules.boxes_make_up_layers,
    layer_rules.layers_are_alike, layer_rules.weights_are_of_the_box, layer_rules.ofmap_sizes_fit,
    layer_rules.tiles_make_up_workloads, order_rules.nobody_waits_for_ever,
    transfer_rules.transfers_begin_once, transfer_rules.pieces_are_sent, transfer_rules.writes_are_pieces,
    transfer_rules.reads_are_written, transfer_rules.reads_are_sent, transfer_rules.weights_are_what_is_read,
    transfer_rules.last_producers_are_told,
    buffer_rules.ifmaps_are_delivered, buffer_rules.weights_are_there, buffer_rules.sources_are_senders,
    buffer_rules.blocks_fit_sizes, buffer_rules.ofmaps_have_room, buffer_rules.tensors_do_not_overlap,
    buffer_rules.sizes_hold_elements, buffer_rules.weight_places_do_not_overlap, buffer_rules.tensors_stay,
    order_rules.own_results_are_kept, order_rules.orders_are_one_tensors,
)


def faults_of(schedule: Schedule, network: Graph | None = None) -> list[Fault]:
    """Return the faults of a schedule, at most MOST_FAULTS; an empty list if it is consistent.

    With a ``network`` it must be that one's too."""
    found = itertools.chain.from_iterable(rule(schedule) for rule in RULES)
    of_network = faults_of_network(schedule, network) if network is not None else ()
    return list(itertools.islice(itertools.chain(found, of_network), MOST_FAULTS))
