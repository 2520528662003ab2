#!/usr/bin/env bash
# Builds the site of docs/ into the folder site, or another one: tools/site.sh [FOLDER]. Warnings are errors.
# To read it while you write: .venv/bin/mkdocs serve
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=tools/venv.sh
. "$root/tools/venv.sh"
folder="$(realpath -m "${1:-$root/site}")"
headfirst_venv dev
cd "$root"
.venv/bin/python tools/reference_docs.py --check
NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict --site-dir "$folder"
say "The site is in $folder; its first page is index.html."
