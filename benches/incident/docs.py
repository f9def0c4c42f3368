"""What is written of the runs."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def table(kind, runs):
    """The runs of one kind, as Markdown."""
    lines = [
        "| client | settings | longest wait | most callers waiting | failed | last failure after recovery "
        "| requests for its calls | connections at once |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        last = f"{run.last_bad:.1f} s" if run.failed else "–"
        lines.append(
            f"| {run.client.name} | {run.client.label} | {run.longest:.2f} s{' (never back: %d)' % run.never if run.never else ''} "
            f"| {run.most_waiting} | {run.failed} | {last} "
            f"| {run.requests - len(run.calls):+d} | {run.connections} |")
    return "\n".join(lines)


def write(kind, runs):
    (ROOT / "target/incident" / f"{kind}.json").write_text(json.dumps([run.as_json() for run in runs]))
