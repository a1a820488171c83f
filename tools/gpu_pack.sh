#!/bin/bash
# All that tools/gpu_check.sh needs, in one archive, for a machine that has neither a compiler nor a network:
#   tools/gpu_pack.sh build/stage312/python /usr/lib:/path/of/libdnnl build/gpu.tar.xz
# there: tar xJf gpu.tar.xz && cd gpu && tools/gpu_check.sh package
set -eu
package=$1 libraries=$2 archive=$3
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
mkdir -p "$folder/gpu/libs" "$folder/gpu/docs"
tools/stage_python.py "$package"
cp -r "$package" "$folder/gpu/package"
find "$folder/gpu/package" -name __pycache__ -prune -exec rm -rf {} +
find "$folder/gpu/package" -name '*.so' -exec strip --strip-unneeded {} +
for name in libdnnl.so.3 libhwy.so.1 libgomp.so.1; do
  for from in ${libraries//:/ }; do
    [ -e "$from/$name" ] && cp -L "$from/$name" "$folder/gpu/libs/" && break
  done
done
# A fifth word: where pytest and hypothesis are, of any Python; they are not on every machine.
if [ -n "${4:-}" ]; then
  mkdir -p "$folder/gpu/packages"
  for name in pytest _pytest pluggy iniconfig packaging pygments hypothesis sortedcontainers _hypothesis_pytestplugin.py \
    _hypothesis_globals.py _hypothesis_ftz_detector.py pytest-*.dist-info; do
    cp -r "$4"/$name "$folder/gpu/packages/"
  done
  find "$folder/gpu/packages" -name __pycache__ -prune -exec rm -rf {} +
fi
(git ls-files tools tests/python tests/data examples benchmarks | grep -v '^examples/data/\|^tests/data/golden' && echo conftest.py && echo pyproject.toml) | tar cf - -T - | tar xf - -C "$folder/gpu"
[ -e examples/data/digits.npz ] && mkdir -p "$folder/gpu/examples/data" && cp examples/data/digits.npz "$folder/gpu/examples/data/"
tar c -C "$folder" gpu | xz -T1 -2 >"$archive"
rm -rf "$folder"
ls -l "$archive"
