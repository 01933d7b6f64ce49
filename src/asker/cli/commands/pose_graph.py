"""`asker corrupt`."""

from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import typer

from asker.applications.pose_graph.application import check_name
from asker.applications.pose_graph.formats.detection import read_graph
from asker.applications.pose_graph.formats.g2o import write_g2o
from asker.applications.pose_graph.loops.false_loops import FalseLoops, add_false_loops, false_loops_record
from asker.cli.checks import Json, Seed, check_outputs, number, one_of, write_outputs
from asker.io.json import write_json

GraphFile = Annotated[Path, typer.Argument(metavar="FILE", help="A pose graph: .g2o, .g2o.gz or .g2o.bz2.")]
NewGraph = Annotated[Path, typer.Argument(metavar="OUT", help="The g2o file to write; .gz, .bz2 compress.")]


def corrupt(
    file: GraphFile,
    out: NewGraph,
    outliers: Annotated[float, typer.Option(help="Number of false loops, relative to the loops of the graph.")] = 0.5,
    kind: Annotated[str, typer.Option(help=f"One of: {', '.join(get_args(FalseLoops))}.")] = "random",
    seed: Seed = 1,
    json_file: Json = None,
) -> int:
    """The command `asker corrupt`."""
    one_of("--kind", kind, get_args(FalseLoops))
    check_name(out)
    check_outputs(file, out, json_file)
    graph, is_false = add_false_loops(read_graph(file), number("--outliers", outliers), kind, seed)  # type: ignore[arg-type]
    record = {
        "file": str(file),
        "kind": kind,
        "outliers": outliers,
        "seed": seed,
        "n_edges": graph.n_edges,
        "n_loops": graph.n_loops,
        **false_loops_record(graph, is_false),
    }
    print(f"{file}: {graph.n_loops - is_false.sum()} loops, {is_false.sum()} false loops added")
    write_outputs((out, partial(write_g2o, graph=graph)), (json_file, partial(write_json, record=record)))
    return 0
