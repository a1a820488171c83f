#!/bin/bash
# Everything that is to be seen on a machine with a GPU, in one run: tools/gpu_check.sh [folder of the package] [stages]
#   OUT=/tmp/out PYTHON=python3.12 tools/gpu_check.sh package smoke,ops
# Each stage is a process with a time limit and a log of its own, so that none stops the others. What they find is in
# $OUT/results.tar.gz, and the report made of it, docs/gpu.md, in $OUT/gpu.md; both are written anew after each stage.
set -u
cd "$(dirname "$0")/.."
package=$(realpath "${1:-python}")
stages=${2:-smoke,ops,examples,suite,times,scaling}
to=${OUT:-$PWD/gpu_check_out}
export OUT=$PWD/gpu_results PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$package:$PWD/packages:$PWD/tests/python:$PWD/examples:$PWD/benchmarks:$PWD/tools/gpu"
export LD_LIBRARY_PATH="$PWD/libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
PYTHON=${PYTHON:-python3}
mkdir -p "$to" "$OUT"

stage() { # name, seconds, command
  case ",$stages," in *",$1,"*) ;; *) return ;; esac
  local begin=$SECONDS
  echo "== $1 (at most $2 s)"
  timeout -k 5 "$2" "${@:3}" >"$OUT/$1.log" 2>&1
  local rc=$?
  tail -n "${LINES_SHOWN:-25}" "$OUT/$1.log" | cut -c1-300
  echo "== $1: exit $rc after $((SECONDS - begin)) s"
  "$PYTHON" tools/gpu/report.py "$OUT" >"$OUT/gpu.md" && cp "$OUT/gpu.md" "$to/" && cp "$OUT/gpu.md" docs/
  tar czf "$to/results.tar.gz" -C "$OUT" .
}

stage smoke 60 "$PYTHON" tools/gpu/smoke.py
stage ops 120 "$PYTHON" tools/gpu/ops.py
stage examples 80 "$PYTHON" tools/gpu/examples.py
stage suite 345 "$PYTHON" tools/gpu/suite.py 330
stage times 330 "$PYTHON" tools/gpu/times.py all "${TIMES:-}" # TIMES: a pattern of rows
stage scaling 100 "$PYTHON" tools/scaling.py --threads 1,4,16 --only resnet18@64,lenet --json "$OUT/scaling.json"
