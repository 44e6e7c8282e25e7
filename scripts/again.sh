#!/usr/bin/env bash
# Runs a command again until it has ended for good, for machines that are taken away and given back.
#
#   scripts/again.sh python train.py --config=configs/lm.py:alibi --workdir=runs/alibi
#
# 0 and the codes that need a person (2 to 7, see README) end it, with that code. 75 (preempted and saved, or another host is gone) and a
# death by the system or by jax start it again after AGAIN_AFTER seconds (20). Three deaths other than 75 within a minute of their start,
# one after the other, end it too. SIGTERM and SIGINT go on to the command, which saves; nothing is started after that. Without it:
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

child='' stopped='' deaths=0
pass_on() {
  stopped=1
  [ -z "$child" ] || kill -TERM "$child" 2> /dev/null
}
trap pass_on TERM INT

while true; do
  begun=$SECONDS
  "$@" &
  child=$!
  wait "$child"
  while kill -0 "$child" 2> /dev/null; do wait "$child"; done # a signal ends a wait
  wait "$child" # of one that is over, and tells its code again
  code=$?
  [ -z "$stopped" ] || exit "$code"
  case $code in
    0 | [2-7]) exit "$code" ;;
    75) deaths=0 ;;
    *) [ $((SECONDS - begun)) -lt 60 ] && deaths=$((deaths + 1)) || deaths=1 ;;
  esac
  [ "$deaths" -lt 3 ] || exit "$code"
  echo "$(date '+%F %T') ended with $code: again in ${AGAIN_AFTER:-20} s" >&2
  sleep "${AGAIN_AFTER:-20}" &
  child=$!
  wait "$child"
  [ -z "$stopped" ] || exit 75
done
