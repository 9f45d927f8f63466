"""a name, a framework -> a further model that runs at once: its folder, section and entries."""

import sys
from pathlib import Path

from pipeline.runtime.command import Command, Options, Parser
from pipeline.scaffolding import checkout, plan
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


def create(name: str, framework: str) -> None:
    """Writes a model, or nothing.

    Raises:
        ConfigError: the name cannot be used, or a file that names the models has lost its place
            for a further one.
    """
    root = Path.cwd()
    checkout.check_name(root, name)
    changes = plan.changes(root, name, framework)
    checkout.write(root, changes)
    checkout.tidy(root, [path for path in changes if path.endswith(".py")])
    for path, change in sorted(changes.items()):
        print(f"  {'changed' if change.old is not None else 'new':8} {path}")
    print(NEXT.format(name=name))


def add_options(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the model, in snake case: my_model")
    parser.add_argument("--framework", choices=FRAMEWORKS, default="jax", help="of its learner")


def work(options: Options) -> None:
    create(options.name, options.framework)


main = Command(
    name="new",
    summary="Adds a further model to this checkout, which runs, and passes all tests, at once.",
    work=work,
    add_options=add_options,
)

if __name__ == "__main__":
    sys.exit(main())
