"""Bar charts as SVG, and the same as tables of a page in Markdown."""

import dataclasses
import os
import re
import time
from html import escape

LARGER, SMALLER = "longer is better", "shorter is better"

WIDTH, LEFT, RIGHT, BAR, STEP, HEAD, LETTER = 760, 190, 120, 16, 24, 34, 8

STYLE = """
  text { font: 14px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328; }
  .title { font-size: 17px; font-weight: 600; } .group { font-weight: 600; } .note { font-size: 13px; fill: #59636e; }
  .page { fill: #ffffff; } .weir { fill: #0969da; } .behind { fill: #8c959f; } .ahead { fill: #bc4c00; }
  .one { stroke: #59636e; stroke-dasharray: 3 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .note { fill: #9198a1; } .page { fill: #0d1117; }
    .weir { fill: #4493f8; } .behind { fill: #656c76; } .ahead { fill: #f0883e; } .one { stroke: #9198a1; }
  }
"""


@dataclasses.dataclass
class Bar:
    """A side of a group. `value` is a multiple of weir's, or, if there is a `base`, an amount, which for weir is `base`."""

    name: str
    value: float
    base: float = None
    at_most: bool = False

    def multiple(self):
        return self.value / self.base if self.base else self.value

    def label(self):
        text = short(self.multiple()) + " ×"
        if self.base:
            text = f"{self.value:,.0f} ({text})"
        return ("at most " if self.at_most else "") + text


def short(number):
    return f"{number:.0f}" if number >= 20 else f"{number:.1f}" if number >= 2 else f"{number:.2f}" if number >= 0.1 else f"{number:.3f}"


@dataclasses.dataclass
class Chart:
    title: str
    unit: str
    better: str
    groups: dict = dataclasses.field(default_factory=dict)  # name: [Bar, …]; weir is the first one

    def loses(self, bar):
        """Whether a peer is better than weir, by more than what rounds differ."""
        if bar.name.startswith("weir"):
            return False
        return bar.multiple() > 1.02 if self.better == LARGER else bar.multiple() < 0.98

    def words(self):
        """All of it as text."""
        parts = (f"{group}: {', '.join(f'{bar.name} {bar.label()}' for bar in bars)}" for group, bars in self.groups.items())
        return f"{self.unit}; {self.better}. {'. '.join(parts)}."

    def svg(self):
        most = max(bar.value for bars in self.groups.values() for bar in bars)
        scale = (WIDTH - LEFT - RIGHT) / most
        out, y = [], 66
        for group, bars in self.groups.items():
            out.append(f'  <text class="group" x="16" y="{y + 20}">{escape(group)}</text>')
            y += HEAD
            top, one = y, LEFT + bars[0].value * scale
            for bar in bars:
                kind = "weir" if bar.name.startswith("weir") else "ahead" if self.loses(bar) else "behind"
                length = max(1.0, bar.value * scale)
                label = LEFT + length + 8
                if label - 4 < one < label + LETTER * len(bar.label()):  # not across the dashed line
                    label = one + 8
                out.append(f'  <text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(bar.name)}</text>')
                out.append(f'  <rect class="{kind}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>')
                out.append(f'  <text x="{label:.1f}" y="{y + 13}">{escape(bar.label())}</text>')
                y += STEP
            out.append(f'  <line class="one" x1="{one:.1f}" y1="{top - 3}" x2="{one:.1f}" y2="{y - STEP + BAR + 3}"/>')
            y += 6
        note = f"{self.unit} · {self.better} · dashed: weir · orange: better than weir"
        return "\n".join((
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 10}" width="{WIDTH}" height="{y + 10}" role="img"'
            ' aria-labelledby="title desc">',
            f'  <title id="title">{escape(self.title)}</title>', f'  <desc id="desc">{escape(self.words())}</desc>',
            f"  <style>{STYLE}  </style>", f'  <rect class="page" width="{WIDTH}" height="{y + 10}" rx="8"/>',
            f'  <text class="title" x="16" y="32">{escape(self.title)}</text>',
            f'  <text class="note" x="16" y="54">{escape(note)}</text>', *out, "</svg>", "",
        ))

    def table(self):
        names = list(dict.fromkeys(bar.name for bars in self.groups.values() for bar in bars))
        rows = [["", *names], ["---"] * (len(names) + 1)]
        for group, bars in self.groups.items():
            cells = {bar.name: f"**{bar.label()}**" if self.loses(bar) else bar.label() for bar in bars}
            rows.append([group, *(cells.get(name, "") for name in names)])
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def machine():
    """Of this run, in a few words."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cpu = f" ({names[0]})" if names else ""
    return f"{time.strftime('%-d %B %Y', time.gmtime())}; {os.cpu_count()} cores{cpu}, {pages / 2**30:.0f} GiB of memory"


def losses(charts):
    """A list of what peers do better."""
    lines = []
    for chart in charts.values():
        for group, bars in chart.groups.items():
            found = ", ".join(f"{bar.name} {bar.label()}" for bar in bars[1:] if chart.loses(bar))
            if found:
                lines.append(f"- {chart.title}, {group}: {found}")
    return "\n".join(lines) or "In this run no peer was ahead of weir."


def write_page(path, charts, run):
    """Replaces what is between `<!-- figures: NAME -->` and `<!-- end of figures -->`."""
    texts = {name: chart.table() for name, chart in charts.items()}
    texts.update({"run": run + ".", "losses": losses(charts)})
    with open(path, encoding="utf-8") as file:
        page = file.read()

    def replaced(mark):
        return f"{mark[1]}\n\n{texts.get(mark[2], mark[3].strip())}\n\n{mark[4]}"

    page = re.sub(r"(<!-- figures: (\w+) -->)\n(.*?)(<!-- end of figures -->)", replaced, page, flags=re.S)
    with open(path, "w", encoding="utf-8") as out:
        out.write(page)
