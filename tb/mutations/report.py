# SPDX-License-Identifier: Apache-2.0
"""Breaks of the page and the trace."""

from weft.tb.mutations import Break

PAGE, SCRIPT = "tb/unit/report/test_page.py", "tb/unit/report/test_script.py"

BREAKS = [
    Break("page_escapes", "report/texts.py", '.replace("<", "\\\\u003c")', "",
          "a name may end the script that it stands in",
          f"{PAGE}::test_a_shown_name_prints_and_is_short"),
    Break("page_offset", "report/columns.py", "begins + offset,", "begins,",
          "the second program's operations are drawn over the first's", f"{PAGE}::test_columns_are_the_operations"),
    Break("page_shares", "report/page/timeline.js", "table.busy[begun] - Math.max", "table.busy[begun] + Math.max",
          "a unit is drawn busier than it is", f"{SCRIPT}::test_shares_are_how_long_a_unit_works"),
    Break("trace_layers", "report/operations.py", "np.arange(len(found)) % len(once)]", "np.arange(len(found)) % 7]",
          "bars bear the names of other layers", "tb/unit/report/test_trace.py::test_bars_say_what_the_instruction_is"),
]
