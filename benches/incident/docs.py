"""What is written of the incident: a table for each kind, and the picture."""

import page
import picture

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


def table(runs):
    return page.markdown(HEAD, map(row, runs))


def write_all(runs):
    """`runs` by kind."""
    for kind, of_kind in runs.items():
        page.write(f"incident {kind}", table(of_kind))
    page.write("incident machine", page.machine())
    if picture.TITLES.keys() <= runs.keys():
        page.PICTURE.write_text(picture.draw(runs))
