"""The programs of docs/python.md print what the page shows."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import List

import pytest
from servers import Service, write

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python.md"

# As the first rules of the service, but for the end of an hour, which may come at any time.
TOUR = """
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits: [ { name: hour, algorithm: fixed_window, max: 20, per: 1h } ]
"""


def blocks(language: str) -> List[str]:
    if not PAGE.exists():
        pytest.skip("not in weir's tree")
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def program(name: str) -> str:
    return next(block for block in blocks("python") if block.startswith(f"# {name}\n"))


def runs_as_shown(code: str, folder: Path, shown: str) -> None:
    (folder / "program.py").write_text(code, encoding="utf-8")
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    # A busy machine asks later: what is left of the hour is less then, by no more than the program took.
    least = 3600 - math.ceil(time.monotonic() - begin)
    found = re.sub(r"\d+", lambda text: "3600" if least <= int(text[0]) < 3600 else text[0], done.stdout)
    pattern = ".*".join(re.escape(part) for part in shown.split("…"))
    assert re.fullmatch(pattern, found, re.S), done.stdout


def test_the_tour(tmp_path: Path) -> None:
    service = Service()
    write(service.rules, TOUR)
    with service:
        code = program("ocr.py").replace("redis://127.0.0.1:6380", service.url)
        # The deadline is for users; a busy machine is not what is tested here.
        runs_as_shown(code.replace('")\n\n\n@', '", deadline=30)\n\n\n@', 1), tmp_path, blocks("text")[0])


def test_in_the_process(tmp_path: Path) -> None:
    (tmp_path / "limits.yaml").write_text(blocks("yaml")[0], encoding="utf-8")
    runs_as_shown(program("prompt.py"), tmp_path, blocks("text")[1])
