"""The programs that make the calls: how each is built, and started."""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build"
PEERS = ROOT / "target" / "peers"
OUT = ROOT / "target" / "incident"
GO = {
    "PKG_CONFIG_PATH": str(BUILD), "GOMODCACHE": str(PEERS / "go"),
    "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false",
}  # fmt: skip


def run(*command, **environment):
    try:
        subprocess.run(command, check=True, env={**os.environ, **environment}, stdout=sys.stderr)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is missing; install it, or leave its client out with --only")


def c():
    run("cc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", HERE / "load.c", "-o", OUT / "load-c",
        f"-I{ROOT}/include", f"-L{BUILD}", "-lexperiment", f"-Wl,-rpath,{BUILD}", "-lpthread")  # fmt: skip


def go():
    run("go", "-C", HERE / "go", "build", "-o", OUT / "load-go", ".", **GO)


def go_sdk():
    run("go", "-C", HERE / "go", "build", "-tags", "sdk", "-o", OUT / "load-go-sdk", ".", **GO)


def python_sdk():
    if not (PEERS / "python/bin/pip").exists():
        run(sys.executable, "-m", "venv", PEERS / "python")
    run(PEERS / "python/bin/pip", "install", "--quiet", "--requirement", HERE / "peers/python/requirements.txt")


def node_sdk():
    (PEERS / "node").mkdir(exist_ok=True)
    shutil.copy(HERE / "peers/node/package.json", PEERS / "node")
    run("npm", "install", "--silent", "--no-package-lock", "--prefix", PEERS / "node")


def jvm_sdk():
    run("mvn", "--quiet", "--file", HERE / "peers/jvm/pom.xml", f"-Dmaven.repo.local={PEERS}/maven",
        "dependency:copy-dependencies", f"-DoutputDirectory={PEERS}/jvm")  # fmt: skip
    run("javac", "-cp", f"{PEERS}/jvm/*", "-d", OUT, HERE / "peers/jvm/Load.java")


def build(names):
    for folder in (OUT, PEERS):
        folder.mkdir(parents=True, exist_ok=True)
    steps = {"c": c, "go": go, "go-sdk": go_sdk, "python-sdk": python_sdk, "node-sdk": node_sdk, "jvm-sdk": jvm_sdk}
    for name in sorted(names & steps.keys()):
        steps[name]()


def command(name):
    """The command of a program, but for its arguments, and what it needs in the environment."""
    library = {"EXPERIMENT_LIBRARY": str(BUILD / "libexperiment.so")}
    path = {"PYTHONPATH": str(ROOT / "bindings/python/src")}
    return {
        "c": ([OUT / "load-c"], {}),
        "go": ([OUT / "load-go"], {"LD_LIBRARY_PATH": str(BUILD)}),
        "python": ([sys.executable, HERE / "load.py", "libexperiment"], library | path),
        "ruby": (["ruby", f"-I{ROOT}/bindings/ruby/lib", HERE / "load.rb"], library),
        "python-sdk": ([PEERS / "python/bin/python", HERE / "load.py", "amplitude_experiment"], {}),
        "node-sdk": (["node", HERE / "peers/node/load.mjs", PEERS / "node"], {}),
        "go-sdk": ([OUT / "load-go-sdk"], {}),
        "jvm-sdk": (["java", "-cp", f"{PEERS}/jvm/*:{OUT}", "Load"], {}),
    }[name]
