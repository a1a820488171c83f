"""cmake/unwind/as: shorter unwind tables, the same exceptions."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "cmake/unwind"
GCC = shutil.which("g++")
pytestmark = pytest.mark.skipif(
    not GCC or not shutil.which("readelf") or platform.machine() != "x86_64", reason="tables of GCC on x86-64"
)

# Frames of all kinds between a throw and its handler: saved registers, early returns, memory on the stack whose size is
# not known, an aligned stack, destructors on the way, a function that rethrows, one that ends in a call, and one that
# lets nothing out.
SOURCE = r"""
#include <alloca.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>
#define APART __attribute__((noinline))
struct Note { std::string text; ~Note() { std::printf("~%s ", text.c_str()); } };
APART int leaf(int a, int b) { return a * b + 1; }
APART void deep(int n) { if (n == 3) throw std::runtime_error("three"); if (n > 90) throw n; std::printf("."); }
APART int early(int a, int b, int c, int d) {
  if (a < 0) return b;
  Note note{"early"};
  deep(a);
  if (b < 0) return leaf(c, d);
  deep(b);
  for (int i = 0; i < c; ++i) { Note inner{"inner"}; deep(i + d); }
  return a + b + c + d;
}
APART void tail(int n) { deep(n); }
APART int room(int n, int at) {
  char* p = static_cast<char*>(alloca(n));
  std::memset(p, 1, n);
  Note note{"room"};
  tail(at);
  return p[n - 1] + early(at, at, 1, 4);
}
APART double aligned(double x, int at) {
  alignas(64) double v[16];
  for (double& e : v) e = x;
  Note note{"aligned"};
  room(static_cast<int>(v[3]), at);
  return v[7];
}
APART int again(int a, int b) {
  try {
    return early(a, b, 2, 2) + static_cast<int>(aligned(40, a));
  } catch (const std::exception& e) {
    std::printf("<%s> ", e.what());
    throw;
  }
}
APART void closed(int n) noexcept { Note note{"closed"}; deep(n); }
int main(int argc, char**) {
  std::set_terminate([] { std::puts("end"); std::fflush(stdout); std::_Exit(7); });
  int kept = argc * 17;
  for (int a : {-1, 0, 1, 3, 99})
    for (int b : {-1, 2, 3}) {
      try {
        std::printf("%d ", again(a, b));
      } catch (const std::exception& e) {
        std::printf("[%s] ", e.what());
      } catch (int n) {
        std::printf("[%d] ", n);
      }
      std::printf("%d\n", kept += leaf(a, b));
    }
  closed(3);
}
"""


def build(folder: Path, name: str, *options: str) -> Path:
    source = folder / "frames.cpp"
    source.write_text(SOURCE)
    flags = ("-std=c++20", "-fPIC", "-fno-asynchronous-unwind-tables", *options)
    subprocess.run([str(GCC), *flags, str(source), "-o", str(folder / name)], check=True)
    return folder / name


Row = tuple[int, str, dict[str, str]]  # from where it holds, the frame, registers saved


def tables(program: Path) -> dict[tuple[int, int], list[Row]]:
    """Of each function with a table, by its addresses. readelf leaves out what is the first row of all and no more."""
    text = subprocess.run(["readelf", "-wF", str(program)], check=True, capture_output=True, text=True).stdout
    out: dict[tuple[int, int], list[Row]] = {}
    rows: list[Row] = []
    columns: list[str] = []
    for line in text.splitlines():
        if found := re.search(r" FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)", line):
            begin, end = int(found[1], 16), int(found[2], 16)
            rows, columns = out.setdefault((begin, end), [(begin, "rsp+8", {"ra": "c-8"})]), []
        elif " CIE " in line:
            rows, columns = [], []
        elif line.strip().startswith("LOC"):
            columns = line.split()[2:]
        elif re.match(r"^[0-9a-f]{16} ", line):
            address, frame, *values = line.split()
            saved = {c: v for c, v in zip(columns, values, strict=True) if v not in ("u", "s")}
            rows.append((int(address, 16), frame, saved))
    return out


def calls(program: Path) -> list[int]:
    """Addresses that calls return to."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(program)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [x for line in text.splitlines() if (x := re.match(r"\s+([0-9a-f]+):\s+(\S+)", line))]
    return [int(after[1], 16) for at, after in zip(lines, lines[1:], strict=False) if at[2] == "call"]


def row_at(table: list[Row], address: int) -> tuple[str, dict[str, str]]:
    return [(frame, saved) for at, frame, saved in table if at < address][-1]


@pytest.mark.parametrize("level", ["-Os", "-O2", "-O0"])
def test_exceptions_find_the_same(level: str, tmp_path: Path) -> None:
    plain, short = build(tmp_path, "plain", level), build(tmp_path, "short", level, f"-B{FOLDER}/")
    a, b = (subprocess.run([str(p)], capture_output=True, text=True) for p in (plain, short))
    assert (a.returncode, a.stdout) == (b.returncode, b.stdout)
    assert a.returncode == 7
    assert a.stdout.count("[three]") == 7  # a = 3: three; a of 0 and 1 with b = 3, or with b = 2 in the loop: four
    assert a.stdout.endswith("end\n")


@pytest.mark.parametrize("level", ["-Os", "-O2", "-O0"])
def test_every_call_has_the_row_it_had(level: str, tmp_path: Path) -> None:
    """Judged by readelf, from programs with the same code."""
    plain, short = build(tmp_path, "plain", level), build(tmp_path, "short", level, f"-B{FOLDER}/")
    full, kept, returns = tables(plain), tables(short), calls(plain)
    assert returns == calls(short)
    compared = 0
    for function, table in full.items():
        for address in (r for r in returns if function[0] < r <= function[1]):
            assert function in kept, f"no table for the call before {address:x}"
            assert row_at(kept[function], address) == row_at(table, address), hex(address)
            compared += 1
    assert compared > 40
    assert sum(map(len, kept.values())) < 0.8 * sum(map(len, full.values()))
    assert len(kept) < len(full)


def test_what_is_not_understood_stays(tmp_path: Path) -> None:
    text = (
        "f:\n\t.cfi_startproc\n\tpushq %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_escape 0xf,0x3,0x76,0x78,0x6\n\tcall g\n"
        "\tret\n\t.cfi_endproc\n"
    )
    source, fake = tmp_path / "f.s", tmp_path / "bin/as"
    source.write_text(text)
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nfor a in "$@"; do case "$a" in *.s) cat "$a";; esac; done\nexit 3\n')
    fake.chmod(0o755)
    path = f"{FOLDER}:{fake.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(FOLDER / "as"), str(source), "-o", str(tmp_path / "f.o")],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 3, "the assembler's own failure comes through"
    assert done.stdout == text
    assert source.read_text() == text
