# SPDX-License-Identifier: Apache-2.0
"""Breaks of runtime and command line, and of how the files that a user gives are read."""

from weft.tb.mutations import Break

PORTS = "tb/unit/runtime/test_ports.py"
SCHEMA = "tb/unit/runtime/test_schema.py"
FAULTS = "tb/unit/project/test_write_faults.py"
MODEL_SET = "tb/unit/runtime/test_model_set.py"
RUNNABLE = "tb/unit/runtime/test_onnx_runnable.py"
STRICT = "tb/unit/support/test_strict_json.py"
CLI = "tb/unit/project/test_cli.py"
CLI_ERRORS = "tb/unit/project/test_cli_errors.py"

BREAKS = [
    # -- ports and packing --
    Break("manifest_runs", "tmodel/ports.py", "value == found[-1][0] + found[-1][1] * found[-1][2]",
          "value == found[-1][0] + found[-1][1] * (found[-1][2] - 1)", "positions of an input are written wrongly",
          f"{PORTS}::test_runs_go_on_while_the_step_is_the_same"),
    Break("window_counts", "tmodel/window.py", "+ reach + 1, size) - first, 0)",
          "+ reach + 1, size) - first, -9)", "a range beyond the image reads less than nothing",
          "tb/compile/test_windows.py::test_counts_of_many_ranges_are_those_of_each"),
    Break("window_outputs", "tmodel/window.py", "(size - 1 - offset) // stride + 1", "(size - offset) // stride + 1",
          "a tap is taken to fall inside the image where it falls next to it",
          "tb/compile/test_packing.py::test_every_packing_is_the_same_convolution"),
    Break("packing_pads", "tmodel/packing.py", "low * window.strides[axis] - window.pads[axis] + tap",
          "low * window.strides[axis] + tap", "padding of a packed image is forgotten",
          "tb/compile/test_packing.py::test_every_packing_is_the_same_convolution"),
    Break("compare_words", "runtime/compare.py", "where = np.flatnonzero(left != right)",
          "where = np.flatnonzero(left > right)", "a word that is too small in golden is not counted",
          "tb/unit/project/test_cli.py::test_difference_names_address_lane_and_values_and_exits_2"),
    Break("compare_dram1", "runtime/session.py", "return dram0 + dram1", "return dram0",
          "what a program leaves in DRAM1 is not compared",
          "tb/compile/test_both_drams.py::test_a_word_of_dram1_that_differs_is_found"),
    Break("machine_names", "runtime/devices.py", "    if on != RTL:", "    if not on:",
          "a machine of any name is the simulator",
          "tb/unit/runtime/test_ways_out.py::test_inputs_that_do_not_fit"),
    Break("images_least", "runtime/images.py", "most is not None and most < 1", "most is not None and most < 0",
          "no image is run, and an index is out of range",
          "tb/unit/runtime/test_ways_out.py::test_inputs_that_do_not_fit"),
    Break("debug_digits", "cli/debugger.py", "text.isdecimal() and len(text) < 19", "text.isdecimal()",
          "a number of 5000 digits ends the debugger in a traceback",
          "tb/unit/project/test_debug.py::test_a_wrong_command_says_what_is_allowed"),
    # -- what a .tmodel may say --
    Break("checks_apart", "tmodel/checks.py", "if base + size > other_base:", "if base + size > other_base + 1:",
          "ranges with one vector in common are taken for apart", f"{SCHEMA}::test_damage_is_refused"),
    Break("checks_within", "tmodel/checks.py", "if base + size > depth:", "if base + size > depth + 1:",
          "one vector beyond a memory is let through", f"{SCHEMA}::test_damage_is_refused"),
    Break("checks_backwards", "tmodel/checks.py", "low, high = sorted((first, first + step * (length - 1)))",
          "low, high = first, first + step * (length - 1)", "a run that goes back may leave its tensor",
          f"{SCHEMA}::test_damage_is_refused"),
    Break("checks_layers", "tmodel/checks.py", "any(layer >= layers for", "any(layer > layers for",
          "an instruction may belong to the layer behind the last", f"{SCHEMA}::test_damage_is_refused"),
    # -- parts of the host --
    Break("host_steps", "tmodel/onnx_runnable.py", "if steps > MOST_STEPS:\n            raise",
          "if steps > 100 * MOST_STEPS:\n            raise",
          "a host's part may take minutes", f"{RUNNABLE}::test_work_without_end_is_refused_before_it_runs"),
    Break("host_sizes", "tmodel/onnx_runnable.py", "del plain.graph.value_info[:]", "plain.graph.value_info[:]",
          "what a file says of sizes is believed", f"{RUNNABLE}::test_what_a_file_says_of_sizes_is_not_believed"),
    Break("host_held", "tmodel/onnx_runnable.py", "+ _HELD_BYTES * held", "",
          "what a node holds itself takes no memory", f"{RUNNABLE}::test_work_without_end_is_refused_before_it_runs"),
    Break("host_names", "tmodel/host_part.py", "if set(names) != there.keys():", "if not set(names) & there.keys():",
          "a host's part may make what its file does not say", f"{RUNNABLE}::test_names_are_those_of_the_file"),
    Break("output_shape", "tmodel/tensors.py", "if array.shape != shape or", "if",
          "an output of another shape is given out", f"{RUNNABLE}::test_outputs_are_what_the_network_promises"),
    Break("one_line", "support/errors.py", "return _BREAKS.sub(escaped, RAW.sub(escaped, text))",
          "return RAW.sub(escaped, text)", "a name makes lines of its own",
          "tb/unit/project/test_foreign_text.py::test_every_part_of_a_message_is_escaped"),
    # -- files as one set --
    Break("set_order", "tmodel/model_set.py",
          "    decisive.replace(folder / name)\n    for file, path in hidden.items():\n"
          "        path.replace(folder / file)\n",
          "    for file, path in hidden.items():\n        path.replace(folder / file)\n"
          "    decisive.replace(folder / name)\n", "old files are replaced before the new set counts",
          f"{MODEL_SET}::test_a_kill_at_any_file_operation_leaves_the_old_set_or_the_new_one"),
    Break("set_checksum", "tmodel/model_set.py", "if entry is None or file_entry(content) == entry:",
          "if entry is None or len(content) == entry.bytes:", "only the length of a file is compared",
          f"{MODEL_SET}::test_constants_of_another_compilation_are_refused"),
    Break("set_links", "tmodel/model_set.py", "is_relative_to(folder.resolve())",
          "is_relative_to(folder.parent.resolve())", "a link may lead to a file beside the model's folder",
          f"{MODEL_SET}::test_links_out_of_the_folder_are_refused"),
    Break("set_plain", "tmodel/model_set.py", ' and "/" not in name', "", "a name may lead out of the folder",
          f"{MODEL_SET}::test_names_that_lead_out_of_the_folder_are_not_written"),
    # -- faults while files are written --
    Break("outputs_sweep", "support/outputs.py",
          "            if hold(file.fileno()):\n                path.unlink()", "            path.unlink()",
          "the new file of another writer at work is removed",
          f"{FAULTS}::test_two_writers_at_once_leave_what_one_of_them_wrote[a file-0]"),
    Break("outputs_late_lock", "support/outputs.py", "            os.stat(name)\n", "",
          "a new file that another writer removed before it was locked is written in vain",
          f"{FAULTS}::test_a_new_file_that_is_removed_before_it_has_its_lock_is_made_again"),
    Break("outputs_left", "support/outputs.py", "[a-z0-9_]{8}", "[a-z0-9_]{9}",
          "what killed writers leave stays for ever",
          f"{FAULTS}::test_a_fault_at_any_change_leaves_the_old_or_the_new[a file-killed]"),
    Break("board_mark", "boards/shell/delivery.py", "if path.name != MARK]", "]",
          "what a kill leaves of a working folder is taken for another's",
          f"{FAULTS}::test_a_fault_at_any_change_leaves_the_old_or_the_new[a board-killed]"),
    # -- JSON --
    Break("json_twice", "support/strict_json.py", "if len(found) != len(pairs):", "if len(found) > len(pairs):",
          "of a key that stands twice the last one counts", f"{STRICT}::test_what_is_refused"),
    Break("json_depth", "support/strict_json.py", "for _ in range(MOST_DEPTH + 1):",
          "for _ in range(MOST_DEPTH + 2):", "objects may be nested one deeper",
          f"{STRICT}::test_nesting_up_to_the_limit"),
    Break("json_digits", "support/strict_json.py", "if len(text) > MOST_DIGITS:",
          "if len(text) > MOST_DIGITS + 1:", "integers may have a digit more", f"{STRICT}::test_what_is_refused"),
    Break("json_finite", "support/strict_json.py", 'if value in (float("inf"), float("-inf")):',
          'if value == float("-inf"):', "a number too large becomes infinity", f"{STRICT}::test_what_is_refused"),
    # -- command line --
    Break("kept_alone", "cycles/kept_code.py", "found = self._load_overload(sig, target_context)",
          "found = super().load_overload(sig, target_context)", "kept machine code waits for numba's compiler",
          "tb/unit/project/test_estimator_cache.py::test_kept_code_runs_without_what_the_compiler_loads"),
    Break("native_damaged", "cycles/native.py", "return content[_CHECKED_BYTES:] if right else None",
          "return content[_CHECKED_BYTES:]", "damaged machine code is run",
          "tb/unit/project/test_native.py::test_half_a_file_is_made_again"),
    Break("cli_option", "cli/app.py", "raise WeftError(explain(f\"command {command}\"",
          "raise KeyboardInterrupt(explain(f\"command {command}\"", "a wrong option ends as if it were interrupted",
          f"{CLI_ERRORS}::test_wrong_options"),
    Break("cli_mismatch", "cli/main.py", "return _say(error, MISMATCH)", "return _say(error, USER_ERROR)",
          "a difference between RTL and golden ends as a user's mistake",
          f"{CLI}::test_difference_names_address_lane_and_values_and_exits_2"),
    Break("cli_integer", "cli/options.py", "int(value) if INTEGER.fullmatch(value) else value", "value",
          "numbers of --set are taken for text", f"{CLI}::test_set_changes_the_machine"),
    Break("cli_latency", "cli/memory.py", "IdealDram(latency, latency)", "IdealDram(latency)",
          "--latency is forgotten for writes", f"{CLI}::test_estimate_knows_slower_memory"),
    Break("cli_stop", "cli/estimate.py", "        if stop is not None:\n", "        if False:\n",
          "a program that the machine refuses is given cycles",
          "tb/unit/runtime/test_estimate.py::test_damaged_programs_are_refused_where_golden_stops"),
    Break("rewind_lacking", "runtime/programs.py", "[known for known in self.isa.registers if",
          "[known for known in Register if",
          "a register that the machine lacks is reset", "tb/unit/runtime/test_programs.py::"
          "test_a_register_that_the_machine_lacks_is_left_to_the_machine"),
]
