"""What is for Kubernetes: fields that KubeRay has, a token, no rights and no password."""

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conftest import ROOT

YAML_READER = YAML(typ="safe")
CLUSTER = ROOT / "docs" / "cluster"
JOB = CLUSTER / "rayjob.yaml"
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


def pod_specs(value: Any) -> Iterator[dict[str, Any]]:
    """Yields each part that has containers."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for part in value.values():
            yield from pod_specs(part)
    elif isinstance(value, list):
        for part in value:
            yield from pod_specs(part)


@pytest.mark.parametrize(("name", "count"), [("rayjob", 3), ("retrain", 1), ("serve", 1)])
def test_no_pod_has_rights_or_a_password_written_down(name: str, count: int):
    path = CLUSTER / f"{name}.yaml"
    specs = list(pod_specs(list(YAML_READER.load_all(path))))
    assert len(specs) == count
    for spec in specs:
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        (container,) = spec["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["image"] == "REGISTRY/quatrain:COMMIT"
    assert not re.search(r"PASSWORD:|SECRET_ACCESS_KEY:|stringData|kind: Secret", path.read_text())


def test_the_served_champion_can_be_reached_at_its_port_by_pods_with_a_label():
    kinds = {each["kind"]: each["spec"] for each in YAML_READER.load_all(CLUSTER / "serve.yaml")}
    assert set(kinds) == {"Deployment", "Service", "NetworkPolicy"}
    template = kinds["Deployment"]["template"]
    labels = template["metadata"]["labels"]
    selectors = (
        kinds["Deployment"]["selector"]["matchLabels"],
        kinds["Service"]["selector"],
        kinds["NetworkPolicy"]["podSelector"]["matchLabels"],
    )
    assert selectors == (labels,) * 3
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    probes = [container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")]
    named = {kinds["Service"]["ports"][0]["targetPort"], *(p["httpGet"]["port"] for p in probes)}
    assert named == {port["name"]}
    assert container["args"][-2:] == ["--port", str(port["containerPort"])]
    (rule,) = kinds["NetworkPolicy"]["ingress"]
    assert [each["port"] for each in rule["ports"]] == [port["containerPort"]]


def test_a_retraining_on_kubernetes_waits_for_the_one_before_and_keeps_its_checkout():
    kinds = {each["kind"]: each for each in YAML_READER.load_all(CLUSTER / "retrain.yaml")}
    job = kinds["CronJob"]["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    (spec,) = pod_specs(job)
    (container,) = spec["containers"]
    (volume,) = spec["volumes"]
    claim = kinds["PersistentVolumeClaim"]["metadata"]["name"]
    assert volume["persistentVolumeClaim"] == {"claimName": claim}
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/work"}]
    assert container["workingDir"] == "/work"
    subprocess.run(["bash", "-n", "-c", container["args"][2]], check=True)


def test_every_place_names_the_same_version_of_ray(manifests: dict[str, Any]):
    texts = ((ROOT / name).read_text() for name in ("pyproject.toml", "requirements/kuberay.in"))
    named = re.findall(r"\bray(?:\[\w+\])?==([\d.]+)", "".join(texts))
    assert [*named, manifests["RayJob"]["spec"]["rayClusterSpec"]["rayVersion"]] == ["2.60.0"] * 3
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert all(f"-r /requirements/{name}.txt" in dockerfile for name in LOCKS)
