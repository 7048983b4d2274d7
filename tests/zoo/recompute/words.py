"""How a report may speak, whatever it says: docs/style of its words, held for each sentence."""

import re

MOST_WORDS = 25  # of a sentence
BANNED = (
    "came of it",
    "came of this",
    "became too large",
    "is where to look",
    "of which",
    "no multiples",
    "extents",
    "Advised it was",
    "Helps when tried",
    "Of no help when tried",
    "It may",
    "infinity",
    "infinities",
    "infinite",
    "thrashes",
    "Keep from",
    "learned nothing that helps",
    "nothing but zeros",
    "by heart",
    "what went in",
    "a twentieth",
    "which they became",
    "what tensor cores",
    "quantized to",
)
SMALL_FORMAT = re.compile(r"(?<![\w.\"'`/])(?:fp64|fp32|fp16|bf16|tf32|e4m3|e5m2)\b(?![\"'`.])")


def without_code(text):
    """With what is to be typed, and what is quoted, as one word."""
    return re.sub(r"`[^`]*`|\"[^\"]*\"", "CODE", text)


def sentences_of(text):
    """A code of a finding, or a number, holds full stops that end nothing."""
    return [each for each in re.split(r"(?<=[.!?])\s+(?=[A-Z`\d])", text) if each]


def check_sentence(text):
    for sentence in sentences_of(without_code(text)):
        # A list of names is as long as there are names.
        words = re.sub(r"\([^()]*\)", "", sentence).split()
        if len(words) > MOST_WORDS:
            yield f"{len(words)} words: {sentence!r}"
    for banned in BANNED:
        if re.search(rf"\b{re.escape(banned)}\b", without_code(text)):
            yield f"{banned!r} in {text!r}"
    if found := SMALL_FORMAT.search(without_code(text)):
        yield f"{found[0]!r} in {text!r}"
    if re.search(r"\b0 (?:NaN|Inf)\b", text):
        yield f"what there is none of is not told: {text!r}"


def check_words(report):
    """Of each sentence of a report, as JSON."""
    groups = [report.get("verdict_sentences", []), report.get("checked_sentences", [])]
    groups += [finding[part] for finding in report["findings"] for part in ("title_sentences", "suggestion_sentences")]
    for sentence in (each for group in groups for each in group):
        yield from (f"{sentence['id']}: {mistake}" for mistake in check_sentence(sentence["text"]))


def check_page(report, text):
    """Of `ulpscope report`: on one page, each sentence once, and no notes beside what broke the run."""
    if (lines := len(text.splitlines())) > 15:
        yield f"{lines} lines, at most 15"
    page = " ".join(text.split())
    for finding in report["findings"]:
        for part in ("title_sentences", "suggestion_sentences"):
            for sentence in finding[part]:
                if len(sentence["text"].split()) > 4 and page.count(" ".join(sentence["text"].split())) > 1:
                    yield f"twice: {sentence['text']!r}"
    if report["verdict"] == "broken" and re.search(r"^Note\b", text, re.M):
        yield "a note stands beside what broke the run"
