"""A CUDA driver of two GPUs, as a shared object that a process of its own can load: it counts the second one of PCI first."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

# No byte stands where it would in another order: a UUID whose fields were swapped is another one.
SLOW, FAST, MIG = (
    "00112233-4455-6677-8899-aabbccddeeff",
    "f0e1d2c3-b4a5-9687-7869-5a4b3c2d1e0f",
    "12345678-9abc-def0-1357-9bdf02468ace",
)

_SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const unsigned char *bytes_of(const char *text) {
    static unsigned char found[16];
    int n = 0;
    char two[3] = {0, 0, 0};
    for (const char *at = text; n < 16; at++) {
        if (*at == '-') continue;
        two[0] = *at++;
        two[1] = *at;
        found[n++] = (unsigned char)strtol(two, NULL, 16);
    }
    return found;
}

static const char *const PCI[2] = {"SLOW", "FAST"};

/* CUDA_VISIBLE_DEVICES as documented: the list ends at the first entry that names no GPU. */
static int visible(int *shown) {
    const char *order = getenv("CUDA_DEVICE_ORDER"), *asked = getenv("CUDA_VISIBLE_DEVICES");
    int by_pci = order && !strcmp(order, "PCI_BUS_ID"), all[2] = {by_pci ? 0 : 1, by_pci ? 1 : 0}, n = 0;
    if (!asked) {
        memcpy(shown, all, sizeof all);
        return 2;
    }
    char copy[256];
    strncpy(copy, asked, sizeof copy - 1);
    copy[sizeof copy - 1] = 0;
    for (char *word = strtok(copy, ","); word && n < 2; word = strtok(NULL, ",")) {
        int which = -1;
        if (!strncmp(word, "GPU-", 4)) {
            for (int i = 0; i < 2; i++)
                if (!strncmp(PCI[i], word + 4, strlen(word) - 4)) which = i;
        } else if (*word >= '0' && *word <= '1' && !word[1]) {
            which = all[*word - '0'];
        }
        if (which < 0) break;
        shown[n++] = which;
    }
    return n;
}

int cuInit(unsigned flags) {
    int shown[2];
    const char *code = getenv("PLAYED_CUINIT");
    if (getenv("PLAYED_HANG")) sleep(60);
    if (flags) return 1;
    return code ? atoi(code) : visible(shown) ? 0 : 100;
}

int cuDeviceGet(int *device, int ordinal) {
    int shown[2];
    if (ordinal < 0 || ordinal >= visible(shown)) return 101;
    *device = shown[ordinal];
    return 0;
}

int cuDeviceGetUuid(void *uuid, int device) {
    memcpy(uuid, bytes_of(PCI[device]), 16);
    return 0;
}

#ifndef BEFORE_11_4
int cuDeviceGetUuid_v2(void *uuid, int device) {
    memcpy(uuid, bytes_of(getenv("PLAYED_MIG") ? "MIG" : PCI[device]), 16);
    return 0;
}
#endif
"""


def build(folder: Path, *defines: str) -> dict[str, str]:
    """The environment of a process that finds this driver, and nothing in it that chooses GPUs. Skips without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: the driver can't be played as a shared object")
    source = _SOURCE
    for name, text in (("SLOW", SLOW), ("FAST", FAST), ("MIG", MIG)):
        source = source.replace(f'"{name}"', f'"{text}"')
    (folder / "played.c").write_text(source, encoding="ascii")
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            *(f"-D{d}" for d in defines),
            "-o",
            str(folder / "libcuda.so.1"),
            str(folder / "played.c"),
        ],
        check=True,
    )
    kept = {k: v for k, v in os.environ.items() if k not in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")}
    return kept | {"LD_LIBRARY_PATH": str(folder)}
