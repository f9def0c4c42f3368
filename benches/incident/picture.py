"""The picture of the incident: how many callers wait, over time, for every client."""

import math

WIDTH, HEIGHT = 960, 440
TOP, BOTTOM, LEFT, GAP = 116, 52, 52, 48
PANEL = (WIDTH - LEFT - GAP - 16) / 2
STEP = 0.1

TITLES = {
    "stall": "The service stalls: it reads requests and answers none",
    "drip": "The service drips: a byte of the answer each 100 ms",
}
# Drawn in this order, so that ours lies on top. By what a client is called: a word for its colour.
LINES = {
    "Python SDK": "python",
    "JVM SDK": "jvm",
    "Node SDK": "node",
    "Go SDK": "go",
    "ours": "ours",
}
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-size: 17px; font-weight: 600 } .panel { font-weight: 600 } .small { font-size: 12px; fill: #59636e }
  .legend text { font-size: 12px } .end { text-anchor: end } .middle { text-anchor: middle } .strong { font-weight: 700 }
  .grid { stroke: #d1d9e0; stroke-width: 1 } .bad { fill: #cf222e; fill-opacity: .08 }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round }
  .python { stroke: #cf222e } .jvm { stroke: #bc6c00 } .node { stroke: #8250df } .go { stroke: #0969da }
  .ours { stroke: #1a7f37; stroke-width: 3.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .small { fill: #9198a1 } .grid { stroke: #3d444d } .bad { fill: #f85149; fill-opacity: .14 }
    .python { stroke: #ff7b72 } .jvm { stroke: #e3b341 } .node { stroke: #d2a8ff } .go { stroke: #58a6ff }
    .ours { stroke: #3fb950 }
  }
"""


def line_of(run):
    """The word for its colour; None if the run is not in the picture, which has one for each client."""
    if run.client.ours:
        return "ours" if run.client.program == "c" and "deadline" in run.client.label else None
    if "advised" not in run.client.label or "pool" in run.client.label:
        return None
    return LINES[next(name for name in LINES if run.client.name.startswith(name))]


def chosen(runs):
    lines = {line_of(run): run for run in runs}
    return {word: lines[word] for word in LINES.values() if word in lines}


def text(style, x, y, words):
    return f'<text class="{style}" x="{x:.0f}" y="{y:.0f}">{words}</text>'


class Panel:
    """One kind of incident. Coordinates of the data are seconds and callers."""

    def __init__(self, left, runs, most):
        self.left, self.lines, self.most = left, chosen(runs), most
        self.schedule = runs[0].schedule

    def x(self, seconds):
        return self.left + PANEL * seconds / self.schedule.total

    def y(self, callers):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * callers / self.most

    def draw(self, kind):
        yield text("panel", self.left, TOP - 38, TITLES[kind])
        yield from self.axes()
        for word, run in self.lines.items():
            yield f'<path class="line {word}" d="{self.path(run)}"/>'
        yield from self.legend()

    def axes(self):
        start, end = self.x(self.schedule.good), self.x(self.schedule.good + self.schedule.bad)
        top, floor = self.y(self.most), self.y(0)
        yield f'<path class="bad" d="M{start:.0f} {top:.0f}H{end:.0f}V{floor:.0f}H{start:.0f}z"/>'
        yield text("small middle", (start + end) / 2, top - 8, f"bad for {self.schedule.bad} s")
        yield text("small end", self.left - 8, top - 14, "callers")
        for callers in range(0, self.most + 1, 100):
            y = self.y(callers)
            # The legend is beside all of them but the axis.
            right = end + 14 if callers else self.left + PANEL
            yield f'<path class="grid" d="M{self.left:.0f} {y:.1f}H{right:.0f}"/>'
            yield text("small end", self.left - 8, y + 4, callers)
        for seconds in range(0, int(self.schedule.total) + 1, 5):
            yield text("small middle", self.x(seconds), floor + 18, seconds)
        yield text("small middle", self.left + PANEL / 2, floor + 38, "seconds")

    def path(self, run):
        """The most callers that waited within each step; corners only."""
        most = [0] * (math.ceil(self.schedule.total / STEP) + 2)
        steps = [*run.waiting(), (self.schedule.total, 0)]
        for (at, count), (until, _) in zip(steps, steps[1:]):
            for step in range(int(at / STEP), min(int(until / STEP), len(most) - 2) + 1):
                most[step] = max(most[step], count)
        corners = [
            f"{self.x(step * STEP):.1f} {self.y(most[step]):.1f}"
            for step in range(len(most) - 1)
            if step == 0 or not most[step - 1] == most[step] == most[step + 1]
        ]
        return "M" + "L".join(corners)

    def legend(self):
        """Beside the lines, where all of them are down again."""
        names = self.x(self.schedule.good + self.schedule.bad) + 42
        longest = self.left + PANEL
        at_once, y = longest - 48, TOP + 16
        yield '<g class="legend">'
        yield text("small end", at_once, y, "at once")
        yield text("small end", longest, y, "longest")
        for word, run in sorted(self.lines.items(), key=lambda line: -line[1].most_waiting):
            y += 22
            style = "strong" if word == "ours" else ""
            name = "libexperiment" if word == "ours" else run.client.name.rsplit(" ", 1)[0]
            yield f'<path class="line {word}" d="M{names - 20:.0f} {y - 4}h14"/>'
            yield text(style, names, y, name)
            yield text(f"end {style}", at_once, y, run.most_waiting)
            yield text(f"end {style}", longest, y, f"{run.longest:.1f} s")
        yield "</g>"


def draw(runs):
    """`runs` by kind; the kinds of TITLES are drawn, side by side on one scale."""
    most = max(run.most_waiting for kind in TITLES for run in chosen(runs[kind]).values())
    most = math.ceil(most / 50) * 50
    title = "Callers that wait for their variants, at 30 calls a second"
    settings = (
        "timeout 500 ms, one retry, no back-off, as the vendor advises; "
        "libexperiment with its total deadline of 600 ms"
    )
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        text("title", 16, 28, title),
        text("small", 16, 46, settings),
    ]
    for index, kind in enumerate(TITLES):
        out += Panel(LEFT + index * (PANEL + GAP), runs[kind], most).draw(kind)
    return "\n".join([*out, "</svg>", ""])
