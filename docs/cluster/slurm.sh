#!/bin/bash
# A sweep on the nodes of a Slurm allocation; submit it in the checkout, which all nodes share:
#   sbatch docs/cluster/slurm.sh sweeps/allo_lr.yaml [options of `make sweep`]
# The same command continues an interrupted sweep. With REQUEUE=1 the job puts itself back into the
# queue when its time is over. docs/cluster.md says more.
#SBATCH --job-name=quatrain-sweep
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail

fail() {
    echo "slurm.sh: $1 [exit $2]" >&2
    exit "$2"
}

[[ $# -ge 1 ]] || fail "name a sweep: sbatch docs/cluster/slurm.sh sweeps/allo_lr.yaml" 2
[[ -n ${SLURM_JOB_ID:-} ]] || fail "submit this script with sbatch" 2
cd "${SLURM_SUBMIT_DIR:-$PWD}"
[[ -f $1 && -d pipeline ]] || fail "$PWD/$1 is not there; submit in the checkout" 2
export PATH=$PWD/.venv/bin:$PATH PYTHONPATH=$PWD/src:$PWD OMP_WAIT_POLICY=PASSIVE
command -v ray >/dev/null || fail "Ray is not installed: make cluster" 5

# Whoever has the token runs code on the nodes: only this user can read the file.
token=$PWD/.state/ray/$SLURM_JOB_ID.token
(umask 077 && mkdir -p "${token%/*}" && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$token")
chmod 600 "$token"
unset RAY_AUTH_TOKEN
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$token
export RAY_USAGE_STATS_ENABLED=0 RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
ip=$(getent ahostsv4 "${hosts[0]}" | awk 'NR == 1 { print $1 }')
[[ -n $ip ]] || fail "${hosts[0]} has no address" 5
port=$((6000 + SLURM_JOB_ID % 4000)) # Below the ports of Ray's workers, which begin at 10002.
cpus=${SLURM_CPUS_PER_TASK:-$(nproc)}
folder=/tmp/quatrain-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}

# Runs Ray on one node in a folder of its own, until it is told to end; then nothing is left.
run_node() {
    local folder=$1 node is_told=''
    mkdir -m 700 "$folder" || return 5
    export TMPDIR=$folder
    ray start --block --temp-dir="$folder" "${@:2}" >"$folder/start.log" 2>&1 &
    node=$!
    trap 'is_told=1; kill -TERM "$node" 2>/dev/null || true' TERM INT
    while kill -0 "$node" 2>/dev/null; do
        wait "$node" || true
    done
    [[ -n $is_told ]] || tail -n 20 "$folder/start.log" >&2
    rm -rf "$folder"
}

driver='' head='' workers=''
# Ends what this script started, by number: `ray stop` would end other jobs' Ray on the nodes too.
# shellcheck disable=SC2329  # It is called on EXIT.
take_down() {
    local process
    for process in $driver $workers $head; do
        kill -TERM "$process" 2>/dev/null || true
        wait "$process" || true
    done
    rm -f "$token"
}
trap take_down EXIT
trap '[[ -z $driver ]] && exit 143; kill -TERM "$driver"' TERM

run_node "$folder" --head --node-ip-address="$ip" --port="$port" --num-cpus="$cpus" \
    --include-dashboard=false &
head=$!
until (exec 3<>"/dev/tcp/$ip/$port") 2>/dev/null; do
    kill -0 "$head" 2>/dev/null || fail "the head of the cluster ended; its lines stand above" 5
    sleep 0.5
done

others=$((${#hosts[@]} - 1))
if ((others)); then
    srun --nodes="$others" --ntasks="$others" --ntasks-per-node=1 --cpus-per-task="$cpus" \
        --nodelist="$(IFS=, && echo "${hosts[*]:1}")" \
        bash -c "$(declare -f run_node)"'; run_node "$@"' run_node \
        "$folder-worker" --address="$ip:$port" --num-cpus="$cpus" &
    workers=$!
fi

# In the background, because bash acts on a signal only when it waits.
python -m pipeline sweep "$1" --address "$ip:$port" "${@:2}" &
driver=$!
code=0
while :; do
    wait "$driver" && code=0 || code=$?
    kill -0 "$driver" 2>/dev/null || break
done
driver=''
((code != 143)) || echo "slurm.sh: interrupted; the same sbatch command continues it" >&2
((code != 143 || !${REQUEUE:-0})) || scontrol requeue "$SLURM_JOB_ID" || true
exit "$code"
