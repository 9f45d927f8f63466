"""requests on stdin -> answers on stdout: the script of a process that runs a registered model by
the code that was saved with it, and imports nothing of the checkout.

A message is its length in 8 bytes, a letter and a content: `s` the schema as JSON, `a` arrays as
safetensors, `e` why there are none.
"""

import json
import logging
import os
import sys
import warnings
from typing import Any, BinaryIO

import numpy as np
from safetensors.numpy import load, save


def send(stream: BinaryIO, kind: bytes, content: bytes) -> None:
    stream.write((len(content) + 1).to_bytes(8, "big") + kind + content)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[bytes, bytes]:
    """Returns kind and content of a message; two empty ones at the end of the stream."""
    message = stream.read(int.from_bytes(stream.read(8), "big"))
    return message[:1], message[1:]


def schema_of(model: Any) -> dict[str, Any]:
    """Returns of the arrays of a request and of an answer the dtype and the shape of one row."""
    signature = model.metadata.signature
    return {
        part: {each.name: [each.type.name, each.shape[1:]] for each in specs.inputs}
        for part, specs in (("inputs", signature.inputs), ("outputs", signature.outputs))
    }


def main(uri: str) -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # mlflow's own, about type hints and libraries
            import mlflow

            model = mlflow.pyfunc.load_model(uri)
        send(answers, b"s", json.dumps(schema_of(model)).encode())
        while request := receive(requests)[1]:
            answer = model.predict(load(request))
            # safetensors writes other orders as they are in memory.
            arrays = {name: np.ascontiguousarray(array) for name, array in answer.items()}
            send(answers, b"a", save(arrays))
    except Exception as error:
        send(answers, b"e", str(error).encode())


if __name__ == "__main__":
    main(sys.argv[1])
