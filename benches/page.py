"""docs/benchmarks.md: its tables, and what goes with each."""

import datetime
import os
import pathlib
import platform
import re
import statistics

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
PICTURE = DOCS / "incident.svg"


def markdown(head, rows):
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


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
