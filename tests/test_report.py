"""Building reports, through the command line, in a copy of the checkout."""

import json
import os
import subprocess
import sys

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from building import FOLDER, SHORT, published
from html_rules import broken_rules

from kvprefetch.publish import ARTEFACTS, DIGEST


def test_a_report_is_four_files_an_answer_and_a_path(built, checkout, kvprefetch):
    assert set(published(checkout)) == {"index.html", *(f"{FOLDER}/{name}" for name in (*ARTEFACTS, DIGEST))}
    assert built.stdout == (
        "Llama-3-8B on A100-80GB PCIe (Gen4 x16), batch 1, depth 1: crossover 1306 tokens; largest reduction swept "
        "27.3 % at 512 tokens (9.53 -> 6.93 ms)\n"
        "No offload is needed. At 8192 tokens, the longest the model was made for, weights and cache take 17.13 GB of "
        "the 77.31 GB that A100-80GB PCIe (Gen4 x16) offers after a reserve of 10 %; the cache stays on the GPU up to "
        f"467300 tokens, and at this one up to batch 57.\nreports/{FOLDER}/report.html\n"
    )
    assert "Executing: 100%" in built.stderr
    assert published(checkout)[f"{FOLDER}/metrics.json"].decode() == kvprefetch("sweep", *SHORT, "--json").stdout


def test_an_unchanged_report_is_not_built_again(built, checkout, kvprefetch):
    times = {path: path.stat().st_mtime_ns for path in (checkout / "reports").rglob("*")}
    again = kvprefetch("report", *SHORT)
    assert again.stdout == built.stdout.replace("report.html\n", "report.html (unchanged)\n")
    assert again.stderr == ""
    assert {path: path.stat().st_mtime_ns for path in (checkout / "reports").rglob("*")} == times


def test_a_report_whose_file_is_gone_is_built_again_to_the_same_bytes(built, checkout, kvprefetch):
    before = published(checkout)
    (checkout / "reports" / FOLDER / "report.html").unlink()
    assert "(unchanged)" not in kvprefetch("report", *SHORT).stdout
    assert published(checkout) == before


def test_a_removed_index_is_made_again_without_a_new_report(built, checkout, kvprefetch):
    before = published(checkout)
    (checkout / "reports" / "index.html").unlink()
    assert kvprefetch("report", *SHORT).stdout.endswith("(unchanged)\n")
    assert published(checkout) == before


def test_what_the_user_has_set_up_changes_nothing(built, checkout, kvprefetch, tmp_path):
    before = published(checkout)
    (checkout / "reports" / FOLDER / DIGEST).unlink()
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("import builtins, numpy; builtins.contexts = [1]; numpy.float64 = None; 1/0")
    kernel = tmp_path / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text('{"argv": ["false"], "display_name": "rogue", "language": "python"}')
    (checkout / "matplotlibrc").write_text("lines.linewidth: 9\nfont.size: 30\nsvg.fonttype: path\n")
    done = kvprefetch(
        "report",
        *SHORT,
        IPYTHONDIR=str(tmp_path / "ipython"),
        JUPYTER_PATH=str(tmp_path / "jupyter"),
        JUPYTER_PREFER_ENV_PATH="0",
        MPLBACKEND="nonsense",
        PYTHONHASHSEED="7",
        PYTHONSTARTUP=str(startup / "00.py"),
        TZ="Asia/Kathmandu",
        LANG="C",
        HOME=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert published(checkout) == before


def test_a_file_of_the_users_makes_a_report_that_names_no_path(checkout, kvprefetch, tmp_path):
    nasty = "<script>alert('x')</script> & \"A\" $5 |b| *c* {d}"
    model = {"name": nasty, "source": nasty, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    path = tmp_path / "My Model.yaml"
    path.write_text(yaml.safe_dump({**model, "intermediate_size": 128, "vocab_size": 100}))
    done = kvprefetch("report", "--model", str(path), "--hw", "a100")
    assert done.returncode == 0, done.stderr
    files = published(checkout)
    (folder,) = {name.split("/")[0] for name in files} - {"index.html"}
    slug = folder.removesuffix("--a100")
    assert slug.startswith("my-model-")
    assert not any(str(tmp_path).encode() in content for content in files.values())
    assert json.loads(files[f"{folder}/metrics.json"])["model_name"] == nasty
    page = files[f"{folder}/report.html"].decode()
    assert "<script" not in page
    assert "&lt;script&gt;alert('x')&lt;/script&gt; &amp; \"A\" $5 |b| *c* {d}" in page.replace("&#x27;", "'").replace(
        "&quot;", '"'
    )
    # By its slug, the kept copy gives the same report from anywhere.
    path.unlink()
    again = kvprefetch("report", "--model", slug, "--hw", "a100")
    assert again.stdout.endswith("(unchanged)\n")


GEMMA = {
    **{"model_type": "gemma3_text", "hidden_size": 640, "num_hidden_layers": 12, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 2048, "vocab_size": 1000},
    **{"sliding_window": 256, "torch_dtype": "float32"},
}


def test_a_published_config_and_its_yaml_give_the_same_report_of_a_stack_that_is_not_uniform(
    checkout, kvprefetch, tmp_path
):
    config = tmp_path / "Tiny Gemma" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(GEMMA))
    written = tmp_path / "tiny-gemma.yaml"
    written.write_text(kvprefetch("model", str(config), "--yaml").stdout)
    for path in (config, written):
        done = kvprefetch("report", "--model", str(path), "--hw", "a100")
        assert done.returncode == 0, done.stderr
    files = published(checkout)
    one, two = sorted({name.split("/")[0] for name in files} - {"index.html"})
    assert one.startswith("tiny-gemma-") and two.startswith("tiny-gemma-")
    metrics = [json.loads(files[f"{folder}/metrics.json"]) for folder in (one, two)]
    assert metrics[0] | {"model": ""} == metrics[1] | {"model": ""}
    for folder in (one, two):
        page = files[f"{folder}/report.html"].decode()
        assert broken_rules(page) == []
        text = " ".join(BeautifulSoup(page, "html.parser").get_text(" ").split())
        assert "The file says float32: the weights are assumed to be served in bf16." in text
        assert "Where the benefit is largest" in text and "Why the benefit rises, peaks, and falls" not in text
        assert "windows kept on the GPU" in text
        assert str(tmp_path) not in page


def test_the_working_copy_is_the_users_and_is_kept(checkout, kvprefetch):
    path = kvprefetch("notebook", *SHORT, "--batch", "3").stdout.strip()
    assert path == ".cache/notebooks/llama3-8b--a100--batch3-ctx512-4096.ipynb"
    copy = checkout / path
    notebook = nbformat.read(copy, as_version=4)
    injected = next(cell for cell in notebook.cells if cell.id == "injected-parameters")
    assert "batch = 3" in injected.source
    assert not any(cell.get("outputs") for cell in notebook.cells)
    copy.write_text("edited")
    assert kvprefetch("notebook", *SHORT, "--batch", "3").stdout.strip() == path
    assert copy.read_text() == "edited"


@pytest.mark.parametrize("package", ["papermill", "nbconvert", "lxml", "simpy"])
@pytest.mark.parametrize("command", ["report", "reports", "fleet", "notebook"])
def test_reports_without_their_packages_say_what_to_install(checkout, command, package):
    code = f"""
import sys
from importlib.machinery import PathFinder
found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *where: None if name == {package!r} else found(name, *where)
from kvprefetch.__main__ import main
sys.exit(main([{command!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 2
    assert done.stderr == f"kvprefetch: reports need {package}; install them with: pip install 'kvprefetch[report]'\n"
    assert not (checkout / "reports").exists()
