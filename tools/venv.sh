# shellcheck shell=bash
# Makes .venv of this checkout once, and again when its requirements change. Sourced by ./deploy and ./test.
# Use: headfirst_venv GROUPS, with root set to the checkout; GROUPS is "" or "dev". Afterwards $root/.venv/bin/deploy runs.

say() { printf '%s\n' "$*" >&2; }

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

apt_install() {
  say "Installing with apt-get: $*"
  command -v apt-get >/dev/null || { say "No apt-get here: install $* by hand, then run this again."; exit 2; }
  as_root env DEBIAN_FRONTEND=noninteractive sh -c "apt-get -qq update && apt-get -qq install -y --no-install-recommends $* >/dev/null"
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

python_or_install() {
  find_python && return 0
  # Ubuntu 22.04's python3 is 3.10; it carries 3.11 as a package of its own. Elsewhere python3 is new enough.
  as_root apt-get -qq update >&2
  if apt-cache show python3.11-venv >/dev/null 2>&1; then
    apt_install python3.11 python3.11-venv >&2
  else
    apt_install python3 python3-venv >&2
  fi
  find_python || { say "Headfirst needs Python 3.11 or newer on this machine, and apt-get has none: install one."; exit 2; }
}

headfirst_venv() {
  local groups="$1" venv="${root:?}/.venv" wanted python site
  wanted="$(cat "$root/requirements.lock" "$root/tools/requirements-dev.lock" "$root/tools/venv.sh" "$root/pyproject.toml" | sha256sum | cut -d' ' -f1)"
  if [ "$(cat "$venv/.made-from${groups:+-$groups}" 2>/dev/null)" = "$wanted" ]; then return 0; fi
  python="$(python_or_install)"
  say "Setting up .venv with $("$python" --version) (once) …"
  if ! "$python" -m venv --clear "$venv" >/dev/null 2>&1; then
    apt_install "$("$python" -c 'import sys; print(f"python3.{sys.version_info[1]}-venv")')" >&2
    "$python" -m venv --clear "$venv"
  fi
  "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
    -r "$root/tools/requirements-uv.lock"
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r "$root/requirements.lock"
  if [ "$groups" = dev ]; then
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r "$root/tools/requirements-dev.lock"
  fi
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --editable "$root"
  # In a wheel the collection lies in site-packages; here a link there shows Ansible the checkout.
  site="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  mkdir -p "$site/ansible_collections/headfirst"
  # The editable wheel may bring a copy, which would be used instead of the checkout.
  rm -rf "$site/ansible_collections/headfirst/serving"
  ln -sfn "$root" "$site/ansible_collections/headfirst/serving"
  # The tests' environment holds everything that ./deploy needs.
  printf '%s' "$wanted" >"$venv/.made-from"
  if [ -n "$groups" ]; then printf '%s' "$wanted" >"$venv/.made-from-$groups"; fi
}
