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
