#!/bin/bash
# Run the test suite on a Python of Debian's unstable distribution, on a Debian machine with an older one.
#
#   bench/platforms/suite_on_debian_python.sh 3.14                          the whole suite
#   bench/platforms/suite_on_debian_python.sh 3.14 tests/test_tiny.py -x    further arguments are pytest's
#   bench/platforms/suite_on_debian_python.sh 3.14 -- -c 'import torch'     after --, they are Python's
#
# Makes a root directory with that Python and a virtual environment, once, in PLATFORM_ROOT (default:
# /tmp/burnish-python3.14), and runs pytest in it. The machine's own packages and sources stay as they are: apt works
# on lists of its own, and packages are only unpacked. Needs root (chroot, unshare) and about 8 GB, most of it torch.
set -euo pipefail

python=${1:?the version of Python, such as 3.14}
shift
here=$(cd "$(dirname "$0")/../.." && pwd)
base=${PLATFORM_ROOT:-/tmp/burnish-python$python}
root=$base/root
torch=${TORCH:-torch}

fetch_packages() {
    local site
    site=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' | head -n 1)
    mkdir -p "$base"/apt/lists/partial "$base"/apt/cache/archives/partial
    touch "$base/apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site sid main" > "$base/apt/sources.list"
    cat > "$base/apt/apt.conf" << EOF
Dir::State::lists "$base/apt/lists";
Dir::State::status "$base/apt/status";
Dir::Cache "$base/apt/cache";
Dir::Etc::sourcelist "$base/apt/sources.list";
Dir::Etc::sourceparts "/nonexistent";
Acquire::Languages "none";
APT::Install-Recommends "false";
EOF
    export APT_CONFIG=$base/apt/apt.conf
    apt-get update
    apt-get install --yes --download-only "python$python" "python$python-venv" "python$python-dev" \
        libstdc++6 libgomp1 bash coreutils git gcc g++ make ca-certificates base-files
    unset APT_CONFIG
}

unpack_packages() {
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{proc,dev,sys,tmp,etc/ssl/certs,root}
    local name
    for name in bin sbin lib lib64; do
        ln -sfn "usr/$name" "$root/$name"
    done
    for name in "$base"/apt/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$name" | tar --extract --directory "$root" --keep-directory-symlink
    done
    cp /etc/{resolv.conf,hosts,passwd,group} "$root/etc/"
    cp --dereference /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    local file
    for file in /etc/pip.conf "$HOME/.config/pip/pip.conf"; do
        [ ! -e "$file" ] || cp "$file" "$root/etc/pip.conf"
    done
}

# Mounts are in a separate namespace: they end with the command.
inside() {
    unshare --mount bash -c '
        root=$1 folder=$2
        shift 2
        for name in /proc /dev /sys /tmp /opt "$folder"; do
            [ -d "$name" ] || continue
            mkdir -p "$root$name"
            mount --rbind "$name" "$root$name"
        done
        exec chroot "$root" /bin/bash -c "cd \"\$1\" && shift && exec \"\$@\"" _ "$folder" "$@"
    ' _ "$root" "$here" env HOME=/root PYTHONPATH="$here/src" "$@"
}

if [ ! -e "$base/complete" ]; then
    fetch_packages
    unpack_packages
    inside "python$python" -m venv /venv
    inside /venv/bin/pip install "$torch" llvmlite numpy scipy pytest pytest-xdist expecttest hypothesis setuptools cryptography
    touch "$base/complete"
fi
if [ "${1-}" = -- ]; then
    shift
    inside /venv/bin/python "$@"
    exit
fi
inside /venv/bin/python -m pytest -p no:cacheprovider "${@:-tests}"
