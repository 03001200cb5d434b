import json
import os
import subprocess
import sys

import pytest

from kvprefetch.catalog import HARDWARE, MODELS, find
from kvprefetch.metrics import as_json, measure, planned
from kvprefetch.request import Request

PAIR = ("--model", "llama3-8b", "--hw", "a100")


def files(folder):
    """Every file below `folder`, with its content, but for byte code."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_sweep_prints_the_golden_table(kvprefetch):
    done = kvprefetch("sweep", *PAIR)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout == (
        "model      Llama-3-8B, 6,979,321,856 weights in its layers\n"
        "hardware   A100-80GB PCIe (Gen4 x16)\n"
        "batch      1\n"
        "depth      1\n"
        "crossover  1306 tokens\n"
        "\n"
        "       ctx  on-demand ms  prefetch ms  reduction  speedup  bound\n"
        "       512          9.53         6.93     27.3 %    1.38x  compute\n"
        "      1024         12.21         7.01     42.6 %    1.74x  compute\n"
        "      2048         17.58        10.95     37.7 %    1.61x  pcie\n"
        "      4096         28.32        21.69     23.4 %    1.31x  pcie\n"
        "      8192         49.80        43.16     13.3 %    1.15x  pcie\n"
        "     16384         92.75        86.11      7.2 %    1.08x  pcie\n"
        "     32768        178.64       172.01      3.7 %    1.04x  pcie\n"
    )


def test_sweep_json_is_what_a_report_publishes(kvprefetch):
    done = kvprefetch("sweep", *PAIR, "--contexts", "1024,512", "--batch", "4", "--depth", "2", "--json")
    request = Request(find(MODELS, "llama3-8b"), find(HARDWARE, "a100"), contexts=(512, 1024), batch=4, depth=2)
    assert done.stdout == as_json(measure(request))
    assert json.loads(done.stdout)["batch"] == 4


def test_plan_prints_verdict_memory_answers_and_ways(kvprefetch):
    done = kvprefetch("plan", *PAIR, "--ctx", "500000", "--generate", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "The cache must be offloaded. At 500000 tokens, beyond the 8192 that the model was made for, it takes 65.54 "
        "GB and the weights leave 61.25 GB of the 77.31 GB that A100-80GB PCIe (Gen4 x16) offers after a reserve of "
        "10 %; up to 467300 tokens it stays.\nA step takes 2628.29 ms on demand and 2621.65 ms, 0.3 % less, with "
        "prefetch one layer ahead; with all KV on the GPU it would take 6.85 ms.\nThe link is the limit: computing "
        "can hide 0.26 % of what crosses it. It would help most to store the cache in 8 bits, all of which stays on "
        "the GPU (6.85 ms, 2614.81 less), then to stream 4.57 GB of weights instead of the cache (183.08 ms, 2438.57 "
        "less), then to keep the newest 465120 tokens of every layer on the GPU (183.09 ms, 2438.57 less).\nThese "
        "figures leave attention's own read of the cache out. With it, the LM head and what the card's file states, "
        "a step at 500000 tokens would take, were there room, 39.50 ms with all KV on the GPU: TERMS=refined "
        "counts them.\n\nmodel      "
        "Llama-3-8B\nhardware   A100-80GB PCIe (Gen4 x16)\ncontext    500000 tokens, batch 1, depth 1, terms "
        "first-order\nmemory     77.31 GB after the reserve of 10 %\nweights    16.06 GB\ncache      65.54 GB\nleft  "
        "     -4.29 GB\nwindow     the newest 465120 tokens fit: 183.09 ms\nhost       65.54 GB of pinned "
        "memory\n\nA step of at most 50 ms is kept up to 8192 tokens with all KV on the GPU (stopped by the model's "
        "own limit), up to 8192 tokens on demand (stopped by the model's own limit), and up to 8192 tokens with "
        "prefetch (stopped by the model's own limit).\nWith the cache as it is, most tokens a second are 0.3815: "
        "batch 14, prefetch. Offloaded, the link lets no batch decode more than 0.3815. To generate 1 token from "
        "500000 tokens on takes 2.62 s (steps of 2621.7 to 2621.7 ms, 0.3814 tokens a second) with prefetch, and "
        "2.63 s on demand.\n\n   step ms    GPU GB   host GB  limit       way\n      6.85     48.83      0.00  "
        "engine      8-bit cache on the GPU\n      6.85     34.49      0.00  engine      4-bit cache on the GPU\n    "
        "183.08     77.31      4.57  link        weights streamed, 4.57 GB of them on the host\n    183.09     77.31 "
        "     4.57  link        prefetch, newest 465120 tokens on the GPU\n   2621.44     20.16     65.54  link      "
        "  prefetch, overlapping the next token\n   2621.65     20.16     65.54  link        prefetch, one layer "
        "ahead\n   2621.65     22.20     65.54  link        prefetch, 2 layers ahead\n   2628.29     18.11     65.54 "
        " link        on demand\n"
    )


@pytest.mark.parametrize(
    ("arguments", "shown", "not_shown"),
    [
        (("--model", "llama3-8b", "--hw", "a100"), ("left ", "window "), ("state ",)),
        (("--model", "qwen3-next-80b-a3b", "--hw", "b200"), ("state      ", "left "), ()),
        (("--model", "llama3-8b", "--hw", "a100", "--ctx", "20000000"), ("left       -",), ("window ",)),
    ],
)
def test_a_plan_has_lines_for_what_there_is(kvprefetch, arguments, shown, not_shown):
    lines = kvprefetch("plan", *arguments).stdout.splitlines()
    for start in shown:
        assert sum(line.startswith(start) for line in lines) == 1, start
    assert not any(line.startswith(start) for line in lines for start in not_shown)


def test_plan_json_is_the_plan_and_the_outlook_that_a_report_publishes(kvprefetch):
    options = ("--ctx", "9000", "--depth", "2", "--target-ms", "40", "--generate", "9")
    done = kvprefetch("plan", *PAIR, *options, "--json")
    pair = find(MODELS, "llama3-8b"), find(HARDWARE, "a100")
    request = Request(*pair, ctx_len=9000, depth=2, target_ms=40.0, generate=9)
    assert done.stdout == as_json(planned(request))
    read = json.loads(done.stdout)
    assert list(read) == ["plan", "outlook"]
    assert (read["plan"]["ctx_len"], read["outlook"]["target_ms"]) == (9000, 40)


def test_crossover_prints_the_number_alone(kvprefetch):
    assert kvprefetch("crossover", *PAIR).stdout == "1306\n"
    assert kvprefetch("crossover", *PAIR, "--batch", "8").stdout == "164\n"


def test_model_describes_a_model_in_a_few_lines(kvprefetch):
    assert kvprefetch("model", "llama3-8b").stdout == (
        "model        Llama-3-8B\n"
        "layers       32 full, 2,048 values cached a token\n"
        "params       6,979,321,856 in the layers, 6,979,321,856 of them read for one token\n"
        "in all       8,029,995,008 with embeddings and LM head\n"
        "KV           131,072 bytes a token in 16 bits\n"
        "made for     8,192 tokens of context\n"
    )


def test_model_describes_a_published_config_and_writes_it_as_a_file_of_the_catalogue(kvprefetch, checkout):
    pytest.importorskip("transformers")
    folder = checkout / "gpt-oss-20b"
    folder.mkdir()
    config = {"model_type": "gpt_oss", "num_hidden_layers": 24, "num_local_experts": 32, "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    described = kvprefetch("model", "gpt-oss-20b/config.json")
    assert described.stderr == ""
    assert described.stdout.startswith(
        "model        gpt-oss-20b\n"
        "layers       12 sliding, window 128, 1,024 values cached a token, 4 of 32 experts a token\n"
        "layers       12 full, 1,024 values cached a token, 4 of 32 experts a token\n"
        "params       19,749,519,360 in the layers, 3,028,008,960 of them read for one token\n"
        "in all       20,907,786,240 with embeddings and LM head\n"
        "KV           49,152 bytes a token in 16 bits, 24,576 beyond every window\n"
        "made for     131,072 tokens of context\n"
        "assumed      Not in the file, so taken from transformers' defaults for gpt_oss: hidden_size 2880, "
    )
    (checkout / "same.yaml").write_text(kvprefetch("model", "gpt-oss-20b/config.json", "--yaml").stdout)
    assert (checkout / "same.yaml").read_text().count("count:") == 3
    assert kvprefetch("model", "same.yaml").stdout == described.stdout
    sweeps = [kvprefetch("sweep", "--hw", "a100", "--model", name) for name in ("same.yaml", "gpt-oss-20b/config.json")]
    assert sweeps[0].stdout == sweeps[1].stdout != ""


@pytest.mark.parametrize("verb", [("plan", *PAIR), ("sweep", *PAIR), ("sweep", *PAIR, "--json"), ("crossover", *PAIR)])
def test_answers_need_neither_pandas_nor_jupyter(verb):
    code = (
        "import sys; from kvprefetch.__main__ import main; main(sys.argv[1:]); "
        "loaded = {'pandas', 'matplotlib', 'IPython', 'papermill', 'nbconvert', 'simpy'} & set(sys.modules); "
        "sys.exit(f'loaded: {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *verb], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_options_not_given_come_from_the_environment_for_reports_alone(kvprefetch):
    refused = kvprefetch("report", MODEL="llama3-8c", HW="a100")
    assert refused.stderr.startswith("kvprefetch: model: got 'llama3-8c'")
    assert kvprefetch("report", "--model", "nope", MODEL="llama3-8b").stderr.startswith("kvprefetch: model: got 'nope'")
    assert kvprefetch("sweep", *PAIR, MODEL="nope", BATCH="x").returncode == 0


BAD = [
    (("sweep", "--model", "llama3-8", "--hw", "a100"), "model: got 'llama3-8'; .* Did you mean llama3-8b?"),
    (("sweep", "--model", "llama3-8b", "--hw", "a1000"), "hw: got 'a1000'; .* Did you mean a100?"),
    (("sweep", "--model", "x'; touch hacked; '", "--hw", "a100"), "model: got "),
    (("sweep", "--model", "$(touch hacked)", "--hw", "a100"), "model: got '$(touch hacked)'"),
    (("sweep", "--model", "../../etc/passwd", "--hw", "a100"), "model ../../etc/passwd: path: got 'no such file'"),
    (("sweep", "--model", "/etc", "--hw", "a100"), "model /etc: path: got 'a folder'"),
    (("sweep", "--model", "a\nb", "--hw", "a100"), r"model: got 'a\\nb'"),
    (("sweep", *PAIR, "--contexts", ""), "contexts: got ''; accepted: whole numbers, separated by commas"),
    (("sweep", *PAIR, "--contexts", "512,"), "contexts: got ''"),
    (("sweep", *PAIR, "--contexts", "512;1024"), "contexts: got '512;1024'"),
    (("sweep", *PAIR, "--contexts", "1e3"), "contexts: got '1e3'"),
    (("sweep", *PAIR, "--contexts", "-5"), "contexts: got '-5'"),
    (("sweep", *PAIR, "--contexts", "0"), "contexts: got 0; accepted: a whole number from 1 to 1000000000"),
    (("sweep", *PAIR, "--contexts", "٣"), "contexts: got '٣'"),
    (("sweep", *PAIR, "--contexts", "9" * 30), "contexts: got '9999"),
    (("sweep", *PAIR, "--batch", "0"), "batch: got 0"),
    (("sweep", *PAIR, "--batch", "1.5"), "batch: got '1.5'; accepted: a whole number"),
    (("sweep", *PAIR, "--batch", "10000000"), "batch: got 10000000; accepted: a whole number from 1 to 1000000"),
    (("sweep", *PAIR, "--depth", "nan"), "depth: got 'nan'"),
    (("crossover", *PAIR, "--batch", "-1"), "batch: got '-1'"),
    (("plan", *PAIR, "--ctx", "0"), "ctx_len: got 0; accepted: a whole number from 1 to 990000000"),
    (("plan", *PAIR, "--ctx", "1e6"), "ctx: got '1e6'; accepted: a whole number"),
    (("plan", *PAIR, "--resident", "all"), "resident: got 'all'; accepted: a whole number, or auto"),
    (("plan", *PAIR, "--resident", "9", "--terms", "resident_tokens=9"), "resident: not together with resident_tokens"),
    (("plan", *PAIR, "--reserve", "0.95"), "reserve: got 0.95; accepted: a number from 0 to 0.9"),
    (("plan", *PAIR, "--reserve", "10%"), "reserve: got '10%'; accepted: a number"),
    (("plan", *PAIR, "--terms", "refine"), "terms: got 'refine'; accepted: first-order refined. Did you mean refined?"),
    (("plan", *PAIR, "--terms", "kv_dtyp=fp8"), "terms: got 'kv_dtyp'; .* Did you mean kv_dtype?"),
    (("plan", *PAIR, "--terms", "refined,kv_dtype=fp9"), "kv_dtype: got 'fp9'; .* Did you mean fp8?"),
    (("plan", *PAIR, "--terms", "kv_dtype"), "terms: got 'kv_dtype'; accepted: first-order refined"),
    (("plan", *PAIR, "--terms", "lm_head=yes"), "lm_head: got 'yes'; accepted: true false"),
    (("plan", *PAIR, "--terms", "refined,lm_head"), "terms: got 'lm_head'; accepted: lm_head=value"),
    (("plan", *PAIR, "--terms", "lm_head=true,lm_head=false"), "terms: lm_head is there twice"),
    (("plan", *PAIR, "--terms", "pcie_efficiency=1.5"), "pcie_efficiency: got 1.5; accepted: a number from 0.01 to 1"),
    (("plan", *PAIR, "--terms", "copy_latency_us=nan"), "copy_latency_us: got nan"),
    (("plan", *PAIR, "--terms", "refined,"), "terms: got ''"),
    (("plan", *PAIR, "--terms", ""), "terms: got ''"),
    (("report", *PAIR, "--depth", "0"), "depth: got 0"),
    (("report", "--model", "..", "--hw", "a100"), "model: got '..'"),
    (("notebook", "--model", "a/b", "--hw", "a100"), "model a/b: path: got 'no such file'"),
    (("calibrate",), "the following arguments are required: --measurements"),
    (("calibrate", "--measurements", "no.yaml"), "measurements no.yaml: path: got 'no such file'; accepted: a file"),
    (("calibrate", "--measurements", "params/hardware/a100.yaml"), "measurements params/hardware/a100.yaml: key: got"),
    (("validation", "--bands", "5"), "unrecognized arguments: --bands 5"),
    (("model", "llama3-8"), "model: got 'llama3-8'; .* Did you mean llama3-8b?"),
    (("model",), "the following arguments are required: NAME"),
    (("sweep",), "the following arguments are required: --model, --hw"),
    (("sweep", *PAIR, "--batches", "1"), "unrecognized arguments: --batches 1"),
    (("sweep", *PAIR, "--target-ms", "50"), "unrecognized arguments: --target-ms 50"),
    (("sweep", *PAIR, "--generate", "9"), "unrecognized arguments: --generate 9"),
    (("crossover", *PAIR, "--target-ms", "50"), "unrecognized arguments: --target-ms 50"),
    (("crossover", *PAIR, "--generate", "9"), "unrecognized arguments: --generate 9"),
    (("crossover", *PAIR, "--contexts", "512"), "unrecognized arguments: --contexts 512"),
    (("sweep", *PAIR, "x\ny"), r"unrecognized arguments: x\\ny"),
    (("sweep", *PAIR, "--foo\u202ebar"), r"unrecognized arguments: --foo\\u202ebar"),
    (("swep", *PAIR), "invalid choice: 'swep'"),
    ((), "the following arguments are required"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments)[:50] for arguments, _ in BAD])
def test_bad_input_is_one_line_and_leaves_nothing_behind(kvprefetch, checkout, arguments, message):
    before = files(checkout)
    done = kvprefetch(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("kvprefetch")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    for part in message.replace(r"\\", "\\").split(" .* "):
        assert part in done.stderr
    assert files(checkout) == before


def test_a_closed_pipe_is_no_error_worth_a_traceback(checkout):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "kvprefetch", "sweep", *PAIR],
        cwd=checkout,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_under_the_output_is_one_line(checkout):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kvprefetch", "sweep", *PAIR],
            cwd=checkout,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (2, "kvprefetch: No space left on device\n")


def test_a_name_that_the_terminal_cannot_show_is_printed_as_far_as_it_can(checkout, kvprefetch, tmp_path):
    model = tmp_path / "mine.yaml"
    text = (checkout / "params" / "models" / "llama2-13b.yaml").read_text()
    model.write_text(text.replace("name: Llama-2-13B", "name: Ünï"), encoding="utf-8")
    done = kvprefetch("sweep", "--model", str(model), "--hw", "a100", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"model      \xdcn\xef" in done.stdout


@pytest.mark.parametrize(("verb", "line"), [("models", "gemma3-27b "), ("cards", "gh200 ")])
def test_the_catalogue_is_listed(kvprefetch, verb, line):
    done = kvprefetch(verb)
    assert done.returncode == 0
    assert any(each.startswith(line) for each in done.stdout.splitlines())
