"""The job for Kubernetes: fields that KubeRay has, a token, no rights and no password."""

import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conftest import ROOT

YAML_READER = YAML(typ="safe")
JOB = ROOT / "docs" / "cluster" / "rayjob.yaml"
LOCKS = ("cluster", "kuberay")


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    documents = list(YAML_READER.load_all(JOB))
    return {document["kind"]: document for document in documents}


def unknown_fields(
    schema: dict[str, dict[str, str]], kind: str, value: dict[str, Any], path: str = "spec"
) -> list[str]:
    """Returns fields that an object of KubeRay does not have, or not with this type."""
    types = {"integer": int, "string": str, "boolean": bool}
    wrong = []
    for name, item in value.items():
        place, form = f"{path}.{name}", schema[kind].get(name, "")
        each, is_array, _ = form.partition(" array")
        if each in schema:
            for inner in item if is_array else [item]:
                wrong += unknown_fields(schema, each, inner, place)
        elif each == "strings":
            wrong += [place for text in item.values() if type(text) is not str]
        elif not form or type(item) is not types.get(form, dict):
            wrong.append(place)
    return wrong


def test_the_ray_job_has_only_fields_of_kuberay(manifests: dict[str, Any]):
    schema = YAML_READER.load(ROOT / "tests" / "kuberay_fields.yaml")
    job = manifests["RayJob"]
    assert unknown_fields(schema, "RayJobSpec", job["spec"]) == []
    cluster = job["spec"]["rayClusterSpec"] | {"authoptions": {}, "rayVersion": 2.6}
    unknown = unknown_fields(schema, "RayClusterSpec", cluster)
    assert unknown == ["spec.rayVersion", "spec.authoptions"]


def pods(manifests: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spec = manifests["RayJob"]["spec"]
    cluster = spec["rayClusterSpec"]
    groups = {group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]}
    head = cluster["headGroupSpec"]["template"]
    return {"submitter": spec["submitterPodTemplate"], "head": head} | groups


def test_the_cluster_asks_for_a_token_and_can_be_reached_by_its_own_pods_and_the_operator(
    manifests: dict[str, Any],
):
    assert set(manifests) == {"PersistentVolumeClaim", "NetworkPolicy", "RayJob"}
    authentication = manifests["RayJob"]["spec"]["rayClusterSpec"]["authOptions"]
    assert authentication == {"mode": "token", "secretName": "quatrain-ray-token"}
    policy = manifests["NetworkPolicy"]["spec"]
    cluster = {"podSelector": policy["podSelector"]}
    operator, dashboard = policy["ingress"][1]["from"], policy["ingress"][1]["ports"]
    assert policy["ingress"][0] == {"from": [cluster]}
    assert [set(peer) for peer in operator] == [{"namespaceSelector"}]
    assert dashboard == [{"protocol": "TCP", "port": 8265}]
    for template in pods(manifests).values():
        assert template["metadata"]["labels"] == cluster["podSelector"]["matchLabels"]


def test_no_pod_has_rights_or_a_password_written_down(manifests: dict[str, Any]):
    for name, template in pods(manifests).items():
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        (container,) = spec["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
        assert container["image"] == "REGISTRY/quatrain:COMMIT"
    text = JOB.read_text()
    assert not re.search(r"PASSWORD|ACCESS_KEY|stringData|kind: Secret", text)


def test_every_place_names_the_same_version_of_ray(manifests: dict[str, Any]):
    texts = ((ROOT / name).read_text() for name in ("pyproject.toml", "requirements/kuberay.in"))
    named = re.findall(r"\bray(?:\[\w+\])?==([\d.]+)", "".join(texts))
    assert [*named, manifests["RayJob"]["spec"]["rayClusterSpec"]["rayVersion"]] == ["2.60.0"] * 3
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert all(f"-r /requirements/{name}.txt" in dockerfile for name in LOCKS)
