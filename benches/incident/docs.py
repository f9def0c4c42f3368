"""What is written of the runs: a table for each kind, the picture, the machine."""

import datetime
import os
import pathlib
import platform
import re
import statistics

import picture

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = [
    "client",
    "settings",
    "longest wait",
    "allowed",
    "waiting at once",
    "failed calls",
    "last failure after recovery",
    "requests per call",
    "connections at once",
]


def row(run):
    mine = run.client.ours
    name = f"**{run.client.name}**" if mine else run.client.name
    return [
        name,
        run.client.label,
        "for ever" if run.never else f"{run.longest:.2f} s",
        f"{run.client.bound_millis() / 1000:.2f} s" if mine else "–",
        str(run.most_waiting),
        f"{run.failed} of {len(run.calls)}",
        f"{run.last_bad:.2f} s" if run.failed else "–",
        f"{run.requests / len(run.calls):.2f}",
        str(run.connections),
    ]


def markdown(head, rows):
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def table(runs):
    return markdown(HEAD, map(row, runs))


def spread(values, digits=1):
    """The median of several, and between which they lie."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def machine():
    with open("/proc/cpuinfo") as info:
        lines = [line.partition(":") for line in info]
    models = [value.strip() for name, _, value in lines if name.strip() == "model name"]
    load = os.getloadavg()[0]
    return (
        f"{datetime.date.today()}, {len(models)} cores ({models[0]}), Linux {platform.release()}, "
        f"load {load:.1f}, Python {platform.python_version()}"
    )


def write(name, text):
    """Puts it between the page's markers of that name."""
    page = PAGE.read_text()
    between = re.compile(f"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    changed, count = between.subn(lambda found: found[1] + text + "\n" + found[2], page)
    assert count == 1, f"docs/benchmarks.md has no place for {name}"
    PAGE.write_text(changed)


def write_all(runs):
    """`runs` by kind."""
    for kind, of_kind in runs.items():
        write(f"incident {kind}", table(of_kind))
    write("incident machine", machine())
    if picture.TITLES.keys() <= runs.keys():
        (ROOT / "docs" / "incident.svg").write_text(picture.draw(runs))
