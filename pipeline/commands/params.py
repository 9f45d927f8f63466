"""params.yaml, presets/ -> checked, printed with a preset, or as a JSON schema for editors."""

import json
import sys
from pathlib import Path

from ruamel.yaml import YAML

from pipeline.runtime.command import Command, Options, Parser
from pipeline.storage.params_file import read_params, read_raw
from quatrain.params import Params
from quatrain.storage.atomic_write import write_durably

SCHEMA_FILE = "params.schema.json"


def add_options(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("check", help="check that params.yaml can be used").add_argument(
        "preset", nargs="?", help="a file of presets/, without .yaml"
    )
    actions.add_parser("preset", help="print params.yaml with the values of a preset").add_argument(
        "preset", help="a file of presets/, without .yaml"
    )
    actions.add_parser("schema", help=f"write {SCHEMA_FILE}, which editors complete params.yaml by")


def run(args: Options) -> None:
    root = Path.cwd()
    if args.action == "schema":
        text = f"{json.dumps(Params.model_json_schema(), indent=1)}\n"
        write_durably(root / SCHEMA_FILE, text.encode())
        return
    read_params(root, args.preset)
    if args.action == "preset":
        YAML().dump(read_raw(root, args.preset), sys.stdout)


main = Command(
    name="params",
    summary="Checks params.yaml, prints it with a preset, or writes its JSON schema.",
    work=run,
    add_options=add_options,
    prefix="",
)

if __name__ == "__main__":
    sys.exit(main())
