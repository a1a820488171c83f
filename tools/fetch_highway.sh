#!/usr/bin/env bash
# Usage: tools/fetch_highway.sh. Puts the sources of Highway 1.2.0, as Debian has them, into build/third_party: a cross
# build compiles them in, since packages of other machines cannot be installed beside our own.
set -euo pipefail
version=1.2.0
sum=7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343
target="$(dirname "$0")/../build/third_party"
[ -e "$target/highway-$version/hwy/targets.cc" ] && exit 0
mkdir -p "$target"
archive="$target/highway.tar.gz"
url="https://deb.debian.org/debian/pool/main/h/highway/highway_$version.orig.tar.gz"
echo "== $url"
python3 -c 'import sys, urllib.request; open(sys.argv[2], "wb").write(urllib.request.urlopen(sys.argv[1], timeout=60).read())' "$url" "$archive"
echo "$sum  $archive" | sha256sum --check --quiet || { echo "The archive is not the one that was pinned; delete $archive and try again."; exit 1; }
tar -xzf "$archive" -C "$target"
rm "$archive"
ls -d "$target/highway-$version" >/dev/null
