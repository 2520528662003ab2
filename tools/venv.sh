# shellcheck shell=bash
# Makes .venv of this checkout once, and again when its requirements change. Sourced by ./deploy and ./test.
# Use: headfirst_venv GROUPS [PACKAGE…], with root set to the checkout; GROUPS is "" or "dev". Debian packages that are
# missing, for .venv and of the list, are installed in one step. Afterwards $root/.venv/bin/deploy runs.

say() { printf '%s\n' "$*" >&2; }

fail() { say "$@"; exit 3; }

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

is_installed() { [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Runs a command after a line about it; the line is repeated while the command takes long.
step() {
  local what="$1" ticker status=0
  shift
  say "$what …"
  (
    trap 'kill "$!"; exit' TERM
    while sleep 15 & wait "$!" && kill -0 "$$" 2>/dev/null; do say "  still at it: $what …"; done
  ) &
  ticker=$!
  # shellcheck disable=SC2064  # the ticker of this step
  trap "kill $ticker 2>/dev/null" EXIT
  "$@" || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  trap - EXIT
  return "$status"
}

# Standard output has all that apt-get prints.
apt_get() {
  # shellcheck disable=SC2016  # expanded by the inner shell
  as_root env DEBIAN_FRONTEND=noninteractive sh -c '
    apt-get -q update || exit
    for name; do
      # Ubuntu 22.04 has a python3 of 3.10 and 3.11 as a package of its own; elsewhere python3 is new enough.
      if [ "$name" = python3-venv ] && apt-cache show python3.11-venv >/dev/null 2>&1; then name=python3.11-venv; fi
      packages="$packages $name"
    done
    apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $packages' sh "$@" 2>&1
}

# Installs all packages named, in one call of apt-get.
apt_install() {
  local names="$*" log status=0
  command -v apt-get >/dev/null ||
    fail "This machine lacks $names, and there is no apt-get: install them, then run this again."
  [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
    fail "This machine lacks $names. Installing them needs root, and there is no sudo: install them as root with" \
      "\`apt-get install\`, then run this again."
  log="$(mktemp)"
  step "Installing with apt-get: $names (usually 10–60 s)" apt_get "$@" >"$log" || status=$?
  if [ "$status" -ne 0 ]; then
    tail -n 8 "$log" >&2
    rm -f "$log"
    fail "This machine lacks $names, and apt-get could not install them. Check the network and the package sources" \
      "with \`apt-get update\`, then run this again."
  fi
  rm -f "$log"
}

find_python() {
  local name
  for name in python3.13 python3.12 python3.11 python3; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return 0
    fi
  done
  return 1
}

# The Debian package that makes `python -m venv` work, where it does not yet.
venv_package() {
  local python
  python="$(find_python)" || { echo python3-venv; return; }
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    "$python" -c 'import sys; print(f"python3.{sys.version_info[1]}-venv")'
}

headfirst_venv() {
  local groups="$1" venv="${root:?}/.venv" wanted name missing=()
  shift
  # ./deploy keeps what the tests need in the same .venv.
  [ ! -e "$venv/.made-from-dev" ] || groups=dev
  # With the checkout's own path: commands in .venv do not work at another one.
  wanted="$( (cd "$root" && pwd && cat requirements.lock tools/requirements-*.lock tools/venv.sh pyproject.toml) |
    sha256sum | cut -d' ' -f1)"
  is_made() { [ -x "$venv/bin/python" ] && [ "$(cat "$venv/.made-from${groups:+-$groups}" 2>/dev/null)" = "$wanted" ]; }
  is_made || mapfile -t missing < <(venv_package)
  for name; do is_installed "$name" || missing+=("$name"); done
  [ "${#missing[@]}" -eq 0 ] || apt_install "${missing[@]}"
  if is_made; then return 0; fi
  [ -w "$root" ] || fail "$root cannot be written, and .venv is made there: clone the repository to a folder of your own."
  # Two first runs at once: one makes .venv, the other one waits. The folder is its own lock file.
  exec 9<"$root"
  flock --nonblock 9 || step "Waiting for another run, which is making .venv" flock 9
  is_made || make_venv "$groups" "$venv" "$wanted"
  exec 9<&-
}

make_venv() {
  local groups="$1" venv="$2" wanted="$3" python site again
  again="then run this again: it starts from the beginning."
  python="$(find_python)" || fail "Headfirst needs Python 3.11 or newer on this machine, and apt-get has none: install one."
  say "Setting up .venv with $("$python" --version) (once) …"
  # What an interrupted run left is removed with --clear.
  "$python" -m venv --clear "$venv" ||
    fail "$venv could not be made with $python. Remove it ($(stat -c 'owner: %U' "$venv" 2>/dev/null)), $again"
  # pip's own settings say where packages come from; uv reads none of them, and none may change what is installed.
  export PYTHONPATH="$root/py"
  step "Installing uv" "$venv/bin/python" -m headfirst.control.pip_config "$venv/bin/python" -m pip install --quiet --quiet \
    --disable-pip-version-check --require-hashes --only-binary :all: -r "$root/tools/requirements-uv.lock" ||
    fail "pip could not install uv. Check that this machine reaches its package index (\`pip config list\`), $again"
  uv_install "Installing Python packages (usually 10–60 s)" --require-hashes -r "$root/requirements.lock"
  if [ "$groups" = dev ]; then
    uv_install "Installing Python packages of the tests (usually 10–60 s)" --require-hashes -r "$root/tools/requirements-dev.lock"
  fi
  uv_install "Installing Headfirst" --no-deps --editable "$root"
  unset PYTHONPATH
  # In a wheel the collection lies in site-packages; here a link there shows Ansible the checkout.
  site="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  mkdir -p "$site/ansible_collections/headfirst"
  # hatchling puts copies of the collection's folders there, which would hide the checkout's.
  rm -rf "$site/ansible_collections/headfirst/serving"
  ln -sfn "$root" "$site/ansible_collections/headfirst/serving"
  # The tests' environment holds everything that ./deploy needs.
  printf '%s' "$wanted" >"$venv/.made-from"
  if [ -n "$groups" ]; then printf '%s' "$wanted" >"$venv/.made-from-$groups"; fi
}

uv_install() {
  local what="$1"
  shift
  # uv has no variable for it: a controller without a network installs from a folder (docs/closed-networks.md).
  step "$what" "$venv/bin/python" -m headfirst.control.machine.pip_settings "$venv/bin/uv" pip install --quiet \
    ${PIP_NO_INDEX:+--no-index} --python "$venv/bin/python" "$@" ||
    fail "uv could not install packages. Check that this machine reaches its package index (\`pip config list\`), $again"
}
