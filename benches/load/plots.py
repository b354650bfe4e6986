"""The rows of one workload as an SVG picture: four panels of bars, one group for each connection count.

Plain SVG with a light and a dark dress, no script and no font of its own. Rows with errors are hatched.
"""

from xml.sax.saxutils import escape

PANELS = [("cpu_us", "CPU per request, µs"), ("requests_per_second", "requests per second"),
          ("p99_ms", "P99, ms"), ("memory_mean_mib", "memory under load, MiB")]
COLOURS = ["#2563eb", "#94a3b8", "#16a34a", "#65a30d", "#ca8a04", "#dc2626", "#9333ea", "#0891b2", "#be185d", "#78716c"]
PANEL_WIDTH, PANEL_HEIGHT, MARGIN, HEAD = 360, 190, 24, 64
STYLE = """\
text { font: 12px sans-serif; fill: #1f2937 } .title { font-weight: bold } .small { font-size: 10px }
.back { fill: #ffffff } .axis { stroke: #9ca3af }
@media (prefers-color-scheme: dark) { text { fill: #e5e7eb } .back { fill: #111827 } .axis { stroke: #6b7280 } }"""


def bars(rows: list[dict]) -> str:
    """All rows must be of one workload."""
    names = list(dict.fromkeys(row["server"] for row in rows))
    width, height = 2 * (PANEL_WIDTH + MARGIN) + MARGIN, HEAD + 2 * (PANEL_HEIGHT + MARGIN)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
             f"<style>{STYLE}</style>", HATCH, f'<rect class="back" width="{width}" height="{height}"/>',
             f'<text class="title" x="{MARGIN}" y="22">{escape(rows[0]["workload"])}: {escape(rows[0]["title"])}</text>']
    x = MARGIN
    for name in names:
        parts.append(f'<rect x="{x}" y="34" width="10" height="10" fill="{colour(names, name)}"/>'
                     f'<text x="{x + 14}" y="43">{escape(name)}</text>')
        x += 34 + 7 * len(name)
    for number, (key, title) in enumerate(PANELS):
        left = MARGIN + number % 2 * (PANEL_WIDTH + MARGIN)
        top = HEAD + number // 2 * (PANEL_HEIGHT + MARGIN)
        parts.append(panel(rows, names, key, title, left, top))
    return "\n".join(parts + ["</svg>"]) + "\n"


def panel(rows: list[dict], names: list[str], key: str, title: str, left: int, top: int) -> str:
    counts = list(dict.fromkeys(row["connections"] for row in rows))
    highest = max((row[key] for row in rows), default=0) or 1
    floor, room = top + PANEL_HEIGHT - 22, PANEL_HEIGHT - 62
    group = PANEL_WIDTH / len(counts)
    wide = min(44.0, (group - 16) / len(names))
    parts = [f'<text class="title" x="{left}" y="{top + 14}">{title}</text>',
             f'<line class="axis" x1="{left}" y1="{floor}" x2="{left + PANEL_WIDTH}" y2="{floor}"/>']
    for place, count in enumerate(counts):
        begin = left + place * group + (group - wide * len(names)) / 2
        parts.append(f'<text class="small" text-anchor="middle" x="{left + (place + 0.5) * group:.0f}" '
                     f'y="{floor + 15}">{count} connections</text>')
        for row in (row for row in rows if row["connections"] == count):
            x, high = begin + names.index(row["server"]) * wide, room * row[key] / highest
            shape = f'x="{x:.1f}" y="{floor - high:.1f}" width="{wide - 2:.1f}" height="{high:.1f}"'
            parts.append(f'<rect {shape} fill="{colour(names, row["server"])}"/>')
            if not row["valid"]:
                parts.append(f'<rect {shape} fill="url(#invalid)"/>')
            parts.append(f'<text class="small" text-anchor="middle" x="{x + wide / 2 - 1:.1f}" '
                         f'y="{floor - high - 4:.1f}">{number(row[key])}</text>')
    return "\n".join(parts)


def colour(names: list[str], name: str) -> str:
    return COLOURS[names.index(name) % len(COLOURS)]


def number(value: float) -> str:
    """At most four characters, mostly."""
    if value >= 10_000:
        return f"{value / 1000:.0f}k"
    if value >= 1_000:
        return f"{value / 1000:.1f}k"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


HATCH = ('<defs><pattern id="invalid" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
         '<rect width="3" height="6" fill="#ffffff" opacity="0.6"/></pattern></defs>')
