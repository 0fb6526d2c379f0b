#!/usr/bin/env bash
# Sets up .venv and passes all tests:  bash tools/test.sh [options of pytest]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"
"$python" -m ruff check
"$python" -m ruff format --check
exec "$python" -m pytest -q -n 2 --dist loadfile "$@"
