"""The project's structure: what a newcomer is told about it must be so."""

import ast
import re
import subprocess
import sys
import tomllib

import pytest
from conftest import ROOT

from kvprefetch.reference import REFERENCES


def reading_order():
    """The modules in the order of the README's table, `html/` as one."""
    table = (ROOT / "README.md").read_text().split("## Reading the code")[1].split("What each dependency")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [name.removesuffix("/") for row in rows for name in re.findall(r"`([\w/]+)`", row)]


ALONE = {  # packages that only these modules may import
    "matplotlib": {"charts", "heatmap", "notebook"},
    "joblib": {"parallel"},
    "distributed": {"parallel"},
    "papermill": {"execution"},
    "nbconvert": {"html"},
    "yaml": {"plainyaml", "modelfile"},
    "transformers": {"huggingface"},
    "simpy": {"simulation"},
    "scipy": {"calibration"},
    "pandas": {"planner"},
}


def imports(path):
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ([node.module] if node.module != "kvprefetch" else [f"kvprefetch.{a.name}" for a in node.names])


def modules():
    for path in sorted((ROOT / "kvprefetch").rglob("*.py")):
        name = path.relative_to(ROOT / "kvprefetch").parts[0].removesuffix(".py")
        if name != "__init__":
            yield name, path


def test_the_top_level_is_what_it_should_be():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {line.split("/")[0] for line in tracked.splitlines()}
    shown = {"notebooks", "kvprefetch", "params", "reports", "tests"}
    assert {name for name in names if not name.startswith(".")} == shown | {
        *("Makefile", "requirements.txt", "README.md", "pyproject.toml")
    }


def test_modules_import_only_those_before_them_in_the_readmes_table():
    order = reading_order()
    assert {name for name, _ in modules()} == set(order)
    for name, path in modules():
        for imported in imports(path):
            if imported.startswith("kvprefetch."):
                other = imported.split(".")[1]
                if other != "__version__" and other != name:
                    assert order.index(other) < order.index(name), f"{path.name} imports {imported}"


@pytest.mark.parametrize("package", ALONE)
def test_heavy_packages_have_one_home(package):
    users = {name for name, path in modules() if package in {each.split(".")[0] for each in imports(path)}}
    assert users == ALONE[package]


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import kvprefetch", set()),
        ("from kvprefetch import compare, crossover_ctx, sweep", {"numpy"}),
        ("from kvprefetch import LLAMA3_8B, load_hardware", {"numpy", "yaml"}),
    ],
)
def test_importing_stays_light(code, allowed):
    heavy = (
        "numpy yaml pandas matplotlib IPython jupyter_client nbformat papermill nbconvert scipy simpy transformers"
    ).split()
    probe = f"import sys; {code}; print(*({set(heavy)} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == allowed


def test_every_public_name_is_there():
    import kvprefetch

    assert all(getattr(kvprefetch, name) is not None for name in kvprefetch.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        kvprefetch.nothing  # noqa: B018


def test_the_readme_names_every_make_target_and_every_dependency():
    readme = (ROOT / "README.md").read_text()
    targets = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(targets) > 5
    for target in targets:
        assert f"`make {target}" in readme or f"make {target}\n" in readme, target
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in (*project["dependencies"], *sum(project["optional-dependencies"].values(), [])):
        name = re.match(r"[\w-]+", requirement)[0]
        assert f"`{name}`" in readme or name == "kvprefetch", name


def test_every_requirement_is_pinned():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pins = [line.split(";")[0].strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    assert len(pins) > 50
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)


def test_make_alone_lists_the_targets():
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in said.splitlines()} >= {"report", "test", "regress", "reference", "bench"}


def test_the_reference_reports_are_those_that_are_tracked_and_tested():
    folders = {f"{model}--{hw}" for model, hw in REFERENCES}
    tracked = subprocess.run(
        ["git", "ls-files", "reports"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert {line.split("/")[1] for line in tracked.splitlines()} == folders
    (line,) = (line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("references :="))
    assert folders <= set(re.findall(r"[\w.-]+--[\w.-]+", line))
