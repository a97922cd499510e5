"""Models of transformers under "regard" beside eager, as `make zoo` compares them: a sample here, all of them in
`make test-long`. docs/models.md says what each is expected to come to."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from parity.benchmark_modules import ROOT, zoo_module

transformers = pytest.importorskip("transformers")

FINE = {"right", "heard in part", "unheard", "no softmax attention", "not built"}
SAMPLE = {  # model types, by what is peculiar to their attention
    "sinks": "gpt_oss granite_swa",
    "soft caps": "gemma2 vaultgemma t5gemma",
    "keys that an indexer chose": "deepseek_v32 glm_moe_dsa minimax_m3_vl_text",
    "additive masks in code of their own": "bloom mpt codegen xglm lilt luke roformer trocr squeezebert layoutlmv3",
    "no mask, but causal": "nllb-moe pegasus_x bigbird_pegasus informer",
    "a mask of one key for all": "recurrent_gemma",
    "scores of several terms": "deberta deberta-v2 funnel xlnet tapas",
    "padding in block-sparse attention": "big_bird longformer led",
    "windows and pictures": "swin clip vit donut-swin groupvit perceiver bridgetower",
    "grouped heads, latents, experts": "llama deepseek_v3 qwen3_moe gpt2",
    "an encoder and a decoder": "bart t5 whisper prophetnet fsmt",
    "no attention": "mamba fnet",
}


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    return zoo_module("zoo_checks")


def documented() -> dict[tuple[str, str], str]:
    """The verdict of each class in docs/models.md, by its model type and name."""
    found: dict[tuple[str, str], str] = {}
    verdict = ""
    for line in (ROOT / "docs/models.md").read_text().splitlines():
        if line.startswith("## "):
            verdict = line[3:].lower()
        elif row := re.match(r"\| ([\w.-]+) \| `(\w*)` \|", line):
            found[row[1], row[2]] = verdict
        elif verdict == "no softmax attention":
            found |= dict.fromkeys(re.findall(r"([\w.-]+) \(`(\w+)`\)", line), verdict)
    return found


def expect_documented(checks: ModuleType, kind: str) -> None:
    """Every class of a model type comes to what is documented, which is never a wrong number or a loud error."""
    known = documented()
    for one in checks.check_kind(kind):
        assert one.verdict in FINE, f"{one.kind} {one.name}: {one.verdict}, {one.why}"
        expected = known.get((one.kind, one.name))
        assert one.verdict == expected, f"{one.kind} {one.name}: {one.verdict} ({one.why}), documented as {expected}"


@pytest.mark.parametrize("kind", " ".join(SAMPLE.values()).split())
def test_a_model_type_is_as_documented(checks: ModuleType, kind: str) -> None:
    expect_documented(checks, kind)


def others() -> list[str]:
    """The model types that could be built, less the sample."""
    built = {kind for (kind, _), verdict in documented().items() if verdict != "not built"}
    return sorted(built - set(" ".join(SAMPLE.values()).split()))


@pytest.mark.long
@pytest.mark.parametrize("kind", others())
def test_every_other_model_type_is_as_documented(checks: ModuleType, kind: str) -> None:
    expect_documented(checks, kind)


def test_nothing_is_documented_as_wrong_or_loud() -> None:
    assert set(documented().values()) <= FINE
