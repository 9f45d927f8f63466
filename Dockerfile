# The pipeline as it is committed, on a CPU or (--build-arg DEVICE=cuda) on an NVIDIA GPU; docs/remotes.md says how to run it.
# --build-arg TORCH_INDEX=URL names an index of torch's CPU builds; else that is PyTorch's, if it answers.
# --build-arg CLUSTER=kuberay adds Ray, for sweeps on Kubernetes: docs/cluster.md.
ARG PYTHON_IMAGE=python:3.11.16-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${PYTHON_IMAGE} AS system
# Debian keeps only the newest version of a package, so a version that is named here could not be installed later.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git openssh-client tini \
    && rm -rf /var/lib/apt/lists/*

# A clone of the last commit: nothing that lies about in the working tree, no history and no remote's password gets in.
FROM system AS checkout
COPY .git /source/.git
RUN git clone --quiet --depth 1 file:///source /quatrain && git -C /quatrain remote remove origin \
    && chmod --recursive a+rwX /quatrain

FROM ${PYTHON_IMAGE} AS locked
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY --from=checkout /quatrain/requirements /requirements
ARG DEVICE=cpu
ARG TORCH_INDEX=auto
ARG CLUSTER=none
RUN python -m venv /opt/venv \
    && case "${DEVICE}" in \
        cpu) index="${TORCH_INDEX}" further='' ;; \
        cuda) index='' further=/requirements/gpu.txt ;; \
        *) echo "DEVICE=${DEVICE}: use cpu or cuda" >&2; exit 2 ;; \
    esac \
    && /opt/venv/bin/pip install --require-hashes --no-deps -r /requirements/lock.txt \
    && /opt/venv/bin/pip install --require-hashes --no-deps -r /requirements/remotes.txt \
    && /opt/venv/bin/python /requirements/install_torch.py "${index}" \
    && if [ -n "${further}" ]; then /opt/venv/bin/pip install -r "${further}"; fi \
    && case "${CLUSTER}" in \
        none) ;; \
        kuberay) /opt/venv/bin/pip install --require-hashes --no-deps -r /requirements/cluster.txt -r /requirements/kuberay.txt ;; \
        *) echo "CLUSTER=${CLUSTER}: use none or kuberay" >&2; exit 2 ;; \
    esac

# The command `quatrain`, and the names of its environments for Gymnasium; the code stays in /quatrain.
COPY --from=checkout /quatrain /quatrain
RUN /opt/venv/bin/pip install --no-deps --no-build-isolation --editable /quatrain

FROM system AS quatrain
# Any user may be given to `docker run --user`: HOME and USER stand in for an entry in /etc/passwd, all of /quatrain can be
# written, git works in a folder of another user, and jax, which asks for that entry to limit the size of its compiled
# programs, keeps them without a limit where the container ends.
ARG USER_ID=1000
RUN useradd --uid "${USER_ID}" --no-create-home --home-dir /tmp quatrain \
    && install --directory --owner quatrain --group quatrain --mode 777 /quatrain \
    && git config --system --add safe.directory /quatrain
COPY --from=locked /opt/venv /opt/venv
COPY --from=checkout --chown=quatrain:quatrain /quatrain /quatrain
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/quatrain/src:/quatrain \
    HOME=/tmp USER=quatrain \
    JAX_COMPILATION_CACHE_DIR=/tmp/jax JAX_COMPILATION_CACHE_MAX_SIZE=-1 \
    OMP_WAIT_POLICY=PASSIVE \
    MLFLOW_DISABLE_TELEMETRY=true \
    MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false
WORKDIR /quatrain
USER ${USER_ID}
HEALTHCHECK --interval=5m --timeout=30s --start-period=30s CMD ["python", "-m", "pipeline", "params", "check"]
ENTRYPOINT ["/usr/bin/tini", "--"]
CMD ["python", "-m", "pipeline", "repro"]
