"""The README's code runs and prints what it says."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_ten_lines(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    exec(compile(code, "README.md", "exec"), {})
    printed = [re.findall(r"-?\d+\.?\d*", line) for line in capsys.readouterr().out.splitlines()]
    said = [re.findall(r"-?\d+\.?\d*", c) for c in re.findall(r"# \[\[(.*?)\]\]", code)]
    assert len(said) == 2
    for ours, theirs in zip(printed, said, strict=True):
        assert all(abs(float(a) - float(b)) < 2e-2 for a, b in zip(ours, theirs, strict=True))
