"""What the rounds found: a table in Markdown, and a plot in SVG."""

from html import escape
from statistics import median

BASE = "classic"

BAR_PX, STEP_PX, LEFT_PX, WIDTH_PX = 18, 30, 380, 960

STYLE = """
svg { color-scheme: light dark; font: 14px system-ui, sans-serif; }
text { fill: light-dark(#1f2328, #e6edf3); }
.bar { fill: light-dark(#8c959f, #6e7681); }
.bar.ours { fill: light-dark(#0072b2, #56b4e9); }
.range { stroke: light-dark(#1f2328, #e6edf3); stroke-width: 2; }
"""


def count(number):
    return f"{number:,.0f}"


class Result:
    """The samples of a contender, or why there are none."""

    def __init__(self, contender, samples, missing=None):
        self.name, self.how = contender.name, contender.how
        self.samples, self.missing = samples, missing

    def rates(self):
        return [sample.checks_per_s for sample in self.samples]

    def rate(self):
        return median(self.rates())

    def median_of(self, figure):
        return median(figure(sample) for sample in self.samples)

    def cpu(self, server):
        """Median CPU time of a server for one check, as text."""
        if server not in self.samples[0].cpu_us:
            return ""
        return f"{self.median_of(lambda sample: sample.cpu_us[server]):.2f}"

    def row(self, base_per_s):
        if not self.samples:
            return [self.name, self.how, self.missing, *[""] * 6]
        ratio = f"{self.rate() / base_per_s:.2f}" if base_per_s else ""
        spread = f"{count(min(self.rates()))} - {count(max(self.rates()))}"
        times = [count(self.median_of(lambda sample: getattr(sample, name))) for name in ("p50_us", "p99_us")]
        return [self.name, self.how, count(self.rate()), spread, ratio, self.cpu("server"), self.cpu("redis"), *times]


HEADINGS = [
    "contender", "how", "checks/s", "range", "of the classic", "CPU us a check, server", "CPU us a check, Redis",
    "p50 us", "p99 us",
]  # fmt: skip


def table(results):
    """Medians of all rounds, one row a contender."""
    base_per_s = next((result.rate() for result in results if result.name == BASE and result.samples), None)
    return markdown(HEADINGS, 2, [result.row(base_per_s) for result in results])


def markdown(headings, words, rows):
    """A table whose first `words` columns are words and the others numbers."""
    rule = ["---"] * words + ["---:"] * (len(headings) - words)
    return "".join(f"| {' | '.join(row)} |\n" for row in [headings, rule, *rows])


def plot(results):
    """Bars of the medians, with the range of the rounds as a line."""
    shown = [result for result in results if result.samples]
    highest = max((max(result.rates()) for result in shown), default=1)
    scale = (WIDTH_PX - LEFT_PX - 120) / highest
    bars = "".join(bar(result, index * STEP_PX + 10, scale) for index, result in enumerate(shown))
    height = len(shown) * STEP_PX + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {height}" role="img">'
        f"<title>Checks a second, medians and ranges</title><style>{STYLE}</style>{bars}</svg>\n"
    )


def bar(result, top, scale):
    middle = top + BAR_PX / 2
    start, end = (LEFT_PX + rate * scale for rate in (min(result.rates()), max(result.rates())))
    kind = "bar ours" if "tollgate" in result.name else "bar"
    label = f"{result.name}: {result.how}"
    return (
        f'<text x="{LEFT_PX - 10}" y="{middle + 5:.0f}" text-anchor="end">{escape(label)}</text>'
        f'<rect class="{kind}" x="{LEFT_PX}" y="{top}" width="{result.rate() * scale:.1f}" height="{BAR_PX}"/>'
        f'<path class="range" d="M{start:.1f} {middle}H{end:.1f}"/>'
        f'<text x="{end + 10:.0f}" y="{middle + 5:.0f}">{count(result.rate())}</text>'
    )
