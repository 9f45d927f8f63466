"""a name, a framework -> a further model that runs at once: its folder, section and entries."""

import sys
from pathlib import Path

from pipeline.runtime.command import Command, Options, Parser
from pipeline.scaffolding.new_model import create
from quatrain.registry import FRAMEWORKS

NEXT = """
{name} is a model of this project: a small learner of a function, to be replaced by yours. Next:
  make repro MODELS={name}    collect, train, evaluate; exit 4: it has no baseline yet
  make promote MODELS={name}  stores its scores as the baseline
  make repro MODELS={name}    holds it
  make test ARGS='tests/test_contract.py -k {name}'
Then replace the learner, from collect.py to serve.py (CONTRIBUTING.md, "Add a model").
`git status` lists what was written.\
"""


def add_options(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the model, in snake case: my_model")
    parser.add_argument("--framework", choices=FRAMEWORKS, default="jax", help="of its learner")


def work(options: Options) -> None:
    for line in create(Path.cwd(), options.name, options.framework):
        print(line)
    print(NEXT.format(name=options.name))


main = Command(
    name="new",
    summary="Adds a further model to this checkout, which runs, and passes all tests, at once.",
    work=work,
    add_options=add_options,
)

if __name__ == "__main__":
    sys.exit(main())
