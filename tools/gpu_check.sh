#!/bin/bash
# Everything that is to be seen on a machine with a GPU, in one run: tools/gpu_check.sh [folder of the package] [stages]
#   OUT=/tmp/out PYTHON=/opt/torch/.venv/bin/python3 tools/gpu_check.sh build/stage312/python smoke,ops
# Each stage is a process with a time limit and a log of its own, so that none stops the others. Results are JSON files
# under $OUT; the last stage makes docs/gpu.md of them.
set -u
cd "$(dirname "$0")/.."
package=${1:-python}
stages=${2:-smoke,ops,examples,times,scaling}
OUT=${OUT:-gpu_check_out}
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT"
export PYTHONPATH="$package:tests/python:examples:benchmarks:tools/gpu" PYTHONUNBUFFERED=1 OUT
export PYTHONDONTWRITEBYTECODE=1

stage() { # name, seconds, command
  case ",$stages," in *",$1,"*) ;; *) return ;; esac
  local begin=$SECONDS
  echo "== $1 (at most $2 s)"
  timeout -k 5 "$2" "${@:3}" >"$OUT/$1.log" 2>&1
  local rc=$?
  tail -n "${LINES_SHOWN:-25}" "$OUT/$1.log"
  echo "== $1: exit $rc after $((SECONDS - begin)) s"
}

stage smoke 60 "$PYTHON" tools/gpu/smoke.py
stage ops 180 "$PYTHON" tools/gpu/ops.py
stage examples 100 "$PYTHON" tools/gpu/examples.py
stage times 150 "$PYTHON" tools/gpu/times.py
stage scaling 100 "$PYTHON" tools/scaling.py --threads 1,4,16 --only resnet18@64,lenet --json "$OUT/scaling.json"
"$PYTHON" tools/gpu/report.py "$OUT" >"$OUT/gpu.md" && cp "$OUT/gpu.md" docs/gpu.md
echo "== report in $OUT/gpu.md"
