"""Conversion of docstrings to Markdown: names and meanings in two columns become a list.

name    the meaning, which may
        continue in the next line
"""

import ast
import re
from typing import Any

import griffe

ROW = re.compile(r"(?P<name>\S.*?)(?P<gap> {2,})(?P<text>\S.*)")
NAMES = re.compile(r"\w+(, \w+)*")
SECTION = re.compile(r"\n\s*\n[A-Z][\w ]*\n-{3,}\n")
LABELS = ("Problem", "Symbols", "Algorithm", "Deviations")


class Readable(griffe.Extension):
    """Extension that converts docstrings before they are parsed, and appends those of fields to the class's."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = readable(obj.docstring.value)

    def on_class(self, *, cls: Any, **_: Any) -> None:
        is_enum = any(str(base) == "Enum" for base in cls.bases)
        attributes = [m for m in cls.members.values() if not m.is_alias and m.is_attribute]
        fields = [m for m in attributes if m.docstring or is_enum]
        if fields and cls.docstring:
            cls.docstring.value = _insert_before_sections(cls.docstring.value, "\n".join(map(_field, fields)))
            for member in fields:
                member.docstring = None


def _insert_before_sections(docstring: str, paragraph: str) -> str:
    """Return a docstring with a paragraph added before its first NumPy section."""
    match = SECTION.search(docstring)
    end = match.start() if match else len(docstring)
    return docstring[:end] + "\n\n" + paragraph + docstring[end:]


def _field(member: Any) -> str:
    """Return the line of a field, a property, or a value of an enumeration, whose value is its meaning."""
    if not member.docstring:
        return f"- **{member.name}**: {ast.literal_eval(str(member.value))}"
    default = "" if member.value is None or str(member.value).startswith("field(") else f" = `{member.value}`"
    return f"- **{member.name}**{default}: " + " ".join(member.docstring.value.split())


def readable(docstring: str) -> str:
    return "\n\n".join(map(_paragraph, re.split(r"\n\s*\n", docstring)))


def _paragraph(text: str) -> str:
    """Return a paragraph of two columns as a list, a labelled one as a code block, any other unchanged."""
    lines = text.split("\n")
    if lines[0].startswith("    "):
        return text
    if lines[0].startswith(LABELS):
        return "```text\n" + text + "\n```"
    rows: list[list[str]] = []
    for line in lines:
        match = ROW.fullmatch(line)
        if match and NAMES.fullmatch(match["name"]):
            rows.append([match["name"], match["text"]])
        elif rows and line.startswith("   "):
            rows[-1][1] += " " + line.strip()
        else:
            return text
    return "\n".join(f"- `{name}`: {meaning}" for name, meaning in rows)
