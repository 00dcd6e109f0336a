"""The device table on terminals of several widths: no line wraps but an address, and a wide one gets the whole table."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from robot_perf.devices.table import find, table
from robot_perf.render.hardware.devices import device_text, list_text


@pytest.mark.parametrize("width", [64, 80, 100])
def test_the_list_fits_the_terminal_and_says_what_it_left_out(width):
    text = list_text(table(), width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "aliases" not in text.splitlines()[0] and "aliases" in " ".join(text.splitlines()[len(table()) + 1 :])
    assert all(any(line.startswith(d.name) for line in text.splitlines()) for d in table())


def test_a_wide_terminal_gets_what_a_file_gets():
    assert list_text(table(), width=200) == list_text(table())
    assert "aliases" in list_text(table()).splitlines()[0]
    orin = find("agx-orin")
    assert device_text(orin, width=500) == device_text(orin)


def test_every_device_fits_80_columns_but_for_its_addresses():
    for device in table():
        for line in device_text(device, width=80).splitlines():
            assert cell_len(line) <= 80 or "http" in line.split()[-1], (device.name, line)


def test_sources_stand_under_the_narrow_table_by_number():
    text = device_text(find("agx-orin"), width=80)
    bandwidth = next(line for line in text.splitlines() if line.startswith("  bandwidth"))
    number = bandwidth.split()[-1]
    source = find("agx-orin").sources["bandwidth_gb_s"]
    assert number.startswith("[") and f"{number} {source}" in text
    assert text.count(source) == 1
