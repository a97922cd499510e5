"""A term of the field stands in the name, or opens the docstring, of the module that implements it."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "regard"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
ELSEWHERE = 4  # other modules that may open with the same term: callers, a kernel of it, its objective

FOUND_IN = {  # a term, as a pattern: the modules that implement it
    r"scaled dot.product": ["attention/scores"],
    r"additive (attention|score)": ["attention/scores", "attention/kernels/triton/additive"],
    r"padding mask": ["attention/masks"],
    r"causal": ["attention/masks"],
    r"grouped.query attention": ["attention/inputs"],
    r"cross.attention": ["attention/layers"],
    r"multi.head attention": ["attention/layers"],
    r"rotary": ["attention/positions"],
    r"sinusoidal": ["attention/positions"],
    r"alibi": ["attention/positions"],
    r"kv.cache": ["attention/kv_cache"],
    r"static.cache": ["attention/kv_cache"],
    r"sliding.window": ["attention/masks"],
    r"local attention": ["attention/windows"],
    r"context vector": ["models/decoders"],
    r"gelu": ["models/gelu", "models/gelu_triton"],
    r"swiglu": ["models/blocks"],
    r"cross.entropy": ["models/chunked_cross_entropy", "models/chunked_cross_entropy_triton", "models/cross_entropy"],
    r"sampled.softmax": ["models/cross_entropy"],
    r"pointer.generator|p_gen": ["models/pointer"],
    r"coverage.loss": ["models/pointer"],
    r"copy.gate": ["models/copy_gates"],
    r"input.feeding": ["models/decoders"],
    r"neural.cache": ["models/neural_cache"],
    r"label.smoothing": ["models/cross_entropy"],
    r"beam.search": ["decoding/beam"],
    r"length.penalty": ["decoding/beam"],
    r"coverage.penalty": ["decoding/beam"],
    r"repetition.penalty": ["decoding/sampling"],
    r"sparsemax|entmax": ["attention/normalise"],
    r"greedy (decoding|search)": ["decoding/greedy"],
    r"nucleus|top.p": ["decoding/sampling"],
    r"constrained (decoding|beam search)": ["decoding/constraints"],
    r"teacher.forc(ing|ed)": ["training/objectives/translation", "decoding/score"],
    r"warm.?up": ["training/schedules"],
    r"weight.decay": ["training/optimisers"],
    r"early.stopping": ["training/early_stopping"],
    r"gradient.accumulation": ["training/step"],
    r"gradient.clipping": ["training/step"],
    r"(when|how often).*(checkpoint|one) is written|checkpoint.*retention": ["training/checkpoint"],
    r"loss.scaling": ["training/precision"],
    r"truncated.backprop": ["text/batches/lm_batches", "training/objectives/stateful_lm"],
    r"mixed.precision": ["training/precision"],
    r"moving average|\bema\b": ["training/weight_average"],
    r"\bfsdp\b": ["training/distributed"],
    r"perplexity": ["training/metrics"],
    r"bleu": ["training/metrics"],
    r"question.answering": ["training/objectives/qa", "training/tasks/question_answering"],
    r"masked.language.model": ["training/objectives/mlm", "text/batches/masking"],
    r"next.sentence( prediction)? pairs": ["text/batches/next_sentence"],
    r"out.of.vocabulary|\boov\b": ["text/tokenizers/oov"],
    r"byte.pair|\bbpe\b": ["text/tokenizers/trainers"],
    r"packing": ["text/batches/packing"],
    r"integrated.gradients": ["inspection/attribution/gradients"],
    r"attention.rollout": ["inspection/attribution/rollout"],
    r"attention.flow|max.?flow": ["inspection/attribution/flow"],
    r"value.zeroing": ["inspection/attribution/value_zeroing"],
    r"\baer\b|alignment error rate": ["inspection/alignment/evaluate"],
    r"symmetri[sz]": ["inspection/alignment/symmetrize"],
    r"sinkhorn": ["inspection/alignment/links"],
    r"induction": ["inspection/atlas/head_patterns"],
    r"attention.sink": ["inspection/atlas/head_patterns", "attention/normalise"],
    r"head.importance": ["inspection/heads/importance"],
    r"pruning": ["inspection/heads/pruning", "models/pruning"],
    r"bootstrap confidence interval": ["inspection/bootstrap"],
    r"jensen.shannon|jsd": ["inspection/distances"],
    r"head.ablation": ["inspection/heads/ablation"],
    r"faithfulness.test": ["faithfulness/decision_scores"],
    r"kendall": ["inspection/distances"],
    r"leave.one.out": ["faithfulness/token_erasure"],
    r"comprehensiveness": ["faithfulness/token_erasure"],
    r"permut": ["faithfulness/counterfactual"],
    r"adversarial attention": ["faithfulness/adversary"],
    r"(image )?augmentation|random.crop": ["pictures/augment"],
    r"captions of scenes": ["pictures/captions"],
    r"class folders": ["pictures/folder"],
    r"png, jpeg": ["pictures/image_files"],
    r"anti.aliased": ["pictures/render"],
    r"vision transformer|\bvit\b": ["models/image_encoders", "models/image_classifier"],
    r"show, attend and tell|image captioning": ["models/image_captioners"],
    r"phrase grounding": ["models/image_pointer"],
    r"memory.mapped file": ["pictures/image_store"],
}

GERUNDS = {  # the field's own words
    "averaging",
    "captioning",
    "early_stopping",
    "embedding",
    "masking",
    "packing",
    "pointing",
    "pooling",
    "pruning",
    "sampling",
    "smoothing",
    "tagging",
    "value_zeroing",
    "word_pooling",
    "tracing",
    "process_tuning",
    "question_answering",
}
SMALLEST = 30  # lines of a module that does not say why it is by itself


FOUND_ON_PAGE = {  # the same for the page's JavaScript: a pattern, and the file whose first comment has it
    r"lines between words": ["sentence.js"],
    r"drawing primitives|pens": ["draw.js"],
    r"attention rollout": ["rollout.js", "rollout_view.js"],
    r"keyboard shortcut": ["app.js"],
    r"colour map": ["colours.js"],
    r"zoom": ["matrix.js", "tiles.js", "viewport.js", "pointer.js"],
}


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE).with_suffix(""))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def opening(path: Path) -> str:
    """The module's name, and the first sentence or paragraph of its docstring."""
    docstring = (ast.get_docstring(parsed(path)) or "").partition("\n\n")[0]
    return f"{path.stem.replace('_', ' ')}: {' '.join(docstring.split())}"


@pytest.mark.parametrize("term", FOUND_IN)
def test_a_term_leads_to_its_module(term: str) -> None:
    found = {name_of(path) for path in MODULES if re.search(term, opening(path), re.IGNORECASE)}
    wanted = set(FOUND_IN[term])
    assert wanted <= found
    assert len(found - wanted) <= ELSEWHERE, sorted(found - wanted)


@pytest.mark.parametrize("term", FOUND_ON_PAGE)
def test_a_term_leads_to_its_file_of_the_page(term: str) -> None:
    files = (SOURCE / "page" / "static").glob("*.js")
    found = {path.name for path in files if re.search(term, _first_comment(path), re.IGNORECASE)}
    assert found == set(FOUND_ON_PAGE[term])


def _first_comment(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(line for line in lines[: next((n for n, one in enumerate(lines) if one[:2] != "//"), len(lines))])


def test_the_place_to_add_a_family_says_so() -> None:
    """It is no module of its own but the list that registers them, which CONTRIBUTING.md names."""
    assert "ADD A FAMILY HERE" in (ast.get_docstring(parsed(SOURCE / "hub" / "families" / "__init__.py")) or "")
    assert "start at `hub/families/__init__.py`" in (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_no_two_public_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_modules_are_nouns() -> None:
    gerunds = [name_of(path) for path in MODULES if path.stem.endswith("ing") and path.stem not in GERUNDS]
    assert gerunds == []


def test_small_modules_say_why() -> None:
    """A module of few lines belongs to its importer, unless its docstring says why it stands by itself."""
    small = [path for path in MODULES if len(path.read_text(encoding="utf-8").splitlines()) < SMALLEST]
    unexplained = [name_of(path) for path in small if "of its own" not in (ast.get_docstring(parsed(path)) or "")]
    assert unexplained == []
