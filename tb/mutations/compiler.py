"""Breaks of compiler and runtime."""

from weft.tb.mutations import Break

DIRECTED = "tb/compile/test_directed.py"
OPERATORS = "tb/compile/test_operators.py"

BREAKS = [
    # -- passes --
    Break("norm_offset", "compiler/passes/lower_linear.py", "beta - mean * factor", "mean - beta * factor",
          "offset and mean of a BatchNormalization are swapped", f"{DIRECTED}::test_a_batch_normalization_alone"),
    Break("norm_bias", "compiler/passes/fold.py", "bias * scale + shift", "(bias + shift) * scale",
          "a normalisation's offset is scaled like the convolution's bias",
          f"{DIRECTED}::test_a_batch_normalization_behind_a_convolution_with_a_bias"),
    Break("norm_epsilon", "compiler/passes/lower_linear.py", 'np.float32(node.attributes.get("epsilon", 1e-5))',
          "np.float32(1e-5)", "epsilon is not read", f"{DIRECTED}::test_a_batch_normalization_alone"),
    Break("spread_group", "compiler/passes/lower_linear.py", "slice(number * outputs // group,",
          "slice(number * per_group,", "outputs of a group are taken to be as many as its inputs",
          f"{DIRECTED}::test_a_grouped_convolution_with_fewer_outputs_of_channels_that_lie_apart"),
    Break("sub_order", "compiler/passes/lower_arithmetic.py", "made = state.scale(node, left, 1.0, -right)",
          "made = state.scale(node, left, -1.0, right)", "a - b becomes b - a",
          f"{OPERATORS}::test_operator[8 lanes-constants_around_a_convolution]"),
    Break("clip_bounds", "compiler/passes/lower_arithmetic.py", "_clipped(state, node, source, min(low, high), high)",
          "_clipped(state, node, source, low, high)", "a minimum above the maximum wins over it",
          f"{OPERATORS}::test_operator[8 lanes-clip_with_the_minimum_above_the_maximum]"),
    Break("fold_negative", "compiler/passes/fold_forward.py", "if (scale < 0).any():", "if (scale < -9).any():",
          "a negative factor goes through a ReLU", "tb/compile/test_fold_forward.py::test_what_cannot_be_folded_stays"),
    # -- quantize --
    Break("points_largest", "compiler/quantize/points.py", "math.floor(math.log2(((1 <<", "math.ceil(math.log2(((1 <<",
          "numbers are given a bit too few", f"{OPERATORS}::test_operator[8 lanes-grouped]"),
    Break("tables_zero", "compiler/quantize/tables.py", "values[zero] = slopes[zero] * keys[zero]",
          "values[zero] = values[zero]", "a function of zero is not quite zero",
          "tb/compile/test_value_tables.py::test_zero_becomes_zero"),
    Break("slope_cut", "compiler/quantize/consts.py", "arch.number.quantize(np.array(value))) for value in (",
          "np.floor(value * arch.number.one)) for value in (", "the slope of a leaky ReLU is cut, not rounded",
          f"{DIRECTED}::test_the_slope_of_a_leaky_relu_is_rounded_not_cut"),
    # -- memory --
    Break("bias_bit", "compiler/quantize/consts.py", "quantize(constants[core.bias], numbers.bias)",
          "quantize(constants[core.bias], numbers.bias) & ~1", "the lowest bit of every bias is dropped",
          f"{DIRECTED}::test_the_lowest_bit_of_a_bias_arrives"),
    Break("group_rows", "compiler/quantize/consts.py", "slice(index * out_group, (index + 1) * out_group)",
          "slice(index * per_group, (index + 1) * per_group)", "a group's weights go to other groups' outputs",
          f"{DIRECTED}::test_a_grouped_convolution_with_fewer_outputs_than_inputs"),
    # -- scheduler --
    Break("weights_dram0", "compiler/scheduler/load.py", "self.source.address(far + low, high - low)",
          "self.source.address(far, high - low)", "each piece of the weights is the first one",
          f"{DIRECTED}::test_short_pieces_of_weights_from_dram0_are_the_ones_of_dram1"),
    Break("weights_copy", "compiler/scheduler/load.py", "Address(Space.VARS, self.copy + far)",
          "Address(Space.VARS, self.copy + far - (size < 9))", "short pieces from DRAM0 begin a vector early",
          f"{DIRECTED}::test_short_pieces_of_weights_from_dram0_are_the_ones_of_dram1"),
    Break("pool_owner", "compiler/scheduler/pool.py", "if segment.released is None or segment.released >= bound:",
          "if segment.released is not None and segment.released >= bound:", "vectors that are held are given away",
          "tb/compile/test_buffers.py::test_a_vector_has_one_owner"),
    # -- backend --
    Break("encode_restored", "compiler/backend/encode.py", "    encoder.restore()\n", "",
          "a program leaves its registers to the next one",
          "tb/compile/test_pipeline.py::test_a_program_can_run_again"),
    Break("limit_tiles", "compiler/backend/limit.py", "((index + 1) * inputs - 1) // lanes + 1",
          "((index + 1) * inputs) // lanes + 1", "a tile that ends with the group is counted twice",
          "tb/compile/test_limit.py::test_groups_join_only_their_tiles"),
    # -- runtime --
    Break("window_outputs", "runtime/window.py", "(size - 1 - offset) // stride + 1", "(size - offset) // stride + 1",
          "a tap is taken to fall inside the image where it falls next to it",
          "tb/compile/test_packing.py::test_every_way_is_the_same_convolution"),
    Break("packing_pads", "runtime/packing.py", "low * window.strides[axis] - window.pads[axis] + tap",
          "low * window.strides[axis] + tap", "padding of a packed image is forgotten",
          "tb/compile/test_packing.py::test_every_way_is_the_same_convolution"),
    Break("compare_words", "runtime/compare.py", "where = np.flatnonzero(left != right)",
          "where = np.flatnonzero(left > right)", "a word that is too small in golden is not counted",
          "tb/unit/project/test_cli.py::test_difference_names_address_lane_and_values_and_exits_2"),
]
