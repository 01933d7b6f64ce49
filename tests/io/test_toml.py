"""The size of a TOML file is limited before it is parsed."""

import subprocess
import sys

import pytest

from asker.experiments.plan_reader import read_plan
from asker.io.files import FileError
from asker.io.toml import MOST_BYTES, MOST_PARTS, parse_toml, read_toml_text

READ_WITHIN = """
import resource, sys
from asker.experiments.plan_reader import read_plan
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), -1))
try:
    read_plan(sys.argv[1])
except ValueError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads its memory from /proc")
@pytest.mark.parametrize("key", ["{} = 1", "x = {{ {} = 1 }}", "[{}]", '"x". {} = 1'])
def test_a_long_dotted_key_takes_no_memory(key, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text("title = 'a.b'\n" + key.format(".".join("a" * 50_000)))
    command = [sys.executable, "-c", READ_WITHIN, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.startswith(f"{path}:2: a dotted key has 5000")


def test_a_long_file_is_refused(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text("#" * MOST_BYTES + "\n")
    with pytest.raises(FileError, match=r"plan\.toml: the file is larger than 256 kB"):
        read_plan(path)
    path.write_bytes(b"\xff")
    with pytest.raises(FileError, match="not a text file"):
        read_toml_text(path)


def test_dots_that_are_in_no_key_are_read():
    dots = "a." * (2 * MOST_PARTS)
    quoted = [f'"{dots}"', f"'{dots}'", f'"\\"{dots}"', f'"""\n"{dots}\n"""', f"'''\n{dots}'''"]
    text = "".join(f"x{k} = {value} # it's {dots}\n" for k, value in enumerate(quoted))
    text += f"numbers = [{'0.5, ' * 100}]\n" + ".".join("k" * MOST_PARTS) + " = 1\n"
    found = parse_toml("plan.toml", text)
    assert found["x1"] == dots
    assert len(found["numbers"]) == 100
    with pytest.raises(FileError, match=f"{len(text.splitlines())}: a dotted key has {MOST_PARTS + 1} parts"):
        parse_toml("plan.toml", text.replace("k.k", "k.k.k", 1))


def test_what_is_no_toml_is_told_with_its_line():
    with pytest.raises(FileError, match=r"plan\.toml:2: "):
        parse_toml("plan.toml", "a = 1\nb =\n")
    with pytest.raises(FileError, match=r"plan\.toml: "):
        parse_toml("plan.toml", "a = " + "[" * 100_000)
