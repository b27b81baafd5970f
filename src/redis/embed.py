#!/usr/bin/env python3
"""Writes the scripts of the store as C: embed.py OUT COMMON NAME=FILE... COMMON stands in front of each."""

import hashlib
import sys


def literal(line):
    """One line as a C string; bytes that C or its trigraphs would read as something else are escaped."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in line) + '"'


def read(path):
    with open(path, "rb") as file:
        return file.read()


out, common = sys.argv[1], read(sys.argv[2])
scripts = {name: common + read(path) for name, path in (word.split("=", 1) for word in sys.argv[3:])}
with open(out, "w", encoding="ascii") as c:
    c.write('#include "redis/script.h"\n')
    for name, text in scripts.items():
        c.write(f"\nstatic const char {name}_text[] =\n" + "\n".join(map(literal, text.splitlines(keepends=True))) + ";\n")
    c.write("\nconst struct script scripts[SCRIPTS] = {\n")
    for name, text in scripts.items():
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest()
        c.write(f'    [SCRIPT_{name.upper()}] = {{ "{name}", {{ {name}_text, sizeof {name}_text - 1 }}, "{sha}" }},\n')
    c.write("};\n")
