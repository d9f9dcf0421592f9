# SPDX-License-Identifier: Apache-2.0
"""Longest paths from an SDF file as nextpnr writes it: two flip-flops, a look-up table between them, and a wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.hw.flow.static_timing import long_paths, summary

SDF = """(DELAYFILE
  (CELL
    (CELLTYPE "top")
    (INSTANCE )
    (DELAY
      (ABSOLUTE
        (INTERCONNECT device.machine.from_3_TRELLIS_FF_Q/Q lut_LUT4_Z/A (0:0:1000) (0:0:1500))
        (INTERCONNECT device.machine.from_3_TRELLIS_FF_Q/Q device.machine.near_TRELLIS_FF_Q/DI (0:0:100) (0:0:100))
        (INTERCONNECT lut_LUT4_Z/F device.machine.to_TRELLIS_FF_Q_7/DI (0:0:7000) (0:0:6000))
      )
    )
  )
  (CELL
    (CELLTYPE "TRELLIS_COMB")
    (INSTANCE lut_LUT4_Z)
    (DELAY
      (ABSOLUTE
        (IOPATH A F (200:218:236) (200:218:236))
      )
    )
  )
""" + "".join(f"""  (CELL
    (CELLTYPE "TRELLIS_FF")
    (INSTANCE device.machine.{name})
    (DELAY
      (ABSOLUTE
        (IOPATH CLK Q (430:477:525) (430:477:525))
      )
    )
    (TIMINGCHECK
      (SETUPHOLD (posedge DI) (posedge CLK) (0:0:40) (267:285:303))
    )
  )
""" for name in ("from_3_TRELLIS_FF_Q", "near_TRELLIS_FF_Q", "to_TRELLIS_FF_Q_7")) + ")\n"


def test_the_late_path_and_its_pins(tmp_path: Path) -> None:
    (tmp_path / "delays.sdf").write_text(SDF)
    group, = long_paths(tmp_path / "delays.sdf", 9.0)
    assert (group.start, group.end, group.count) == ("from_#", "to", 1)
    times = [525, 525 + 1500, 525 + 1500 + 236, 525 + 1500 + 236 + 7000]
    assert [time for _, time in group.path] == pytest.approx([1e-3 * time for time in times])
    assert group.longest == pytest.approx(1e-3 * (times[-1] + 40))
    assert "1 late ends" in summary([group]) and "9.30 ns      1  from_#  to  to" in summary([group])


def test_nothing_is_late(tmp_path: Path) -> None:
    (tmp_path / "delays.sdf").write_text(SDF)
    assert long_paths(tmp_path / "delays.sdf", 9.5) == []
    assert len(long_paths(tmp_path / "delays.sdf", 0.5)) == 2


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_delays_the_longest_counts(order: int, tmp_path: Path) -> None:
    """Two ways to a table, two clocks of a register, two times before an edge: whichever the file names first."""
    def listed(*lines: str) -> str:
        return "\n".join(lines[::order]) + "\n"

    (tmp_path / "delays.sdf").write_text("(INSTANCE )\n" + listed(
        "(INTERCONNECT a/Q lut/A (0:0:100) (0:0:100))", "(INTERCONNECT b/Q lut/B (0:0:900) (0:0:900))",
        "(INTERCONNECT lut/F c/DI (0:0:50) (0:0:50))") + "(INSTANCE lut)\n" + listed(
        "(IOPATH A F (0:0:400) (0:0:400))", "(IOPATH B F (0:0:300) (0:0:300))") + "".join(
        f"(INSTANCE {name})\n" + listed("(IOPATH CLK Q (0:0:500) (0:0:500))", "(IOPATH WCK Q (0:0:700) (0:0:700))")
        for name in "ab") + "(INSTANCE c)\n" + listed(
        "(SETUPHOLD (posedge DI) (posedge CLK) (0:0:40) (0:0:0))",
        "(SETUPHOLD (posedge DI) (posedge WCK) (0:0:60) (0:0:0))"))
    group, = long_paths(tmp_path / "delays.sdf", 0.1)
    assert [pin for pin, _ in group.path] == ["b/Q", "lut/B", "lut/F", "c/DI"]
    assert group.longest == pytest.approx(1e-3 * (700 + 900 + 300 + 50 + 60))
