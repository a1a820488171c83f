#!/usr/bin/env bash
# Usage: tools/bootstrap.sh build|lint|count|mpi|browser|gdb|aarch64|cross|wine. Makes sure that the Debian packages of that set are installed.
# As root on Debian it installs the missing ones; otherwise it prints the command to run and stops. SKIP_APT=1 skips it.
set -euo pipefail

case "$1" in
  build)
    packages=(g++ ccache mold pkg-config libgtest-dev libgmock-dev libhwy-dev libflatbuffers-dev flatbuffers-compiler libmbedtls-dev libgloo-dev)
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, $PYTHON is older. Pass PYTHON=/path/to/python3.11."; exit 1; }
    "$PYTHON" -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
    "$PYTHON" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || packages+=(python3-dev)
    ;;
  lint) packages=(clang-format clang-tidy) ;;
  count) packages=(valgrind) ;;
  mpi) packages=(openmpi-bin) ;;  # starts processes in a test
  browser) packages=(chromium fonts-dejavu-core) ;;  # looks at pages in a test
  gdb) packages=(gdb) ;;  # prints tensors in a test
  aarch64) packages=(g++-aarch64-linux-gnu qemu-user libgtest-dev) ;;  # what make test runs of other machines
  cross) packages=(g++-aarch64-linux-gnu g++-riscv64-linux-gnu g++-arm-linux-gnueabihf g++-mingw-w64-x86-64 qemu-user libgtest-dev) ;;
  wine) packages=(wine wine64) ;;  # runs programs of Windows
  *) echo "usage: $0 build|lint|count|mpi|browser|gdb|aarch64|cross|wine"; exit 2 ;;
esac
[ "${SKIP_APT:-0}" = 1 ] && exit 0

if ! command -v dpkg-query >/dev/null; then
  echo "This is not a Debian system. Install the equivalents of: ${packages[*]}"
  echo "and run make again with SKIP_APT=1."
  exit 1
fi
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" != 0 ]; then
  echo "Missing Debian packages. Run this, then make again (or SKIP_APT=1 make ... if you have them elsewhere):"
  echo "  sudo apt-get install --no-install-recommends ${missing[*]}"
  exit 1
fi
echo "== installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
install() { apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null; }
install 2>/dev/null || { apt-get -qq update && install; }
