#!/usr/bin/env bash
# Runs a command again until it has ended for good, for machines that are taken away and given back.
#
#   scripts/again.sh python train.py --config=configs/lm.py:alibi --workdir=runs/alibi
#   scripts/again.sh python train.py --config=… --workdir=runs/alibi '&&' python eval.py --workdir=runs/alibi --lengths=512,1024
#
# Commands between words '&&' are run one after the other, each until it has ended with 0. The codes that need a person (2 to 7, see README)
# end it, with that code. 75 (preempted and saved, or another host is gone), a death by the system or by jax and a traceback (1) start the
# command again after AGAIN_AFTER seconds (20), and after twice and four times as many where nothing was saved since. Four starts in a row
# that save no new checkpoint end it too, with the last one's code: the same would come again. SIGTERM and SIGINT go on to the command,
# which saves; nothing is started after that. Without it:
#
#   until python train.py --config=… --workdir=…; do [ $? -eq 75 ] || break; done
set -uo pipefail

case ${1:-} in
  -h | --help)
    sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
[ $# -gt 0 ] || { echo "ERROR: what shall be run? ($0 python train.py --config=… --workdir=…)" >&2; exit 2; }

LIMIT=4 # starts in a row that save nothing new
child='' stopped=''
pass_on() {
  stopped=1
  [ -z "$child" ] || kill -TERM "$child" 2> /dev/null
}
trap pass_on TERM INT

# pe_jax/again.py adds a line for each checkpoint; one that is written once more is none that is new.
PE_JAX_SAVED=$(mktemp -t pe_jax_saved.XXXXXX) || exit 4
export PE_JAX_SAVED
trap 'rm -f "$PE_JAX_SAVED"' EXIT

# How many checkpoints there were.
told() {
  sort -u "$PE_JAX_SAVED" | wc -l
}

# Runs its arguments until they end with 0; ends all with any other code that is final.
until_done() {
  local known saved fruitless=0 code pause
  known=$(told)
  while true; do
    "$@" &
    child=$!
    wait "$child"
    while kill -0 "$child" 2> /dev/null; do wait "$child"; done # a signal ends a wait
    wait "$child" # of one that is over, and tells its code again
    code=$?
    [ "$code" -ne 0 ] || return 0
    [ -z "$stopped" ] || exit "$code"
    case $code in [2-7]) exit "$code" ;; esac
    saved=$(told)
    if [ "$saved" -gt "$known" ]; then fruitless=0; else fruitless=$((fruitless + 1)); fi
    known=$saved
    if [ "$fruitless" -ge $LIMIT ]; then
      echo "ERROR: $fruitless starts in a row have saved no new checkpoint and the last ended with $code, so it is not started again" \
        "(its own last lines say why; 137 is usually a lack of memory)" >&2
      exit "$code"
    fi
    pause=$((${AGAIN_AFTER:-20} << (fruitless < 2 ? fruitless : 2)))
    echo "$(date '+%F %T') ended with $code: again in $pause s" >&2
    export PE_JAX_AGAIN=1
    sleep "$pause" &
    child=$!
    wait "$child"
    [ -z "$stopped" ] || exit 75
  done
}

[[ "&& $* &&" != *'&& &&'* ]] || { echo "ERROR: there is no command before, after or between the words '&&'" >&2; exit 2; }
words=()
for word in "$@" '&&'; do
  if [ "$word" != '&&' ]; then
    words+=("$word")
    continue
  fi
  [ -z "$stopped" ] || exit 75
  unset PE_JAX_AGAIN
  until_done "${words[@]}"
  words=()
done
