"""Tokenizers: round trips, offsets, words, special tokens, files, determinism, and what is refused."""

import pickle
import subprocess
import sys
import unicodedata
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer as Engine, decoders, models, pre_tokenizers

from regard.errors import CorpusError, DtypeError, SettingError
from regard.text.tokenizers.tokenizer import SpecialIds, Tokenizer
from regard.text.tokenizers.trainers import BPE, ByteBPE, CharacterLevel, TokenizerKind, Unigram, WordLevel, WordPiece
from regard.text.words import tokenize_words, whitespace_words

TEXTS = [
    "He hit me (hard), don't you see?",
    "Il m'a frappé, l'homme d'aujourd'hui !",
    "中文字很好。日本語テスト",
    "ภาษาไทยไม่มีช่องว่าง",
    "مرحبا بالعالم، كيف الحال؟ שלום עולם",
    "the cat sat on the mat . 3.14 😀👩\u200d👧",
    "[MASK] <pad> </s> [CLS] <unk> [UNK] <s> [SEP] [PAD]",
    "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789",
] * 3
KINDS: list[TokenizerKind] = [
    BPE(400),
    ByteBPE(400),
    WordPiece(600),
    WordPiece(600, lowercase=False),
    Unigram(300),
    WordLevel(100),
    CharacterLevel(),
]
ALPHABET = sorted({character for text in TEXTS for character in unicodedata.normalize("NFC", text)})
SIGNS = st.sampled_from(
    [*ALPHABET, " ", "  ", "\n", "\t", "\u2028", "\x1c", "e\u0301", "\u0301", "▁", "the ", "[MASK]", "\ufb01"]
)
KNOWN = st.lists(SIGNS, max_size=20).map("".join)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


@cache
def trained(kind: TokenizerKind) -> Tokenizer:
    return Tokenizer.train(kind, TEXTS)


@every_kind
@given(text=KNOWN)
def test_a_round_trip_gives_the_normal_form(kind: TokenizerKind, text: str) -> None:
    tokenizer = trained(kind)
    encoding = tokenizer.encode(text)
    if tokenizer.special.unknown not in encoding.ids:
        assert tokenizer.decode(encoding.ids) == tokenizer.normalize(text)


@pytest.mark.parametrize("text", TEXTS[:8])
@every_kind
def test_what_was_learned_is_known(kind: TokenizerKind, text: str) -> None:
    """So that the round trips above do not hold for want of anything known."""
    ids = trained(kind).encode(text).ids
    assert ids
    assert trained(kind).special.unknown not in ids


@given(st.text())
def test_bytes_lose_nothing(text: str) -> None:
    tokenizer = trained(ByteBPE(400))
    assert tokenizer.decode(tokenizer.encode(text).ids) == tokenizer.normalize(text) == text


@pytest.mark.parametrize(
    "text", ["", " ", " a", "a ", "\n\n\t x\r\n", "\x00\x7f\x85", "\u0301", "\ufeffa", "👩🏽\u200d🚀", "\u200fא"]
)
def test_bytes_lose_nothing_at_the_edges(text: str) -> None:
    tokenizer = trained(ByteBPE(400))
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@given(text=KNOWN)
def test_the_normal_form_is_what_it_is_said_to_be(text: str) -> None:
    composed = unicodedata.normalize("NFC", text)
    for kind in (BPE(400), Unigram(300), WordLevel(100)):
        assert trained(kind).normalize(text) == " ".join(composed.replace("▁", " ").split())
    assert trained(CharacterLevel()).normalize(text) == composed


@pytest.mark.parametrize("kind", [BPE(400), Unigram(300), CharacterLevel()], ids=str)
@given(text=KNOWN)
def test_offsets_point_at_the_text_of_the_piece(kind: TokenizerKind, text: str) -> None:
    tokenizer = trained(kind)
    encoding = tokenizer.encode(text)
    for number, piece, (start, end) in zip(encoding.ids, encoding.pieces, encoding.offsets, strict=True):
        assert 0 <= start <= end <= len(text)
        if number != tokenizer.special.unknown and not reordered(text):
            shown = unicodedata.normalize("NFC", text[start:end])
            assert shown.replace("▁", " ").strip() == tokenizer.decode([number]).replace("▁", " ").strip(), piece
    starts = [start for start, _ in encoding.offsets]
    assert starts == sorted(starts)


def reordered(text: str) -> bool:
    """Whether marks stand in another order than Unicode's normal form puts them in."""
    return "".join(unicodedata.normalize("NFD", sign) for sign in text) != unicodedata.normalize("NFD", text)


@given(text=KNOWN)
def test_offsets_of_bytes_point_at_whole_characters(text: str) -> None:
    """Pieces that begin and end with characters say what stands there; the others lie within it."""
    encoding = trained(ByteBPE(400)).encode(text)
    for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        decoded = trained(ByteBPE(400)).decode([number])
        if "\ufffd" not in decoded:
            assert text[start:end].strip() == decoded.strip()
        else:
            assert decoded.strip("\ufffd").strip() in text[start:end]


@every_kind
@given(text=KNOWN)
def test_pieces_cover_every_letter_and_never_cross_words(kind: TokenizerKind, text: str) -> None:
    if isinstance(kind, WordPiece):  # to Python \x1c-\x1f are space; BERT drops them, and joins what they part
        text = "".join(sign for sign in text if not "\x1c" <= sign <= "\x1f")
    encoding = trained(kind).encode(text)
    words = whitespace_words(text)
    covered: set[int] = set()
    for (start, end), number in zip(encoding.offsets, encoding.words, strict=True):
        covered.update(range(start, end))
        if text[start:end].strip() and not (isinstance(kind, (WordLevel, BPE, Unigram)) and "▁" in text):
            assert words[number][0] <= start <= end <= words[number][1]
    if not isinstance(kind, WordPiece) and "▁" not in text:  # WordPiece drops what is no text
        assert {at for start, end in words for at in range(start, end)} <= covered


@pytest.mark.parametrize("kind", [BPE(400), Unigram(300)], ids=str)
@given(text=KNOWN)
def test_pieces_never_mix_punctuation_and_letters(kind: TokenizerKind, text: str) -> None:
    for piece in trained(kind).encode(text).pieces:
        bare = piece.removeprefix("▁")
        if piece != "<unk>" and any(unicodedata.category(sign)[0] == "P" or sign in "$+<=>^`|~" for sign in bare):
            assert len(bare) == 1


@pytest.mark.parametrize("literal", ["[MASK]", "<pad>", "</s>", "[CLS]", "<s>", "[SEP]", "[PAD]"])
@every_kind
def test_special_tokens_in_the_text_stay_text(kind: TokenizerKind, literal: str) -> None:
    tokenizer = trained(kind)
    for text in (literal, f"see {literal} on", f"see{literal}on", literal * 2):
        ids = set(tokenizer.encode(text).ids)
        assert ids
        assert not ids & (tokenizer.special.all - {tokenizer.special.unknown})
        assert set(tokenizer.ids_batch([text])[0]) == ids


@every_kind
def test_special_tokens_are_encoded_on_request(kind: TokenizerKind) -> None:
    tokenizer = trained(kind)
    encoding = tokenizer.encode("the [MASK] sat", specials=True)
    at = encoding.ids.index(tokenizer.special.need("mask"))
    assert encoding.text[slice(*encoding.offsets[at])] == "[MASK]"
    assert encoding.words[at] == 1
    assert encoding.pieces[at] == "[MASK]"
    assert "[MASK]" in tokenizer.decode(encoding.ids, specials=True)
    assert "[MASK]" not in tokenizer.decode(encoding.ids)


@every_kind
def test_the_same_texts_give_the_same_tokenizer(kind: TokenizerKind) -> None:
    assert Tokenizer.train(kind, iter(TEXTS)).fingerprint == trained(kind).fingerprint
    assert Tokenizer.train(kind, TEXTS + ["zebra zebra zebra"] * 9).fingerprint != trained(kind).fingerprint


@pytest.mark.parametrize("kind", [WordPiece(90), Unigram(60)], ids=str)
def test_training_is_the_same_in_another_process(kind: TokenizerKind) -> None:
    """The library's hash tables are seeded anew in each process; equal pairs must not be settled by them."""
    texts = ["Wel come to the Tok en izers libr ary", "in a land far a way", "ab ba abab baba cd dc"]
    script = f"""
from regard.text.tokenizers.trainers import *
from regard.text.tokenizers.tokenizer import Tokenizer
print(Tokenizer.train({kind!r}, {texts!r}).fingerprint)
"""
    runs = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    prints = {run.communicate()[0].strip() for run in runs}
    assert prints == {Tokenizer.train(kind, texts).fingerprint}
    assert {Tokenizer.train(kind, texts).fingerprint for _ in range(10)} == prints


@every_kind
def test_a_file_and_a_pickle_give_it_back(kind: TokenizerKind, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    for other in (Tokenizer.load(tmp_path / "tokenizer.json"), pickle.loads(pickle.dumps(tokenizer))):
        assert other.fingerprint == tokenizer.fingerprint
        assert other.special == tokenizer.special
        assert [one.ids for one in other.encode_batch(TEXTS)] == [one.ids for one in tokenizer.encode_batch(TEXTS)]
        assert other.decode_batch(other.ids_batch(TEXTS)) == tokenizer.decode_batch(tokenizer.ids_batch(TEXTS))
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


@every_kind
def test_hugging_face_loads_the_file_unchanged(kind: TokenizerKind, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text in TEXTS[:6]:
        assert theirs.encode(text, add_special_tokens=False) == tokenizer.encode(text).ids
    assert len(theirs) == len(tokenizer)


@every_kind
def test_ids_and_tokens_answer_to_each_other(kind: TokenizerKind) -> None:
    tokenizer = trained(kind)
    assert [tokenizer.id(tokenizer.token(number)) for number in range(len(tokenizer))] == list(range(len(tokenizer)))
    assert tokenizer.special.all == frozenset(range(7))
    assert len(tokenizer) <= getattr(kind, "size", 10**6)


def test_words_are_cut_at_spaces_alone() -> None:
    assert trained(WordLevel(100)).encode("He hit\nme  (hard), don't").pieces == [
        "▁He",
        "▁hit",
        "▁me",
        "▁(hard),",
        "▁don't",
    ]


def test_every_character_is_a_piece() -> None:
    text = "a\n\n b\r\n"
    assert Tokenizer.train(CharacterLevel(), [text]).encode(text).pieces == list(text)


def test_a_mask_takes_the_space_before_it_where_space_is_part_of_a_piece() -> None:
    assert trained(ByteBPE(400)).encode("the [MASK] sat", specials=True).pieces[:3] == ["the", "[MASK]", "Ġs"]


def test_words_by_another_splitter() -> None:
    encoding = trained(BPE(400)).encode("don't (see)", words=tokenize_words)
    assert encoding.words == sorted(encoding.words)
    assert {encoding.text[a:b]: word for (a, b), word in zip(encoding.offsets, encoding.words, strict=True)}[")"] == 3


@pytest.mark.parametrize(
    ("kind", "texts", "error", "said"),
    [
        (BPE(12), TEXTS, SettingError, "at least"),
        (Unigram(12), TEXTS, SettingError, "too small for the characters"),
        (WordPiece(12), TEXTS, SettingError, "at least"),
        (ByteBPE(262), TEXTS, SettingError, "at least 263"),
        (WordLevel(7), TEXTS, SettingError, "at least 8"),
        (BPE(100), [], CorpusError, "0 texts"),
        (WordLevel(100), ["  ", "\n"], CorpusError, "2 texts"),
        (Unigram(100), [], CorpusError, "0 texts"),
        (ByteBPE(300), [""], CorpusError, "1 texts"),
        (CharacterLevel(), [], CorpusError, "0 texts"),
        (WordPiece(100), [], CorpusError, "0 texts"),
        (BPE(100), ["a", 3], CorpusError, "text 1 of type int"),
        (BPE(100), ["a", "\ud800"], CorpusError, "not valid Unicode"),
        (WordPiece(100), ["a", "\ud800"], CorpusError, "not valid Unicode"),
    ],
    ids=ascii,
)
def test_training_refuses_in_words(kind: TokenizerKind, texts: list[str], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Tokenizer.train(kind, texts)


def test_progress_counts_the_texts() -> None:
    counts: list[int] = []
    Tokenizer.train(WordLevel(100), (f"text {number}" for number in range(2500)), counts.append)
    assert counts == [1000, 1000, 500]


def test_wrong_ids_tokens_texts_and_files_are_refused(tmp_path: Path) -> None:
    tokenizer = trained(BPE(400))
    with pytest.raises(SettingError, match="0 to"):
        tokenizer.decode([0, len(tokenizer)])
    with pytest.raises(SettingError, match="0 to"):
        tokenizer.token(-1)
    with pytest.raises(SettingError, match="Did you mean '▁the'"):
        tokenizer.id("▁thee")
    with pytest.raises(DtypeError, match="Text 1 is not valid Unicode: a lone surrogate"):
        tokenizer.encode_batch(["a", "b\ud800"])
    with pytest.raises(DtypeError, match="text 0 of type int"):
        tokenizer.ids_batch([3])  # type: ignore[list-item]
    with pytest.raises(SettingError, match="No such file"):
        Tokenizer.load(tmp_path / "missing.json")
    with pytest.raises(SettingError, match="Could not write"):
        tokenizer.save(tmp_path / "nowhere" / "tokenizer.json")
    (tmp_path / "bad.json").write_text('{"version": "1.0"}')
    with pytest.raises(SettingError, match=r"bad\.json.*not a valid tokenizer\.json"):
        Tokenizer.load(tmp_path / "bad.json")
    with pytest.raises(SettingError, match="has no 'cls' token"):
        SpecialIds(pad=0).need("cls")
    with pytest.raises(SettingError, match="Did you mean 'cls'"):
        SpecialIds(pad=0).need("clss")


def foreign(tmp_path: Path, unigram: bool) -> Path:
    """A tokenizer.json as other people make them: special tokens among the pieces, nothing between punctuation."""
    tokens = ["<pad>", "</s>", "<unk>", "▁", "a", "b", "<", "/", "s", ">", "<eot>", "▁a"]
    if unigram:
        engine = Engine(
            models.Unigram([(token, 0.0 if number < 3 else -2.0) for number, token in enumerate(tokens)], 2)
        )
    else:
        engine = Engine(models.WordLevel({token: number for number, token in enumerate(tokens)}, unk_token="<unk>"))
    engine.pre_tokenizer = pre_tokenizers.Metaspace() if unigram else pre_tokenizers.WhitespaceSplit()
    engine.decoder = decoders.Metaspace()
    engine.add_special_tokens(["<pad>", "</s>", "<unk>", "<eot>"])
    engine.enable_padding(length=50)
    engine.enable_truncation(max_length=2)
    engine.save(str(tmp_path / "foreign.json"))
    return tmp_path / "foreign.json"


@pytest.mark.parametrize("unigram", [True, False])
def test_a_foreign_file_with_special_pieces(tmp_path: Path, unigram: bool) -> None:
    tokenizer = Tokenizer.load(foreign(tmp_path, unigram), roles={"sep": "<eot>"})
    assert tokenizer.special == SpecialIds(pad=0, end=1, unknown=2, sep=10)
    assert tokenizer.encode("a </s> b", specials=True).ids.count(1) == 1
    ids = tokenizer.encode("a </s> b").ids
    assert not set(ids) & {0, 1, 10}
    assert len(ids) > 2  # neither padded nor cut
    assert Tokenizer.load(foreign(tmp_path, unigram)).special.others == (10,)


def test_wrong_roles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="role 'seperator'"):
        Tokenizer.load(foreign(tmp_path, True), roles={"seperator": "<eot>"})
    with pytest.raises(SettingError, match="Did you mean '<eot>'"):
        Tokenizer.load(foreign(tmp_path, True), roles={"sep": "<eott>"})


def test_a_class_or_a_single_text_is_refused() -> None:
    with pytest.raises(SettingError, match=r"such as BPE\(8000\)"):
        Tokenizer.train(BPE, ["text"])  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="got a str, expected an iterable of texts"):
        Tokenizer.train(BPE(100), "one text")
