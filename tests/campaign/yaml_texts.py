"""Texts of YAML files that readers take for different things, or for nothing."""

from typing import NamedTuple


class Row(NamedTuple):
    """A text: the whole file, or lines in place of `seed: 0`."""

    name: str
    data: bytes
    is_whole: bool
    refused: bool = True


SCALARS = (
    *(
        "010",
        "0o10",
        "1_000",
        "0x1F",
        "0b11",
        "12:30:45",
        "1:2",
        "08",
        "00",
        "-0",
        "+1",
        "1.",
        ".5",
    ),
    *("1e3", "1.0e3", "1e-3", "1e400", ".inf", "-.INF", ".nan", "2020-01-01", "=", "~", "null"),
    *(
        "yes",
        "no",
        "on",
        "off",
        "y",
        "true",
        "TRUE",
        "<<",
        "'<<'",
        '"\\0"',
        '"\\ud800"',
        "!!int '3'",
    ),
    *("!x 1", "&a 1", "*a", "? a", "- 1", "@x", "`x", "%x", "|", ">", "9" * 120, "1__0", "0_1"),
)
WHOLE_NUMBERS = ("-0", "+1", "1.", "1e3", "1.0e3")
LINES = {
    **{f"seed {text[:12]}": f"seed: {text}\n" for text in SCALARS if text not in WHOLE_NUMBERS},
    "duplicate key": "seed: 0\nseed: 1\n",
    "quoted duplicate": "seed: 0\n'seed': 1\n",
    "merge": "seed: 0\n<<: {threads: 1}\n",
    "merge of a list": "seed: 0\n<<: [{threads: 1}]\n",
    "quoted merge": "seed: 0\n'<<': {threads: 1}\n",
    "explicit merge": "seed: 0\n? <<\n: {threads: 1}\n",
    "merge in flow": "seed: 0\nallo: {<<: {seeds: 1}}\n",
    "key of a number": "seed: 0\n1: 2\n",
    "key of null": "seed: 0\n~: 2\n",
    "empty key": "seed: 0\n: 2\n",
    "key of true": "seed: 0\ntrue: 2\n",
    "key of a list": "seed: 0\n? [a]\n: 1\n",
    "key of a section": "seed: 0\n? {a: 1}\n: 1\n",
    "key of two lines": "seed: 0\n? |\n  a\n  b\n: 1\n",
    "long key": f"seed: 0\n? {'k' * 3000}\n: 1\n",
    "date as key": "seed: 0\n2020-01-01: 1\n",
    "tab": "seed:\t0\n\tthreads: 1\n",
    "directive within": "seed: 0\n%YAML 1.1\n",
    "second document": "seed: 0\n---\n",
    "end, then more": "seed: 0\n...\nthreads: 2\n",
    "anchor on a key": "&a seed: 0\n",
    "tag on a section": "seed: 0\nallo: !!map {}\n",
    "set": "seed: 0\nx: !!set {a}\n",
    "NEL": "seed: 0\x85threads: 1\n",
    "LS": "seed: 0\u2028\n",
    "BOM within": "seed: 0\n\ufeffthreads: 2\n",
    "DEL": "seed: 0 # \x7f\n",
    "bell": "seed: 0 # \x07\n",
    "sentence": "seed: 0\nand so on\n",
    "unclosed quote": "seed: 0\nx: 'a\n",
    "unclosed list": "seed: 0\nx: [1, 2\n",
    "section for a number": "seed:\n  a: 0\n",
    "list for a number": "seed:\n  - 0\n",
    "nothing": "",
}
READ = {
    **{f"seed {text}": f"seed: {text}\n" for text in WHOLE_NUMBERS},
    "explicit key": "? seed\n: 0\n",
    "quoted key": "'seed': 0\n",
    "comment": "seed: 0 # 010, <<: yes\n",
    "whole float": "seed: 3.0\n",
    "end": "seed: 0\n",
    "CRLF": "seed: 0\r\n",
    "blank lines": "\n\nseed: 0\n\n",
}
HEADS = ("%YAML 1.1", "%YAML 1.0", "%YAML 1.3", "%YAML 2.0", "%YAML 1", "%TAG ! !x", "%FOO", "%")
GOOD = b"a: 1\n"
WHOLE = {
    **{f"head {head}": f"{head}\n---\n".encode() + GOOD for head in HEADS},
    "head after a comment": b"# c\n%YAML 1.1\n---\n" + GOOD,
    "head after CR": b"# c\r%YAML 1.1\r---\r" + GOOD,
    "head in the middle": b"a: 1\n...\n%YAML 1.1\n---\nb: 1\n",
    "nothing": b"",
    "blank": b" \n\n",
    "comment": b"# nothing\n",
    "null": b"null\n",
    "number": b"1\n",
    "text": b"some text\n",
    "list": b"- a\n- b\n",
    "empty section": b"{}\n",
    "only ---": b"---\n",
    "only ...": b"...\n",
    "NUL": b"\0" * 100,
    "Latin-1": "preset: größe\n".encode("latin-1"),
    "UTF-16": "preset: default\n".encode("utf-16"),
    "UTF-16, no mark": "preset: default\n".encode("utf-16-le"),
    "UTF-32": "preset: default\n".encode("utf-32"),
    "two marks": b"\xef\xbb\xbf\xef\xbb\xbfpreset: default\n",
    "overlong": b"preset: \xc0\xaf\n",
    "surrogate": b"preset: \xed\xa0\x80\n",
    "all bytes": bytes(range(256)),
    "deep": b"a: " + b"[" * 20_000 + b"]" * 20_000,
    "deep sections": b"{a: " * 5000 + b"1" + b"}" * 5000,
    "deep blocks": b"".join(b" " * n + b"a:\n" for n in range(400)),
    "bomb": b"a: &a [1]\nb: &b [*a,*a]\nc: [*b,*b]\n",
    "huge": b"a: " + b"x" * 1_000_000,
    "many keys": b"".join(b"k%d: 1\n" % n for n in range(10_000)),
    "python": b"!!python/object/apply:os.system [ls]\n",
    "JSON": b'{"preset": "default"}',
    "TOML": b'preset = "default"\n[allo]\n',
    "INI": b"[section]\nkey=value\n",
    "XML": b"<a>1</a>\n",
    "conflict": b"<<<<<<< HEAD\nseed: 0\n=======\nseed: 1\n>>>>>>> other\n",
    "ELF": b"\x7fELF\x02\x01\x01" + bytes(60),
}
ROWS = (
    *(Row(f"line: {name}", text.encode(), False) for name, text in LINES.items()),
    *(Row(f"line: {name}", text.encode(), False, refused=False) for name, text in READ.items()),
    *(Row(f"file: {name}", data, True) for name, data in WHOLE.items()),
)
