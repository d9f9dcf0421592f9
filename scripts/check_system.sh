#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the system itself must bring: Python 3.11 or later with venv and its shared library, a C++ compiler, make, perl.
#
#   check_system.sh            says what is missing, with the one command that brings it; exit code 1 then
#   check_system.sh --list     prints the names of the missing Debian packages only
#   check_system.sh --python   prints the Python interpreter to use (the variable PYTHON chooses another one)
set -eu

usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

python=""
for candidate in ${PYTHON:-} python3.11 python3; do
    if usable "$candidate"; then python=$candidate; break; fi
done

if [ "${1:-}" = --python ]; then
    echo "${python:-python3.11}"
    exit 0
fi

missing=""
for tool in g++ make perl; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -z "$python" ]; then
    missing="$missing python3.11 python3.11-venv libpython3.11"
else
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python$version-venv"
    "$python" - <<'EOF' >/dev/null 2>&1 || missing="$missing libpython$version"
# cocotb starts Python inside the simulator and needs it as a shared library.
import ctypes, os, sysconfig
name, folder = sysconfig.get_config_var("INSTSONAME"), sysconfig.get_config_var("LIBDIR")
name = name if ".so" in name else "libpython%s.so.1.0" % sysconfig.get_python_version()
path = os.path.join(folder, name)
ctypes.CDLL(path if os.path.exists(path) else name)
EOF
fi

missing=${missing# }
if [ "${1:-}" = --list ]; then
    echo "$missing"
elif [ -n "$missing" ]; then
    echo "weft needs what this system does not have: $missing" >&2
    echo "install it with: sudo apt-get install -y $missing" >&2
    exit 1
fi
