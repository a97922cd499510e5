"""The other sides of the grammar: each says of itself what its task needs."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from regard.text.grammar import (
    SENSES,
    GeneratedCorpus,
    document,
    document_french,
    opinion,
    opinion_french,
    question,
    review,
    review_french,
    sense,
    tagged,
    tagged_french,
    verdict,
    verdict_french,
)

UNIVERSAL = {
    "NOUN",
    "PROPN",
    "PRON",
    "VERB",
    "AUX",
    "ADJ",
    "ADV",
    "ADP",
    "DET",
    "CCONJ",
    "SCONJ",
    "PART",
    "NUM",
    "PUNCT",
}


@pytest.mark.parametrize("view", [tagged, tagged_french])
def test_every_word_has_a_universal_tag(view) -> None:  # type: ignore[no-untyped-def]
    seen = Counter()
    for example in GeneratedCorpus(view, 1500):
        assert len(example.words) == len(example.tags)
        seen.update(example.tags)
    assert set(seen) <= UNIVERSAL and len(seen) >= 12
    assert all(count > 20 for count in seen.values()), seen


def test_the_same_word_has_several_tags() -> None:
    """train the noun and train the verb: a tagger needs the context."""
    tags = defaultdict(set)
    for example in GeneratedCorpus(tagged, 4000):
        for word, tag in zip(example.words, example.tags, strict=True):
            tags[word.lower()].add(tag)
    assert {"NOUN", "VERB"} <= tags["train"] and {"NOUN", "VERB"} <= tags["play"]


@pytest.mark.parametrize("view", [review, review_french])
def test_a_review_is_about_the_same_two_things(view) -> None:  # type: ignore[no-untyped-def]
    for example in GeneratedCorpus(view, 100):
        assert 3 <= len(example.sentences) <= 6
        first, *others = ({*one.lower().split()} for one in example.sentences)
        shared = first.intersection(*others) - {"the", "le", "la", "."}
        assert len(shared) >= 2, example


def test_opinions_carry_their_evidence() -> None:
    for example in GeneratedCorpus(opinion, 500):
        words = example.text.split()
        because = [words[place] for place in example.evidence]
        assert 1 <= len(because) <= 2 and because.count("not") == len(because) - 1
        assert example.label in ("positive", "negative")


def test_the_evidence_decides() -> None:
    """The judging word and its negation give the label by themselves: nothing else is needed."""
    praise = set(
        """excellent wonderful good interesting delightful brilliant pleasant original superb moving love like
        enjoy""".split()
    )
    for example in [*GeneratedCorpus(opinion, 1000), *GeneratedCorpus(opinion, 200, "test")]:
        words = example.text.split()
        because = [words[place].lower() for place in example.evidence]
        (judging,) = (word for word in because if word != "not")
        positive = (
            judging.removesuffix("d") in praise or judging.removesuffix("ed") in praise or judging in praise
        ) != ("not" in because)
        assert example.label == ("positive" if positive else "negative"), example


def test_french_opinions_carry_theirs() -> None:
    for example in GeneratedCorpus(opinion_french, 300):
        words = example.text.split()
        assert example.evidence and all(place < len(words) for place in example.evidence)
        because = {words[place].lower() for place in example.evidence}
        assert ("pas" in because) == bool(because & {"ne", "n'"}) and because - {"ne", "n'", "pas"}


def test_one_word_decides_a_verdict() -> None:
    """The same word never decides both ways, and a sentence holds no other that decides."""
    said: dict[str, set[str]] = defaultdict(set)
    examples = list(GeneratedCorpus(verdict, 500))
    for example in examples:
        (place,) = example.evidence
        said[example.text.split()[place].lower()].add(example.label)
    assert all(len(labels) == 1 for labels in said.values())
    assert all(sum(word.lower() in said for word in example.text.split()) == 1 for example in examples)


def test_a_verdict_stands_in_either_half_and_in_french_too() -> None:
    first = sum(max(e.evidence) < len(e.text.split()) / 2 for e in GeneratedCorpus(verdict, 600))
    assert 200 < first < 400
    assert all(e.evidence and max(e.evidence) < len(e.text.split()) for e in GeneratedCorpus(verdict_french, 200))


def test_labels_are_balanced() -> None:
    labels = Counter(example.label for example in GeneratedCorpus(opinion, 2000))
    assert abs(labels["positive"] - labels["negative"]) < 150


def test_a_bag_of_words_cannot_tell_opinions_apart() -> None:
    """The best linear classifier on counts of words and on pairs of them unordered is no better than chance."""
    train, test = list(GeneratedCorpus(opinion, 6000)), list(GeneratedCorpus(opinion, 1500, "test"))
    places = {word: i for i, word in enumerate(sorted({w for e in train for w in e.text.lower().split()}))}

    def counts(examples):  # type: ignore[no-untyped-def]
        bags = np.zeros((len(examples), len(places) + 1))
        for row, example in enumerate(examples):
            for word in example.text.lower().split():
                bags[row, places[word]] += 1
        bags[:, -1] = 1
        return bags, np.array([1.0 if e.label == "positive" else -1.0 for e in examples])

    bags, labels = counts(train)
    weights = np.linalg.solve(bags.T @ bags + 1e-2 * np.eye(bags.shape[1]), bags.T @ labels)
    bags, labels = counts(test)
    assert (np.sign(bags @ weights) == labels).mean() < 0.56


def test_the_last_judgement_is_not_always_the_decisive_one() -> None:
    """Nor does a rule such as 'the words after the comma' do."""
    first = sum(max(e.evidence) < len(e.text.split()) / 2 for e in GeneratedCorpus(opinion, 600))
    assert 100 < first < 500


@pytest.mark.parametrize("view", [document, document_french])
def test_documents_are_connected(view) -> None:  # type: ignore[no-untyped-def]
    """A name comes back in later sentences; the sentences of another document do not hold it."""
    documents = list(GeneratedCorpus(view, 200))
    lengths = [len(example.sentences) for example in documents]
    assert min(lengths) >= 3 and max(lengths) <= 10
    again = elsewhere = 0
    for number, example in enumerate(documents):
        hero = example.sentences[0].split()[example.sentences[0].startswith(("Mr. ", "Ms. ", "M. ", "Mme "))]
        again += any(hero in sentence.split() for sentence in example.sentences[1:])
        elsewhere += any(hero in sentence.split() for sentence in documents[number - 1].sentences)
    assert again > 150 and elsewhere < 20


def test_answers_are_stretches_of_the_passage() -> None:
    for example in GeneratedCorpus(question, 800):
        assert example.answer == example.passage[example.start : example.end]
        assert example.answer.strip() == example.answer != ""
        assert example.question.split()[0] in ("Who", "What", "Where") and example.question.endswith("?")
        assert example.passage.count(f"{example.answer} ") == 1, example
        before, after = example.passage[: example.start], example.passage[example.end :]
        assert (not before or before.endswith(" ")) and after.startswith(" ")


def test_a_question_has_one_answer() -> None:
    """What the question says is in the sentence of the answer, and in no other sentence of the passage."""
    asking = {"Who", "What", "Where", "did", "?", "the", "to", "in", "at", "on", "of", "Mr.", "Ms."}
    for example in GeneratedCorpus(question, 300):
        before = example.passage[: example.start].count(" . ")
        sentences = [set(sentence.split()) for sentence in example.passage.removesuffix(" .").split(" . ")]
        asked = {word for word in example.question.split() if word not in asking}
        hits = [len(asked & sentence) for sentence in sentences]
        assert hits[before] == max(hits) and hits.count(max(hits)) == 1, example


def test_senses_point_at_their_word_and_come_in_every_meaning() -> None:
    seen = defaultdict(Counter)
    for example in GeneratedCorpus(sense, 3000):
        assert example.text.split()[example.index] == example.word
        word = next(word for word in SENSES if example.sense in SENSES[word])
        seen[word][example.sense] += 1
    assert set(seen) == set(SENSES)
    for word, meanings in seen.items():
        assert len(meanings) >= 2, (word, meanings)
