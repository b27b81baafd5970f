"""The structures of _library.py beside those of weir/weir.h."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from weir import _library

INCLUDE = Path(__file__).resolve().parents[3] / "include"
STRUCTURES = {
    "weir_str": _library.Str,
    "weir_header": _library.Header,
    "weir_request": _library.CRequest,
    "weir_charged": _library.Charged,
    "weir_receipt": _library.Receipt,
    "weir_cost": _library.Cost,
    "weir_verdict": _library.CVerdict,
    "weir_refusal": _library.CRefusal,
    "weir_error": _library.CError,
    "weir_options": _library.Options,
    "weir_store_status": _library.StoreStatus,
}
OURS = {"counts"}  # one field for many


def test_the_structures_are_those_of_the_header(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler or not INCLUDE.exists():
        pytest.skip("no C compiler, or not in weir's tree")
    wanted, lines = [], ["#include <stdio.h>", "#include <weir/weir.h>", "int main(void) {"]
    for name, structure in STRUCTURES.items():
        lines.append(f'printf("%zu\\n", sizeof(struct {name}));')
        wanted.append(ctypes.sizeof(structure))
        for field in structure._fields_:
            if field[0] not in OURS:
                lines.append(f'printf("%zu\\n", offsetof(struct {name}, {field[0]}));')
                wanted.append(getattr(structure, field[0]).offset)
    lines.append('printf("%d\\n%d\\n", WEIR_ABI_VERSION, WEIR_RECEIPT_TEXT_MAX); }')
    wanted += [_library.ABI_VERSION, _library.Receipt.TEXT_MAX]
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("\n".join(lines))
    subprocess.run([compiler, f"-I{INCLUDE}", "-o", program, source], check=True)
    found = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert [int(line) for line in found.split()] == wanted
