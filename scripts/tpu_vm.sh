#!/usr/bin/env bash
# A Cloud TPU from creation to deletion: one VM or a pod of many, one command for all of its hosts.
#
#   scripts/tpu_vm.sh create                    makes the TPU, and waits until it is there
#   scripts/tpu_vm.sh setup                     copies this checkout to every host and installs it there
#   scripts/tpu_vm.sh run -- train.py --config=configs/lm.py:alibi,dataset=pg19,data_dir=gs://my-bucket/tfds --workdir=gs://my-bucket/alibi
#   scripts/tpu_vm.sh logs                      the last lines of every host's log
#   scripts/tpu_vm.sh stop                      SIGTERM to the run on every host: it saves and ends with 75
#   scripts/tpu_vm.sh fetch gs://my-bucket/runs/alibi runs/alibi
#   scripts/tpu_vm.sh delete                    ends the costs
#
# Flags before or after the command: --name, --zone, --type, --runtime, --project, --spot, --dry_run (print every command, run none).
# Each has a variable: TPU_NAME, TPU_ZONE, TPU_TYPE, TPU_RUNTIME, TPU_PROJECT. Types: v5litepod-8 (one host), v5litepod-16 and up, v4-16,
# v6e-16 … The runtime is the image that the hosts start from; left out, it is the one for the type.
#
# `setup` copies what is committed. `run` starts the command on all hosts at once, in the background (the connection may close), each with
# --coordinator=auto and under scripts/again.sh, which starts it again after a preemption. A workdir that all hosts see is needed: gs://… or
# a mounted disk. A spot TPU that was taken away has to be created and set up anew; the same `run` then goes on from the checkpoint. Several
# commands, with a word '&&' between them, are run one after the other, each begun where the one before has ended with 0:
#
#   scripts/tpu_vm.sh run -- train.py … --workdir=gs://my-bucket/runs/alibi '&&' eval.py --workdir=gs://my-bucket/runs/alibi --lengths=512
#
# Exit codes: 0 done, 2 wrong arguments, else gcloud's.
set -euo pipefail

name=${TPU_NAME:-pe-jax}
zone=${TPU_ZONE:-us-central1-a}
type=${TPU_TYPE:-v5litepod-8}
runtime=${TPU_RUNTIME:-}
project=${TPU_PROJECT:-}
spot='' dry_run='' words=() remote=()

fail() {
  echo "ERROR: $1" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case $1 in
    --name=*) name=${1#*=} ;;
    --zone=*) zone=${1#*=} ;;
    --type=*) type=${1#*=} ;;
    --runtime=*) runtime=${1#*=} ;;
    --project=*) project=${1#*=} ;;
    --spot) spot=1 ;;
    --dry_run) dry_run=1 ;;
    -h | --help)
      sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    --)
      shift
      remote=("$@")
      break
      ;;
    -*) fail "$1: there is no such flag (--help lists them; what belongs to the run comes after --)" ;;
    *) words+=("$1") ;;
  esac
  shift
done

[[ $name =~ ^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$ ]] || fail "--name: '$name' is no name of a TPU (small letters, digits and -)"
where=(--zone="$zone")
[ -z "$project" ] || where+=(--project="$project")

# Prints what it does, and does it.
do_it() {
  printf '+' >&2
  printf ' %q' "$@" >&2
  printf '\n' >&2
  [ -n "$dry_run" ] || "$@"
}

on_all_hosts() {
  do_it gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" --worker=all --command="$1"
}

# The image for a type of TPU (cloud.google.com/tpu/docs/runtimes, for JAX).
runtime_of() {
  case $1 in
    v2-* | v3-* | v4-*) echo tpu-ubuntu2204-base ;;
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v6e-*) echo v2-alpha-tpuv6e ;;
    *) fail "--type: no image is known for '$1' (v2-…, v3-…, v4-…, v5litepod-…, v5p-…, v6e-…; --runtime=… names another)" ;;
  esac
}

quoted() {
  printf '%q ' "$@"
}

case ${words[0]:-} in
  create)
    [ -n "$runtime" ] || runtime=$(runtime_of "$type")
    do_it gcloud compute tpus tpu-vm create "$name" "${where[@]}" --accelerator-type="$type" --version="$runtime" ${spot:+--spot}
    ;;
  setup)
    root=$(cd "$(dirname "$0")/.." && pwd)
    archive=$(mktemp -t pe_jax.XXXXXX)
    trap 'rm -f "$archive"' EXIT
    do_it git -C "$root" archive --format=tar.gz --output="$archive" HEAD
    do_it gcloud compute tpus tpu-vm scp "$archive" "$name:pe_jax.tar.gz" "${where[@]}" --worker=all
    # Images may have an older Python than this needs, so uv brings one.
    on_all_hosts 'set -e; mkdir -p pe_jax; tar -xzf pe_jax.tar.gz -C pe_jax; cd pe_jax
python3 -m pip install -q --user uv || python3 -m pip install -q --user --break-system-packages uv
python3 -m uv venv -q --clear --seed --python 3.12 .venv
.venv/bin/python -m pip install -q -c constraints.txt -e ".[tpu,gcs]"
.venv/bin/python -c "import jax, sys; print(sys.version.split()[0], jax.__version__)"'
    ;;
  run)
    [ ${#remote[@]} -gt 0 ] || fail 'run: what shall run? (run -- train.py --config=… --workdir=gs://…)'
    words=(scripts/again.sh) begins=1
    for word in "${remote[@]}"; do
      if [ -n "$begins" ]; then
        [ "$word" != python ] || continue
        case $word in
          train.py | eval.py) words+=(.venv/bin/python) begins='' ;;
          *) fail "run: '$word' is neither train.py nor eval.py" ;;
        esac
      fi
      [ "$word" != '&&' ] || words+=(--coordinator=auto) begins=1
      words+=("$word")
    done
    [ -z "$begins" ] || fail "run: after the last '&&' there is no command"
    command=$(quoted "${words[@]}" --coordinator=auto)
    busy="ERROR: a run goes on there ($0 stop ends it)"
    on_all_hosts "cd pe_jax && if [ -f run.pid ] && kill -0 \$(cat run.pid) 2> /dev/null; then echo $(printf %q "$busy") >&2; exit 5; fi
{ nohup $command> run.log 2>&1 < /dev/null & echo \$! > run.pid; }; sleep 2; tail -n 2 run.log"
    ;;
  logs)
    on_all_hosts 'tail -n 20 pe_jax/run.log'
    ;;
  stop)
    # shellcheck disable=SC2016  # the hosts' shells read it
    on_all_hosts 'kill $(cat pe_jax/run.pid); sleep 20; tail -n 2 pe_jax/run.log'
    ;;
  fetch)
    [ ${#words[@]} -eq 3 ] || fail 'fetch: from where, to where? (fetch gs://bucket/runs/a runs/a, or a folder of the first host)'
    case ${words[1]} in
      gs://*) do_it mkdir -p "${words[2]}" && do_it gcloud storage rsync --recursive "${words[1]}" "${words[2]}" ;;
      *) do_it gcloud compute tpus tpu-vm scp --recurse "$name:pe_jax/${words[1]}" "${words[2]}" "${where[@]}" --worker=0 ;;
    esac
    ;;
  delete)
    do_it gcloud compute tpus tpu-vm delete "$name" "${where[@]}" --quiet
    ;;
  '') fail 'what shall be done? create, setup, run, logs, stop, fetch or delete (--help tells more)' ;;
  *) fail "'${words[0]}' is no command (create, setup, run, logs, stop, fetch, delete)" ;;
esac
