#!/usr/bin/env python3
"""Writes files as C strings, for what the service carries with it: embed.py OUT NAME FILE [NAME FILE]..."""

import sys


def literal(line):
    """One line as a C string; bytes that C or its trigraphs would read as something else are escaped."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in line) + '"'


out, words = sys.argv[1], sys.argv[2:]
with open(out, "w", encoding="ascii") as c:
    c.write('#include "serve/embedded.h"\n')
    for name, path in zip(words[::2], words[1::2]):
        with open(path, "rb") as file:
            lines = file.read().splitlines(keepends=True)
        c.write(f"\nconst char embedded_{name}[] =\n" + "\n".join(map(literal, lines)) + ";\n")
        c.write(f"const size_t embedded_{name}_len = sizeof embedded_{name} - 1;\n")
